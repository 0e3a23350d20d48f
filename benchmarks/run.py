"""Runs all measurements and writes results.md, what falls short first, and the table of the README.

python benchmarks/run.py            about three quarters of an hour on two quiet cores
python benchmarks/run.py --quick    a few steps of everything, printed and not kept
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import os
import platform
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import allreduce
import input as reading
import memory
import startup
import step
from report import Section, Target, in_one_line, render, table, target_table

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results.md"
README = HERE.parent / "README.md"
BEGIN, END = "<!-- results:begin -->", "<!-- results:end -->"
PACKAGES = ("unisono", "keras", "tensorflow", "tensorflow-cpu", "tf-keras", "jax", "torch", "numpy", "mpi4py", "mpich")
QUICK_SIZES = (1, 1_000, 100_000)
ENGINE_OVER_RAW = 1.2
QUIET = 0.3
"""Load average a core above which other programs were at work when the measurements began."""


def all_reduce(quick: bool) -> Section:
    """Returns the measurement of the engine as a part of the results.

    Args:
        quick: Whether a few repetitions are enough.
    """
    print("all-reduce ...", file=sys.stderr, flush=True)
    rows = allreduce.measure(QUICK_SIZES, 0.1) if quick else allreduce.measure()
    targets = [
        Target(
            f"all-reduce of {row['floats']:,.0f} floats over raw MPI",
            row[allreduce.ENGINE] / row[allreduce.RAW],
            ENGINE_OVER_RAW,
        )
        for row in rows
        if row["floats"] >= 1000
    ]
    return Section("All-reduce of float32 between two workers", allreduce.markdown(rows), tuple(targets))


def machine() -> str:
    """Returns what everything was measured on, as a list in Markdown."""
    model = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        platform.machine(),
    )
    load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    noise = " **Other programs were at work: the numbers are not to be trusted.**" if load > QUIET * cores else ""
    memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    return "\n".join(
        [
            f"- {datetime.date.today():%d %B %Y}",
            f"- {model}, {cores} cores, of which two are used; {memory_gb:.0f} GB; Linux {platform.release()}",
            f"- load average before the first measurement: {load:.2f}.{noise}",
            f"- Python {platform.python_version()}, {', '.join(versions())}",
        ]
    )


def versions() -> list[str]:
    """Returns the names and versions of the packages that are there."""
    found = []
    for name in PACKAGES:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def document(sections: Sequence[Section], about: str) -> str:
    """Returns the whole of results.md.

    Args:
        sections: In order.
        about: The machine, in Markdown.
    """
    targets = [target for section in sections for target in section.targets]
    missed = [target for target in targets if not target.met]
    faults = [fault for section in sections for fault in section.faults]
    parts = ["# Measurements", "Written by `make bench`.", "## What falls short"]
    if faults:
        parts.append("\n".join(f"- {in_one_line(fault)}" for fault in faults))
    parts.append(target_table(missed) if missed else f"No target was missed; there are {len(targets)}.")
    parts += [
        "## Where and how",
        about,
        "Batch 64 a worker, one core a worker (four workers share two cores), `model.fit` on numpy arrays that Keras "
        "shuffles, global logs at the end of an epoch unless the line says otherwise. All lines of one table ran in "
        "one go and took turns at short epochs. Times are medians over the rounds, of the slowest process; ratios are "
        "medians over the rounds of the ratio within a round. The plain loop of torch makes the same model, loss and "
        "metric without Keras's `fit`, and its metric is not a global one.",
    ]
    return "\n\n".join([*parts, *map(render, sections)]) + "\n"


def front_page(sections: Sequence[Section], about: str) -> str:
    """Returns the table for the README.

    Args:
        sections: All of them; those with a headline are shown.
        about: The machine, in Markdown.
    """
    rows = [row for section in sections for row in section.headline]
    head = ("backend", "model", "plain Keras, 1 process", "Unisono, 2 workers", "stock way, 2 processes")
    cpu = about.splitlines()[1].removeprefix("- ")
    return (
        f"Milliseconds a step (and ratio to plain Keras), each process with one core and 64 examples a step; {cpu}. "
        "The stock ways are TensorFlow's MultiWorkerMirroredStrategy with legacy Keras, `keras.distribution` on JAX, "
        f"and DistributedDataParallel in a plain loop on torch. All of it: [results](benchmarks/results.md).\n\n"
        f"{table(head, rows)}"
    )


def put_on_front_page(text: str, page: str) -> str:
    """Returns the README with another table of results.

    Args:
        text: The README.
        page: What to put between its two marks.
    """
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise SystemExit(f"README.md has no place for results: {BEGIN} ... {END}")
    return f"{before}{BEGIN}\n{page}\n{END}{after}"


def tried(name: str, measurement: Callable[[], list[Section]]) -> list[Section]:
    """Runs a measurement; if it fails, that becomes a part of the results, and the others still run.

    Args:
        name: For the heading.
        measurement: Returns its parts of the results.
    """
    try:
        return measurement()
    except (OSError, RuntimeError, SystemExit) as error:
        return [Section(name, "Could not be measured.", faults=(f"{name}: {error}",))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a few steps of everything, printed and not kept")
    options = parser.parse_args()
    about = machine()
    sections = [
        *tried("Step", lambda: list(step.sections(options.quick))),
        *tried("All-reduce", lambda: [all_reduce(options.quick)]),
        *tried("Memory", lambda: [memory.section(options.quick)]),
        *tried("Start", lambda: [startup.section(options.quick)]),
        *tried("Input", lambda: list(reading.sections(options.quick))),
    ]
    text = document(sections, about)
    print(text)
    if not options.quick:
        RESULTS.write_text(text, encoding="utf-8")
        page = put_on_front_page(README.read_text(encoding="utf-8"), front_page(sections, about))
        README.write_text(page, encoding="utf-8")
    if any(section.faults for section in sections):
        sys.exit("Something went wrong; see the top of the results.")


if __name__ == "__main__":
    main()
