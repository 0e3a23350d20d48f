"""Writes the pages of this folder that come from the code: environment.md and reference.md.

python docs/generate.py            write them
python docs/generate.py --check    say which ones are stale, and fail if one is
"""

from __future__ import annotations

import argparse
import inspect
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import unisono
from unisono import env

HERE = Path(__file__).parent
SECTIONS = ("Args", "Returns", "Raises", "Yields", "Attributes")


def environment_page() -> str:
    """Returns the page of the environment variables: our own first, then those of other programs."""
    ours = [each for each in env.VARIABLES.values() if each.owner == "unisono"]
    others = [each for each in env.VARIABLES.values() if each.owner != "unisono"]
    lines = [
        "# Environment variables",
        "",
        "Written by `make docs` from the table in `src/unisono/env.py`, the only file that reads or sets them.",
        "What a script says in code wins over a variable. A *flag* is 0 or 1.",
        "",
        "## Of Unisono",
        "",
        "| variable | kind | default | meaning |",
        "|---|---|---|---|",
    ]
    for each in ours:
        lines.append(f"| `{each.name}` | {each.kind} | {_default(each)} | {_cell(each.meaning)} |")
    lines += [
        "",
        "## Of other programs, read or set here",
        "",
        "| variable | of | kind | meaning |",
        "|---|---|---|---|",
    ]
    for each in others:
        lines.append(f"| `{each.name}` | {each.owner} | {each.kind} | {_cell(each.meaning)} |")
    return "\n".join(lines) + "\n"


def _default(variable: env.Variable) -> str:
    return "-" if variable.default is None else f"`{variable.default}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def reference_page() -> str:
    """Returns the page of the public names, in the order of `unisono.__all__`, and of the command."""
    lines = ["# Reference", "", "Written by `make docs` from the docstrings.", ""]
    for name in unisono.__all__:
        thing = getattr(unisono, name)
        if inspect.isclass(thing):
            lines += _class(name, thing)
        elif callable(thing):
            lines += [f"## `unisono.{name}{_signature(thing)}`", "", *_docstring(thing), ""]
    lines += ["## The command", ""]
    for command in (["unisono"], ["unisono", "run"]):
        lines += ["```text", f"$ {' '.join(command)} --help", *_help(command[1:]), "```", ""]
    return "\n".join(lines).rstrip() + "\n"


def _class(name: str, cls: type) -> Iterator[str]:
    bases = [base.__name__ for base in cls.__bases__ if base is not object]
    yield f"## `unisono.{name}`"
    yield ""
    if issubclass(cls, Exception):
        yield f"*An exception; also a {' and a '.join(f'`{base}`' for base in bases)}.*"
        yield ""
    else:
        yield "```text"
        yield from _call(f"unisono.{name}", cls)
        yield "```"
        yield ""
    yield from _docstring(cls)
    yield ""
    if issubclass(cls, Exception):
        return
    for attribute, value in sorted(_members(cls)):
        if isinstance(value, property):
            yield f"### `{name}.{attribute}`"
            documented: object = value.fget
        elif callable(value):
            yield f"### `{name}.{attribute}{_signature(value)}`"
            documented = value
        else:
            yield f"- `{name}.{attribute}`"
            continue
        yield ""
        yield from _docstring(documented)
        yield ""


def _members(cls: type) -> Iterator[tuple[str, object]]:
    members = getattr(cls, "__members__", None)
    if members:
        yield from members.items()
        return
    for base in reversed(cls.__mro__):
        if base.__module__.split(".")[0] != "unisono":
            continue
        for attribute, value in vars(base).items():
            if attribute.startswith("_"):
                continue
            if isinstance(value, property | staticmethod | classmethod) or inspect.isfunction(value):
                yield attribute, vars(cls).get(attribute, value)


def _signature(thing: Callable[..., object] | staticmethod[..., object] | classmethod[..., ..., object]) -> str:
    inner = getattr(thing, "__func__", thing)
    signature = inspect.signature(inner)
    parameters = [each for each in signature.parameters.values() if each.name not in ("self", "cls")]
    bare = [each.replace(annotation=inspect.Parameter.empty) for each in parameters]
    return str(signature.replace(parameters=bare, return_annotation=inspect.Signature.empty))


def _call(name: str, cls: type) -> Iterator[str]:
    try:
        text = f"{name}{_signature(cls)}"
    except ValueError:
        text = name
    if len(text) <= 100:
        yield text
        return
    yield f"{name}("
    yield from (
        f"    {each.replace(annotation=inspect.Parameter.empty)},"
        for each in inspect.signature(cls).parameters.values()
    )
    yield ")"


def _docstring(thing: object) -> Iterator[str]:
    """Turns a docstring with Args, Returns and Raises into Markdown."""
    section = ""
    for line in (inspect.getdoc(thing) or "").splitlines():
        head = re.fullmatch(rf"({'|'.join(SECTIONS)}):", line)
        if head:
            section = head.group(1)
            yield f"**{section}**"
            yield ""
        elif not line.startswith(" ") and line:
            section = ""
            yield line
        elif section in ("Args", "Raises", "Attributes") and (item := re.fullmatch(r"    ([\w*, .]+): (.*)", line)):
            yield f"- `{item.group(1)}`: {item.group(2)}"
        elif section:
            yield textwrap.dedent(line) if section in ("Returns", "Yields") else f"  {line.strip()}".rstrip()
        else:
            yield line


def _help(arguments: list[str]) -> list[str]:
    command = [sys.executable, "-m", "unisono", *arguments, "--help"]
    variables = env.snapshot() | {"COLUMNS": "100", "NO_COLOR": "1"}
    output = subprocess.run(command, check=True, capture_output=True, text=True, env=variables, timeout=60).stdout
    return output.rstrip().splitlines()


PAGES: dict[str, Callable[[], str]] = {"environment.md": environment_page, "reference.md": reference_page}


def main() -> int:
    """Writes or checks the pages; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if a page is stale")
    check = parser.parse_args().check
    stale = 0
    for name, page in PAGES.items():
        path, text = HERE / name, page()
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale += 1
        if check:
            print(f"docs/{name} is stale\nHint: make docs")
        else:
            path.write_text(text, encoding="utf-8")
            print(f"docs/{name} written")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
