"""Pure arithmetic of files: which of them, or which range of each, belongs to which worker."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Piece:
    """A range of one file.

    Args:
        file: Index of the file.
        start: First unit (byte, row group, record).
        stop: The unit after the last.
    """

    file: int
    start: int
    stop: int


def whole_files(sizes: Sequence[int | None], workers: int) -> list[list[int]]:
    """Shares out whole files so that workers get about the same amount.

    The largest file goes first, each to the worker that has least so far (longest processing time first: Graham,
    "Bounds on Multiprocessing Timing Anomalies", 1969). Files of one size are dealt round: 0, 1, 2, 0, 1, 2.

    Args:
        sizes: Size of each file in any unit. If one is not known (None), all count the same.
        workers: How many.

    Returns:
        For each worker the indices of its files, ascending.
    """
    known = [size for size in sizes if size is not None]
    weights = known if len(known) == len(sizes) else [1] * len(sizes)
    load = [(0, 0, worker) for worker in range(workers)]
    mine: list[list[int]] = [[] for _ in range(workers)]
    for file in sorted(range(len(weights)), key=lambda i: (-weights[i], i)):
        total, count, worker = heapq.heappop(load)
        mine[worker].append(file)
        heapq.heappush(load, (total + weights[file], count + 1, worker))
    return [sorted(files) for files in mine]


def ranges(sizes: Sequence[int], rank: int, workers: int) -> list[Piece]:
    """Cuts all files, laid end to end, into equal ranges, and returns those of one worker.

    The ranges of all workers cover every unit of every file exactly once.

    Args:
        sizes: Number of units of each file.
        rank: The worker.
        workers: How many.
    """
    total = sum(sizes)
    start, stop = total * rank // workers, total * (rank + 1) // workers
    found = []
    at = 0
    for file, size in enumerate(sizes):
        first, last = max(start, at) - at, min(stop, at + size) - at
        if first < last:
            found.append(Piece(file, first, last))
        at += size
    return found


def uneven(amounts: Sequence[int]) -> tuple[int, float] | None:
    """Returns the worker that gets much more than the average, if there is one.

    Args:
        amounts: What each worker gets, in any unit.

    Returns:
        Its rank and how many times the average it gets, from 1.25 times on; else None.
    """
    total = sum(amounts)
    if not total:
        return None
    most = max(range(len(amounts)), key=lambda rank: amounts[rank])
    times = amounts[most] * len(amounts) / total
    return (most, times) if times >= MUCH else None


MUCH = 1.25
"""Times the average from which a worker is named: it makes the others wait for a fifth of the epoch."""
