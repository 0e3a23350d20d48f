"""What all MPI channels of one process share: the library, the watch, the way to wait, and the first failure."""

from __future__ import annotations

import functools
import time
from typing import Any

import numpy as np

from unisono.collectives import patience
from unisono.collectives.base import Watch
from unisono.collectives.checks import REDUCIBLE
from unisono.collectives.fate import Fate
from unisono.errors import DivergenceError, UnisonoError, WorkerLostError

_NAME_SECONDS = 2.0
_REDUCE = 1 << 10
"""Number of the first reduction in the ledger."""


class MpiProcess:
    """MPI as the channels of this process use it.

    Args:
        mpi: The module `mpi4py.MPI`.
        watch: Asked while operations wait.
        owned: Whether MPI was started here, and must be ended here.
    """

    def __init__(self, mpi: Any, watch: Watch, owned: bool) -> None:
        self.mpi = mpi
        # Attributes, for to look up a member of an Enum costs as much as the rest of a small call.
        self.sums = _reductions(_REDUCE, mpi.SUM, mpi.LOR)
        self.maxima = _reductions(_REDUCE + 100, mpi.MAX, mpi.LOR)
        self.minima = _reductions(_REDUCE + 200, mpi.MIN, mpi.LAND)
        self.watch = watch
        self.manner = patience.CROWDED
        self.fate = Fate()
        self._owned = owned
        self._abandoned: list[Any] = []

    def complete(self, request: Any, memory: Any, operation: str, channel: str) -> None:
        """Waits for a request; `memory` is kept for as long as MPI may touch it."""
        try:
            if not request.Test():
                patience.wait(request.Test, functools.partial(self._ask, operation, channel), manner=self.manner)
        except self.mpi.Exception as problem:
            self._abandoned.append((request, memory))
            raise self._explain(problem, operation, channel) from problem
        except BaseException as problem:
            self._abandoned.append((request, memory))
            if isinstance(problem, UnisonoError):
                self.fate.end(problem)
            else:
                self.fate.end(UnisonoError(f"{operation} on channel {channel!r} was broken off: {problem!r}."))
            raise

    def finish(self) -> None:
        """Ends MPI if it was started here; all workers have come to this point."""
        self.fate.end(UnisonoError("The engine is closed."))
        if self._owned:
            self.mpi.Finalize()

    def _ask(self, operation: str, channel: str, seconds: float) -> None:
        self.fate.raise_if_over()
        self.watch.waiting(f"{operation} on channel {channel!r}", seconds)

    def _explain(self, problem: Any, operation: str, channel: str) -> UnisonoError:
        """Finds the error to raise for one that MPI reports; a lost peer is better named by the watch."""
        if problem.Get_error_class() == self.mpi.ERR_TRUNCATE:
            return self.fate.end(
                DivergenceError(
                    f"The workers brought arrays of different sizes to {operation} on channel {channel!r}.",
                    remedy="every worker must call the same operations with the same shapes and dtypes, in one order.",
                )
            )
        began = time.monotonic()
        try:
            while (seconds := time.monotonic() - began) < _NAME_SECONDS:
                self._ask(operation, channel, seconds)
                time.sleep(patience.ASK_EVERY)
        except UnisonoError as named:
            return self.fate.end(named)
        return self.fate.end(
            WorkerLostError(f"{operation} on channel {channel!r} failed: another worker is gone. MPI says: {problem}.")
        )


def _reductions(first: int, operation: Any, logical: Any) -> dict[np.dtype, tuple[int, Any]]:
    """Returns the number for the ledger and MPI's operator of each dtype."""
    return {dtype: (first + dtype.num, logical if dtype == np.bool_ else operation) for dtype in REDUCIBLE}
