"""Several workers of one job, one after the other in this process, without an engine.

The chief goes first and its agreements are written down; the others read them back in order. A worker that agrees
on more, on less or on something else than the chief did fails the test.
"""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from typing import Any

import numpy as np


class Minutes:
    """What was agreed, in order."""

    def __init__(self, seed: int = 1) -> None:
        self._next_seed = seed
        self._lines: list[tuple[str, bytes]] = []

    def worker(self, rank: int) -> Worker:
        return Worker(rank, self)

    def chief_says(self, verb: str, value: object) -> Any:
        self._lines.append((verb, pickle.dumps(value)))
        return value

    def fresh_seed(self) -> int:
        self._next_seed += 1
        return self._next_seed

    def line(self, at: int) -> tuple[str, Any]:
        verb, value = self._lines[at]
        return verb, pickle.loads(value)

    def __len__(self) -> int:
        return len(self._lines)


class Worker:
    """The agreement one worker is given."""

    def __init__(self, rank: int, minutes: Minutes) -> None:
        self.rank = rank
        self.memory: dict[str, Any] = {}
        self._minutes = minutes
        self._read = 0

    def seed(self) -> int:
        return self._agree("seed", self._minutes.fresh_seed() if self.rank == 0 else None)

    def from_chief(self, value: object) -> Any:
        return self._agree("from_chief", value)

    def _agree(self, verb: str, value: object) -> Any:
        if self.rank == 0:
            return self._minutes.chief_says(verb, value)
        assert self._read < len(self._minutes), f"worker {self.rank} agrees once more than the chief ({verb})"
        said, agreed = self._minutes.line(self._read)
        assert said == verb, f"worker {self.rank} asks for {verb} where the chief asked for {said}"
        self._read += 1
        return agreed

    def finish(self) -> None:
        assert self.rank == 0 or self._read == len(self._minutes), f"worker {self.rank} agreed less than the chief"


def in_turn(size: int, work: Callable[[int, int, Worker], Any], seed: int = 1, *, strict: bool = True) -> list[Any]:
    """Runs `work(rank, size, agreement)` for each rank, each with random states of its own as in separate processes.

    `strict` says whether all must agree on as much as the chief did.
    """
    minutes = Minutes(seed)
    results = []
    before = random.getstate(), np.random.get_state()
    try:
        for rank in range(size):
            # World size must not matter, so the chief begins with the same state in each.
            random.seed(1000 + rank)
            np.random.seed(1000 + rank)
            _seed_torch(1000 + rank)
            worker = minutes.worker(rank)
            results.append(work(rank, size, worker))
            if strict:
                worker.finish()
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])
    return results


def _seed_torch(seed: int) -> None:
    import sys

    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(seed)
