"""The command line: parsing and printing only."""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Sequence
from importlib.machinery import PathFinder
from pathlib import Path

import unisono
from unisono import env
from unisono.errors import ConfigurationError
from unisono.launch import cores, plan, ports, processes

_RUN_EXAMPLES = """\
examples:
  unisono run -n 2 train.py
  unisono run -n 4 train.py --epochs 5 --data ./digits
  unisono run -n 2 -m mypackage.train --epochs 5
  unisono run -n 2 -c "import train; train.main()"

Options of `unisono run` come before the script; all that follows it belongs to the script.

Each worker is started with a TF_CONFIG that names all of them. Its lines of output are shown with
"[worker 1]" in front. If a worker fails, the others are stopped, and its error is printed last.
Ctrl-C stops all. The exit code is that of the first worker that failed. Workers have no standard input.

The cores of this machine are shared out among the workers, unless you set OMP_NUM_THREADS,
MKL_NUM_THREADS, OPENBLAS_NUM_THREADS, TF_NUM_INTRAOP_THREADS or TF_NUM_INTEROP_THREADS.
"""

_WITH_VALUE = ("-n", "--workers")
"""Options of `unisono run` whose value is the next word."""

_EXAMPLES = """\
examples:
  unisono run -n 2 train.py        start train.py as two workers on this machine
  unisono run --help               more about it
  unisono --version
"""


def parser() -> argparse.ArgumentParser:
    """Returns the parser of all commands."""
    top = argparse.ArgumentParser(
        prog="unisono",
        description="Multi-worker training for Keras 3 on TensorFlow, JAX and torch.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"unisono {unisono.__version__}")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    run = commands.add_parser(
        "run",
        help="start a script as several workers on this machine",
        description="Start a script as several workers on this machine.",
        usage="unisono run -n N SCRIPT [ARGUMENT ...]\n"
        "       unisono run -n N -m MODULE [ARGUMENT ...]\n"
        "       unisono run -n N -c CODE [ARGUMENT ...]",
        epilog=_RUN_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    run.add_argument("-n", "--workers", type=_at_least_one, metavar="N", help="how many workers to start")
    run.set_defaults(command=_run, parser=run)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command.

    Args:
        argv: The arguments; those of this process if None.

    Returns:
        The exit code.
    """
    typed = sys.argv[1:] if argv is None else list(argv)
    rest: list[str] = []
    if typed[:1] == ["run"]:
        own, rest = split(typed[1:])
        typed = ["run", *own]
    arguments, unknown = parser().parse_known_args(typed)
    if unknown or arguments.workers is None:
        arguments.parser.error(_wrong_options(unknown, arguments.workers, rest))
    try:
        return int(arguments.command(arguments, rest))
    except ConfigurationError as error:
        print(f"unisono: {error}", file=sys.stderr)
        return 2


def split(typed: Sequence[str]) -> tuple[list[str], list[str]]:
    """Returns the options of `unisono run`, and what is to be run with all that follows it.

    `argparse` cannot do this: its remainder loses a "--" and takes options of the script for its own.

    Args:
        typed: What follows "run" on the command line.
    """
    position = 0
    while position < len(typed):
        word = typed[position]
        if word == "--":
            return list(typed[:position]), list(typed[position + 1 :])
        if word.startswith(("-m", "-c")) or word == "-" or not word.startswith("-"):
            break
        position += 2 if word in _WITH_VALUE else 1
    return list(typed[:position]), list(typed[position:])


def _wrong_options(unknown: Sequence[str], workers: int | None, rest: Sequence[str]) -> str:
    """Returns what is wrong with the options before the script: `unknown` ones, or no number of workers."""
    parts = [f"unrecognized arguments: {' '.join(unknown)}"] if unknown else []
    if workers is None:
        words = (word for word in rest if not word.startswith("-") and not word.isdecimal())
        example = f"unisono run -n 2 {next(words, 'train.py')}"
        parts.append(f"required: -n/--workers, before the script, for example: {example}")
    return "; ".join(parts)


def _run(arguments: argparse.Namespace, rest: Sequence[str]) -> int:
    command = _command_line(arguments.parser, rest)
    environ = env.snapshot()
    usable = cores.available()
    plans = plan.plan(arguments.workers, command, ports.free(arguments.workers), usable, environ)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A progress bar must not end the job where the terminal cannot show its characters.
            stream.reconfigure(errors="replace")
    if env.read("TF_CONFIG", environ) is not None:
        print("[unisono] TF_CONFIG was set; each worker gets one made for this run instead.", file=sys.stderr)
    print(f"[unisono] {plan.describe(arguments.workers, usable, environ)}", file=sys.stderr, flush=True)
    return processes.run(plans)


def _command_line(run: argparse.ArgumentParser, rest: Sequence[str]) -> list[str]:
    """Returns the command line of each worker; ends with a usage error if there is nothing to run."""
    if not rest:
        run.error("say what to run, for example: unisono run -n 2 train.py")
    if rest[0] == "-":
        run.error("workers have no standard input to read a script from; name a file, or use -m MODULE or -c CODE.")
    if rest[0] == "-c" and len(rest) == 1:
        run.error("-c needs the code to run.")
    if rest[0].startswith("-m"):
        module = rest[0][2:] or (rest[1] if len(rest) > 1 else "")
        if not module:
            run.error("-m needs the name of a module.")
        top = module.partition(".")[0]
        if PathFinder.find_spec(top, [str(Path.cwd()), *sys.path]) is None:
            raise ConfigurationError(f"there is no module {top!r} to run, here ({Path.cwd()}) or installed.")
    elif not rest[0].startswith("-c"):
        _check_script(rest[0])
    return [sys.executable, *rest]


def _check_script(name: str) -> None:
    path = Path(name)
    if not path.exists():
        raise ConfigurationError(f"there is no file {name!r} to run, in {Path.cwd()}.")
    if path.is_dir() and not (path / "__main__.py").is_file():
        raise ConfigurationError(f"{name!r} is a folder without a __main__.py; name the script to run.")


def _at_least_one(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of workers, 1 or more")
    return int(text)
