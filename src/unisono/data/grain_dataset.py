"""Grain's `MapDataset`, `IterDataset` and `DataLoader`, on any Keras backend.

Grain draws every random number from seeds in the pipeline itself, so all workers see the same batches: each reads
them whole and takes its slice. A pipeline that was sharded by process already yields different batches, which the
fingerprints show.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from unisono.data.base import Part
from unisono.data.whole import WholeSource
from unisono.errors import ConfigurationError

_WHERE = "The grain data set"


class GrainSource(WholeSource):
    """Global batches from a Grain data set; as in stock Keras, their number is not known beforehand.

    Args:
        dataset: Yields `x`, `(x, y)` or `(x, y, sample_weight)`, batched.
        rank: This worker.
        size: Number of workers.
    """

    num_batches = None

    def __init__(self, dataset: Any, *, rank: int, size: int) -> None:
        super().__init__(_WHERE, rank, size)
        self._dataset = dataset

    def epoch(self) -> Iterator[Part]:
        """One full pass; see `Source.epoch`."""
        for element in self._dataset:
            yield self._part(element)

    def _first(self) -> Any:
        first = list(itertools.islice(iter(self._dataset), 1))
        if not first:
            raise ConfigurationError(f"{_WHERE} yields no batch at all.")
        return first[0]

    def describe(self) -> str:
        """Returns one line for the log."""
        shared = "" if self._size == 1 else "; every worker reads them whole and takes its slice"
        return f"grain {type(self._dataset).__name__} of global batches{shared}"
