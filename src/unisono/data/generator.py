"""Python generators that yield global batches.

Rule: every worker runs its own generator and takes its slice of each batch it yields. A generator cannot be
indexed, so each worker does the whole work of making the batches; use a `keras.utils.PyDataset` or a
`tf.data.Dataset` to divide that. The generators must yield the same on all workers: those that draw from `random`,
`numpy.random` or `torch` without a seed do (see `randomness`); other differences show in the fingerprints.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

from unisono.data.base import Agreement, Part
from unisono.data.randomness import SharedRandomness
from unisono.data.whole import WholeSource
from unisono.errors import ConfigurationError

_WHERE = "The generator"


class GeneratorSource(WholeSource):
    """Global batches from a Python generator; it can be read once, so a second epoch goes on where the first stopped.

    Args:
        generator: Yields tuples `(x,)`, `(x, y)` or `(x, y, sample_weight)`.
        rank: This worker.
        size: Number of workers.
        agreement: How workers agree on the random numbers the generator draws.
    """

    num_batches = None

    def __init__(self, generator: Generator[Any, Any, Any], *, rank: int, size: int, agreement: Agreement) -> None:
        super().__init__(_WHERE, rank, size)
        self._generator = generator
        self._random = SharedRandomness(size, agreement)
        self._peeked: list[Any] = []

    def epoch(self) -> Iterator[Part]:
        """Whatever the generator still yields; see `Source.epoch`."""
        while True:
            try:
                element = self._peeked.pop() if self._peeked else self._next()
            except StopIteration:
                return
            yield self._part(element)

    def _next(self) -> Any:
        with self._random():
            element = next(self._generator)
        if not isinstance(element, tuple):
            raise ConfigurationError(
                f"{_WHERE} yielded {type(element).__name__}; a tuple is needed.",
                remedy="yield (x,), (x, y) or (x, y, sample_weight).",
            )
        return element

    def _first(self) -> Any:
        """Draws the first batch and keeps it for the epoch; collective."""
        if not self._peeked:
            try:
                self._peeked.append(self._next())
            except StopIteration:
                raise ConfigurationError(f"{_WHERE} yields no batch at all.") from None
        return self._peeked[0]

    def describe(self) -> str:
        """Returns one line for the log."""
        shared = "" if self._size == 1 else "; every worker runs its own and takes its slice of each batch"
        return f"Python generator of global batches{shared}"
