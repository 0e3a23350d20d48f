"""What happens to the rows of files on their way: shuffled, mapped, batched, repeated, read ahead.

Each stage makes a stream out of the one before it. A stream is begun with a `Lap`, which is all that its order
depends on, and closed like a generator; what runs behind it (threads) ends with it.
"""

from __future__ import annotations

import abc
import contextlib
import itertools
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from unisono.data import blocks


@dataclass(frozen=True, slots=True)
class Lap:
    """One pass over the files.

    Args:
        seed: For stages that were given none; the same on all workers.
        numbers: What else tells passes apart: the worker, the epoch, and the turn of each `repeat()`.
        local: Turns the size of a global batch into that of this worker's.
    """

    seed: int
    numbers: tuple[int, ...]
    local: Callable[[int], int]

    def random(self, seed: int | None, place: int) -> np.random.Generator:
        """Returns the random numbers of one stage.

        Args:
            seed: The user's, or None.
            place: Tells stages apart.
        """
        entropy = self.seed if seed is None else seed
        return np.random.Generator(np.random.PCG64(np.random.SeedSequence(entropy, spawn_key=(*self.numbers, place))))


_MAPPED = "The function of map()"
_END = object()

Start = Callable[[Lap], Iterator[Any]]


class Stage(abc.ABC):
    """One step of a pipeline."""

    @abc.abstractmethod
    def run(self, before: Start, lap: Lap) -> Iterator[Any]:
        """Yields what this stage makes of the stream before it.

        Args:
            before: Begins that stream.
            lap: The pass.
        """


@dataclass(frozen=True)
class Shuffle(Stage):
    """Draws rows at random out of a buffer that is kept full."""

    buffer_size: int
    seed: int | None
    place: int

    def run(self, before: Start, lap: Lap) -> Iterator[Any]:
        """See `Stage`."""
        random = lap.random(self.seed, self.place)
        with closing(before(lap)) as stream:
            filling: list[Any] = []
            missing = self.buffer_size
            while missing and (block := next(stream, None)) is not None:
                count = blocks.rows(block, _MAPPED)
                filling.append(blocks.take(block, slice(0, missing)))
                if count >= missing:
                    stream = itertools.chain([blocks.take(block, slice(missing, count))], stream)
                missing -= min(count, missing)
            size = self.buffer_size - missing
            if not size:
                return
            buffer = blocks.join(filling)
            del filling
            for block in stream:
                for start in range(0, blocks.rows(block, _MAPPED), size):
                    fresh = blocks.take(block, slice(start, start + size))
                    drawn = random.choice(size, blocks.rows(fresh, _MAPPED), replace=False)
                    rows = blocks.take(buffer, drawn)
                    buffer = blocks.put(buffer, drawn, fresh)
                    yield rows
            yield blocks.take(buffer, random.permutation(size))


@dataclass(frozen=True)
class Map(Stage):
    """Calls a function with each block or batch, in threads if there are several workers; the order is kept."""

    function: Callable[..., Any]
    workers: int

    def run(self, before: Start, lap: Lap) -> Iterator[Any]:
        """See `Stage`."""
        with closing(before(lap)) as stream:
            if self.workers == 1:
                for block in stream:
                    yield self._call(block)
                return
            pool = ThreadPoolExecutor(self.workers, thread_name_prefix="unisono-map")
            pending: deque[Future[Any]] = deque()
            try:
                for block in stream:
                    pending.append(pool.submit(self._call, block))
                    if len(pending) > self.workers:
                        yield pending.popleft().result()
                while pending:
                    yield pending.popleft().result()
            finally:
                pool.shutdown(wait=True, cancel_futures=True)

    def _call(self, block: Any) -> Any:
        return self.function(*block) if isinstance(block, tuple) else self.function(block)


@dataclass(frozen=True)
class Batch(Stage):
    """Cuts the stream into batches of the local size."""

    size: int
    drop_remainder: bool

    def run(self, before: Start, lap: Lap) -> Iterator[Any]:
        """See `Stage`."""
        size = lap.local(self.size)
        parts: list[Any] = []
        missing = size
        with closing(before(lap)) as stream:
            for block in stream:
                count = blocks.rows(block, _MAPPED)
                start = 0
                while count - start >= missing:
                    parts.append(blocks.take(block, slice(start, start + missing)))
                    start += missing
                    yield parts[0] if len(parts) == 1 else blocks.join(parts)
                    parts, missing = [], size
                if start < count:
                    parts.append(blocks.take(block, slice(start, count)))
                    missing -= count - start
            if parts and not self.drop_remainder:
                yield blocks.join(parts)


@dataclass(frozen=True)
class Repeat(Stage):
    """Begins the stream before it again and again."""

    count: int | None

    def run(self, before: Start, lap: Lap) -> Iterator[Any]:
        """See `Stage`."""
        for turn in itertools.count() if self.count is None else range(self.count):
            nothing = True
            with closing(before(replace(lap, numbers=(*lap.numbers, turn)))) as stream:
                for block in stream:
                    nothing = False
                    yield block
            if nothing:
                return


@dataclass(frozen=True)
class Prefetch(Stage):
    """Lets a thread make up to `count` elements ahead."""

    count: int

    def run(self, before: Start, lap: Lap) -> Iterator[Any]:
        """See `Stage`."""
        pool = ThreadPoolExecutor(1, thread_name_prefix="unisono-prefetch")
        with closing(before(lap)) as stream:
            try:
                pending = deque(pool.submit(next, stream, _END) for _ in range(self.count))
                while (element := pending.popleft().result()) is not _END:
                    pending.append(pool.submit(next, stream, _END))
                    yield element
            finally:
                pool.shutdown(wait=True, cancel_futures=True)


@contextlib.contextmanager
def closing(stream: Iterator[Any]) -> Iterator[Iterator[Any]]:
    """Closes a stream at the end, also when its user is closed."""
    try:
        yield stream
    finally:
        close = getattr(stream, "close", None)
        if close is not None:
            close()
