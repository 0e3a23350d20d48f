"""The contract of an engine: what the workers do together with arrays.

All workers call the same operations in the same order on the same channel; an operation returns when its
result is complete. Arrays are NumPy arrays in host memory. The result of `all_reduce` is bit-identical on all
workers. Operations of one channel must not overlap, save those that `begin_all_reduce` has begun; different channels
are independent of each other, also from different threads.

Any operation may raise, on every worker that waits in it:
    WorkerLostError, WorkerFailedError: another worker is gone; the channel is unusable from then on.
    CollectiveTimeoutError: another worker did not arrive in time.
"""

from __future__ import annotations

import abc
import enum
from typing import Protocol

import numpy as np

from unisono.errors import UnisonoError


class ReduceOp(enum.Enum):
    """How values of several workers become one."""

    SUM = "sum"
    MAX = "max"
    MIN = "min"


class Watch(Protocol):
    """Told by an engine that it waits; ends the wait by raising."""

    def waiting(self, operation: str, seconds: float) -> None:
        """Called about every 50 ms while an operation waits for others.

        Args:
            operation: Name of the operation and its channel, for messages.
            seconds: Seconds waited so far in this operation.

        Raises:
            UnisonoError: To leave the wait.
        """

    def arrived(self, channel: str, count: int) -> None:
        """Called when this worker enters its `count`-th operation of `channel`; must cost next to nothing."""

    def returned(self, channel: str, count: int) -> None:
        """Called when this worker is about to wait for an operation that it entered before others."""


class Begun(Protocol):
    """An all-reduce under way."""

    def result(self) -> np.ndarray:
        """Waits for it, and returns the array that was given, now holding the sums."""


class Collectives(abc.ABC):
    """One ordered channel between all workers of the job."""

    rank: int
    size: int

    @abc.abstractmethod
    def all_reduce(self, array: np.ndarray, op: ReduceOp = ReduceOp.SUM) -> np.ndarray:
        """Combines the arrays of all workers element by element.

        Args:
            array: Contiguous array; same shape and dtype on all workers; float64, float32, integers or bool.
                It is overwritten with the result.
            op: How to combine.

        Returns:
            `array` itself, now holding the result.
        """

    @abc.abstractmethod
    def begin_all_reduce(self, array: np.ndarray) -> Begun:
        """Begins to add up the arrays of all workers, without waiting for anyone.

        It counts as an operation of the channel at this point. Other operations may follow before its result is
        taken; the result need not be taken at all.

        Args:
            array: As in `all_reduce`, of at most a few kilobytes; not to be touched until the result is there.
        """

    @abc.abstractmethod
    def all_gather(self, array: np.ndarray) -> list[np.ndarray]:
        """Brings every worker's array to every worker.

        Args:
            array: Same dtype and number of dimensions on all workers; shapes may differ.

        Returns:
            The arrays in the order of ranks.
        """

    @abc.abstractmethod
    def broadcast(self, array: np.ndarray, root: int = 0) -> np.ndarray:
        """Overwrites `array` on all workers with the one of worker `root`.

        Args:
            array: Contiguous and writable; same shape and dtype on all workers.
            root: Rank whose values win.

        Returns:
            `array` itself.
        """

    @abc.abstractmethod
    def barrier(self) -> None:
        """Returns when all workers have called it."""

    @abc.abstractmethod
    def channel(self, name: str) -> Collectives:
        """Opens an independent channel between the same workers; a collective call itself."""

    @abc.abstractmethod
    def close(self) -> None:
        """Ends the channel in good order; after a lost worker it returns at once and frees what it can."""

    def abandon(self, error: UnisonoError) -> None:
        """Gives up this channel and all its siblings on this worker, without waiting for anyone.

        Args:
            error: Raised by every operation from now on, also by those that wait in other threads.
        """
