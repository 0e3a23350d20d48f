"""What sources have in common whose batches every worker reads whole, to take its slice of each."""

from __future__ import annotations

import abc
from typing import Any

from unisono.data import batches, shard
from unisono.data.base import Part, Source


class WholeSource(Source):
    """A source of whole global batches.

    Args:
        where: What yields the batches, for messages, e.g. "The generator".
        rank: This worker.
        size: Number of workers.
    """

    def __init__(self, where: str, rank: int, size: int) -> None:
        self._where = where
        self._rank = rank
        self._size = size
        self._example: tuple[Any, ...] | None = None

    @abc.abstractmethod
    def _first(self) -> Any:
        """Returns the first batch without consuming it; called before any epoch."""

    def _mark(self, data: tuple[Any, ...]) -> int:
        """Returns the fingerprint of a global batch."""
        return batches.fingerprint(data)

    def _part(self, element: Any) -> Part:
        """Cuts this worker's part out of one global batch."""
        data, bare = batches.as_data(element)
        ready = self._size == 1 and batches.is_ready(data)
        if not ready:
            data = batches.to_host(data, self._where)
        total = batches.rows(data, self._where)
        if self._example is None and total:
            self._example = batches.first_row(data, self._where)
        if ready:
            return Part(data, total, total, 0, bare)
        mine = shard.slice_of(total, self._rank, self._size)
        local = mine.stop - mine.start
        mark = self._mark(data) if self._size > 1 else 0
        return Part(batches.cut(data, mine) if local else None, local, total, mark, bare)

    def sample(self) -> tuple[Any, ...]:
        """Returns one example: of the first batch seen, or, before any epoch, of the batch that will be the first."""
        if self._example is None:
            data, _ = batches.as_data(self._first())
            self._example = batches.first_row(data, self._where)
        return self._example
