"""Peak of memory of a worker, against one plain Keras process, for a model whose gradients count.

    python benchmarks/memory.py            prints a table in Markdown

The peak is the kernel's VmHWM after two epochs. Two workers; the one with the higher peak counts.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from statistics import median

import team
from report import Section, Target, render, table

BACKENDS = ("tensorflow", "jax", "torch")
REPEATS = 3
SECONDS = 300.0
COPIES, MORE = 3, 60.0
"""What a worker may hold beyond a plain process: copies of the gradients, and MB."""
MB = 1e6


def measure(backend: str, repeats: int) -> tuple[float, float, float]:
    """Returns the medians of the peaks of a plain process and of a worker, and the gradients' size, all in MB.

    Args:
        backend: "tensorflow", "jax" or "torch".
        repeats: How often.
    """
    script = "memory_worker.py"
    plain, ours, gradients = [], [], 0.0
    for _ in range(repeats):
        with team.plain(script, {"backend": backend, "kind": "plain"}) as running:
            (alone,) = running.answers(SECONDS)
        with team.workers(script, {"backend": backend, "kind": "unisono"}, 2) as running:
            both = running.answers(SECONDS)
        plain.append(alone["peak"] / MB)
        ours.append(max(each["peak"] for each in both) / MB)
        gradients = alone["gradients"] / MB
    return median(plain), median(ours), gradients


def section(quick: bool, backends: Sequence[str] = BACKENDS) -> Section:
    """Returns the measurement as a part of the results.

    Args:
        quick: Whether one run of each is enough.
        backends: Which backends.
    """
    rows, targets, faults = [], [], []
    for backend in backends:
        print(f"memory: {backend} ...", file=sys.stderr, flush=True)
        try:
            plain, ours, gradients = measure(backend, 1 if quick else REPEATS)
        except team.TeamError as error:
            faults.append(f"memory, {backend}: {error}")
            continue
        rows.append((backend, f"{plain:.0f}", f"{ours:.0f}", f"{ours - plain:+.0f}", f"{gradients:.0f}"))
        limit = plain + COPIES * gradients + MORE
        what = f"memory, {backend}: peak of a worker (plain process + {COPIES} x gradients + {MORE:.0f} MB)"
        targets.append(Target(what, ours, round(limit), unit="MB"))
    head = ("", "plain process (MB)", "worker (MB)", "more (MB)", "gradients (MB)")
    return Section("Memory: peak of a worker", table(head, rows), tuple(targets), tuple(faults))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backends", nargs="+", choices=BACKENDS, default=BACKENDS)
    parser.add_argument("--quick", action="store_true", help="run each once")
    options = parser.parse_args()
    print(render(section(options.quick, options.backends)))


if __name__ == "__main__":
    main()
