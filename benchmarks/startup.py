"""Time from the start of a process to the end of its first training step, against plain Keras.

    python benchmarks/startup.py            prints a table in Markdown

One plain process, one process with a strategy for itself, and two workers take turns; each process has one core. Of
two workers the later one counts.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from itertools import pairwise
from statistics import median

import team
from report import Section, render, table

BACKENDS = ("tensorflow", "jax", "torch")
REPEATS = 3
SECONDS = 300.0
PHASES = ("keras", "strategy", "step")
HEADS = ("", "first step done after (s)", "to plain (s)", "import keras", "seed, strategy", "build, compile, 1 step")
PLAIN, ALONE, TWO = "plain Keras", "Unisono, alone", "Unisono, 2 workers"


def once(backend: str, name: str) -> tuple[float, ...]:
    """Returns seconds from the start to the first step, then of each phase.

    Args:
        backend: "tensorflow", "jax" or "torch".
        name: What is started: PLAIN, ALONE or TWO.
    """
    script = "startup_worker.py"
    spec = {"backend": backend, "kind": "plain" if name == PLAIN else "unisono"}
    with team.workers(script, spec, 2) if name == TWO else team.plain(script, spec) as running:
        answers = running.answers(SECONDS)
        began = min(member.began for member in running.members)
        last = {mark: max(answer[mark] for answer in answers) for mark in answers[0]}
    marks = [last["python"], *(last[phase] for phase in PHASES)]
    return last["step"] - began, *(after - before for before, after in pairwise(marks))


def measure(backend: str, repeats: int) -> dict[str, tuple[float, ...]]:
    """Returns, by what was started, the medians of what `once` returns.

    Args:
        backend: "tensorflow", "jax" or "torch".
        repeats: How often each is started.
    """
    found: dict[str, list[tuple[float, ...]]] = {PLAIN: [], ALONE: [], TWO: []}
    for _ in range(repeats):
        for name, times in found.items():
            times.append(once(backend, name))
    return {name: tuple(map(median, zip(*times, strict=True))) for name, times in found.items()}


def section(quick: bool, backends: Sequence[str] = BACKENDS) -> Section:
    """Returns the measurement as a part of the results.

    Args:
        quick: Whether one start of each is enough.
        backends: Which backends.
    """
    rows, faults = [], []
    for backend in backends:
        print(f"startup: {backend} ...", file=sys.stderr, flush=True)
        try:
            found = measure(backend, 1 if quick else REPEATS)
        except team.TeamError as error:
            faults.append(f"startup, {backend}: {error}")
            continue
        for name, (total, *phases) in found.items():
            over = f"{total - found[PLAIN][0]:+.2f}"
            rows.append((f"{backend}: {name}", f"{total:.2f}", over, *(f"{seconds:.2f}" for seconds in phases)))
    return Section("Start: from the process to the first step of the MLP", table(HEADS, rows), faults=tuple(faults))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backends", nargs="+", choices=BACKENDS, default=BACKENDS)
    parser.add_argument("--quick", action="store_true", help="start each once")
    options = parser.parse_args()
    print(render(section(options.quick, options.backends)))


if __name__ == "__main__":
    main()
