"""Engines inside one process: one worker alone, and several workers as threads."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np

from unisono.clock import Deadline
from unisono.collectives.base import Begun, Collectives, ReduceOp
from unisono.collectives.checks import check_in_place, check_plain, check_reducible, check_root
from unisono.collectives.fate import Fate
from unisono.errors import CollectiveTimeoutError, DivergenceError, UnisonoError

_COMBINE: dict[ReduceOp, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    ReduceOp.SUM: np.add,
    ReduceOp.MAX: np.maximum,
    ReduceOp.MIN: np.minimum,
}


class Alone(Collectives):
    """One worker: every operation is immediate."""

    rank = 0
    size = 1

    def __init__(self) -> None:
        self._fate = Fate()

    def all_reduce(self, array: np.ndarray, op: ReduceOp = ReduceOp.SUM) -> np.ndarray:
        """Returns the array as it is."""
        self._fate.raise_if_over()
        check_reducible(array)
        return array

    def begin_all_reduce(self, array: np.ndarray) -> Begun:
        """Has the result at once."""
        return _Begun(array, lambda: self.all_reduce(array))

    def all_gather(self, array: np.ndarray) -> list[np.ndarray]:
        """Returns a copy of the array."""
        self._fate.raise_if_over()
        check_plain(array, "all_gather")
        return [array.copy()]

    def broadcast(self, array: np.ndarray, root: int = 0) -> np.ndarray:
        """Returns the array as it is."""
        self._fate.raise_if_over()
        check_in_place(array, "broadcast")
        check_root(root, 1)
        return array

    def barrier(self) -> None:
        """Returns at once."""
        self._fate.raise_if_over()

    def channel(self, name: str) -> Collectives:
        """Returns itself."""
        self._fate.raise_if_over()
        return self

    def close(self) -> None:
        """Has nothing to free."""

    def abandon(self, error: UnisonoError) -> None:
        """Refuses all operations from now on."""
        self._fate.end(error)


def group(size: int, timeout: float) -> list[Collectives]:
    """Makes the channels of several workers that are threads of this process.

    Args:
        size: Number of workers, 1 or more.
        timeout: Seconds to wait in an operation for a worker that does not arrive.

    Returns:
        The channel of each worker in the order of ranks; each is to be used by a thread of its own.
    """
    table = _Table("main", size, timeout, threading.Condition(), Fate())
    return [Threads(table, rank) for rank in range(size)]


class Threads(Collectives):
    """A worker that is a thread; made by `group`."""

    def __init__(self, table: _Table, rank: int) -> None:
        self._table = table
        self.rank = rank
        self.size = table.size

    def all_reduce(self, array: np.ndarray, op: ReduceOp = ReduceOp.SUM) -> np.ndarray:
        """Combines the arrays in the order of ranks."""
        return self._begin(array, op).result()

    def begin_all_reduce(self, array: np.ndarray) -> Begun:
        """Brings an array to be added up."""
        return self._begin(array, ReduceOp.SUM)

    def _begin(self, array: np.ndarray, op: ReduceOp) -> Begun:
        check_reducible(array)

        def combine(arrays: list[np.ndarray]) -> np.ndarray:
            total = arrays[0].copy()
            for other in arrays[1:]:
                # In place through `out`, so that a 0-dimensional array stays one.
                _COMBINE[op](total, other, out=total)  # type: ignore[call-arg]
            return total

        call = ("all_reduce", op.value, array.shape, array.dtype.name)
        this = self._table.bring(self.rank, call, array, combine)
        return _Begun(array, lambda: self._table.result(this, "all_reduce"))

    def all_gather(self, array: np.ndarray) -> list[np.ndarray]:
        """Returns a copy of every worker's array."""
        check_plain(array, "all_gather")
        # A copy, for the caller may overwrite its array while others still read.
        parts = self._meet("all_gather", (array.ndim, array.dtype.name), array.copy(), list)
        return [part.copy() for part in parts]

    def broadcast(self, array: np.ndarray, root: int = 0) -> np.ndarray:
        """Overwrites the array with that of the root."""
        check_in_place(array, "broadcast")
        check_root(root, self.size)
        same = (root, array.shape, array.dtype.name)
        array[...] = self._meet("broadcast", same, array, lambda arrays: arrays[root].copy())
        return array

    def barrier(self) -> None:
        """Waits for all."""
        self._meet("barrier", (), None, len)

    def channel(self, name: str) -> Collectives:
        """Opens an independent channel."""
        mine = self._table

        def open_table(_: list[Any]) -> _Table:
            return _Table(name, mine.size, mine.timeout, mine.changed, mine.fate)

        return Threads(self._meet("channel", (name,), None, open_table), self.rank)

    def abandon(self, error: UnisonoError) -> None:
        """Ends the whole group."""
        self._table.abandon(error)

    def close(self) -> None:
        """Has nothing to free."""

    def _meet(self, operation: str, same: tuple[Any, ...], part: Any, combine: Callable[[list[Any]], Any]) -> Any:
        return self._table.result(self._table.bring(self.rank, (operation, *same), part, combine), operation)


class _Begun:
    """An all-reduce whose result goes into an array."""

    def __init__(self, array: np.ndarray, wait: Callable[[], np.ndarray]) -> None:
        self._array = array
        self._wait = wait

    def result(self) -> np.ndarray:
        """Waits for the sums."""
        self._array[...] = self._wait()
        return self._array


class _Round:
    """One operation: what each worker called and brought, and the result."""

    def __init__(self) -> None:
        self.calls: dict[int, tuple[Any, ...]] = {}
        self.parts: dict[int, Any] = {}
        self.result: Any = None
        self.done = False


class _Table:
    """Where the workers of one channel meet, one operation after another."""

    def __init__(self, name: str, size: int, timeout: float, changed: threading.Condition, fate: Fate) -> None:
        self.name = name
        self.size = size
        self.timeout = timeout
        self.changed = changed
        self.fate = fate
        self._counts = [0] * size
        self._rounds: dict[int, _Round] = defaultdict(_Round)

    def bring(self, rank: int, call: tuple[Any, ...], part: Any, combine: Callable[[list[Any]], Any]) -> _Round:
        """Brings one worker's part to its next round."""
        with self.changed:
            self.fate.raise_if_over()
            number = self._counts[rank]
            self._counts[rank] += 1
            this = self._rounds[number]
            this.calls[rank], this.parts[rank] = call, part
            if len(this.calls) == self.size:
                del self._rounds[number]
                self._complete(this, combine)
            return this

    def result(self, this: _Round, operation: str) -> Any:
        """Waits until all have brought theirs."""
        with self.changed:
            deadline = Deadline.after(self.timeout)
            while not this.done:
                # An operation that is complete returns its result even if the group has ended since.
                self.fate.raise_if_over()
                if not self.changed.wait(deadline.left) and not this.done and not self.fate.is_over:
                    raise self._end(_late(self, this, operation))
            return this.result

    def abandon(self, error: UnisonoError) -> None:
        with self.changed:
            self._end(error)

    def _complete(self, this: _Round, combine: Callable[[list[Any]], Any]) -> None:
        if len(set(this.calls.values())) > 1:
            raise self._end(_different(self, this))
        this.result = combine([this.parts[rank] for rank in range(self.size)])
        this.done = True
        self.changed.notify_all()

    def _end(self, error: UnisonoError) -> UnisonoError:
        self.changed.notify_all()
        return self.fate.end(error)


def _late(table: _Table, this: _Round, operation: str) -> CollectiveTimeoutError:
    missing = [rank for rank in range(table.size) if rank not in this.calls]
    return CollectiveTimeoutError(
        f"{', '.join(f'worker {rank}' for rank in missing)} did not arrive at {operation} on channel "
        f"{table.name!r} within {table.timeout:g} s.",
        rank=missing[0],
    )


def _different(table: _Table, this: _Round) -> DivergenceError:
    lines = [f"worker {rank} called {this.calls[rank]}" for rank in range(table.size)]
    return DivergenceError(f"The workers differ on channel {table.name!r}: {'; '.join(lines)}.")
