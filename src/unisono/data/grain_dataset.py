"""Grain's `MapDataset`, `IterDataset` and `DataLoader`, on any Keras backend.

Grain draws every random number from seeds in the pipeline itself, so all workers see the same batches. Where batches
are made last, of examples that can be read by their index (`MapDataset...batch(n)`, also with `to_iter_dataset()`
behind it), a worker reads its own examples only. Otherwise each reads the batches whole and takes its slice; a
pipeline that was sharded by process already yields different batches then, which the fingerprints show.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import grain

from unisono.data import batches, shard
from unisono.data.base import Part, Source
from unisono.data.grain_private import Batching, batching
from unisono.data.whole import WholeSource
from unisono.errors import ConfigurationError

_WHERE = "The grain data set"


def grain_source(dataset: Any, *, rank: int, size: int) -> Source:
    """Returns the source for a Grain data set.

    Args:
        dataset: Yields `x`, `(x, y)` or `(x, y, sample_weight)`, batched.
        rank: This worker.
        size: Number of workers.
    """
    found = batching(dataset) if size > 1 else None
    return GrainSource(dataset, rank=rank, size=size) if found is None else IndexedGrainSource(found, rank, size)


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


class IndexedGrainSource(Source):
    """Global batches of examples that have an index; each worker reads its slice only.

    Args:
        batching: How batches are made.
        rank: This worker.
        size: Number of workers.
    """

    num_batches = None

    def __init__(self, batching: Batching, rank: int, size: int) -> None:
        self._batching = batching
        self._rank = rank
        self._size = size
        self._example: tuple[Any, ...] | None = None

    def epoch(self) -> Iterator[Part]:
        """One full pass; see `Source.epoch`."""
        last = self._batching.count - 1
        mine = self._batching.count if last < 0 or len(self._rows(last)) else last
        own = grain.MapDataset.source(_Slices(self, mine))
        loaded = iter(own.to_iter_dataset(self._batching.read_options))
        for batch in range(self._batching.count):
            total, local = self._total(batch), len(self._rows(batch))
            if not local:
                yield Part(None, 0, total)
                continue
            data, bare = batches.as_data(next(loaded))
            yield Part(batches.to_host(data, _WHERE), local, total, 0, bare)

    def batch(self, batch: int) -> Any:
        """Returns this worker's part of a global batch."""
        return self._batching.join([self._batching.examples[i] for i in self._rows(batch)])

    def _total(self, batch: int) -> int:
        size = self._batching.size
        return min(size, len(self._batching.examples) - batch * size)

    def _rows(self, batch: int) -> range:
        mine = shard.slice_of(self._total(batch), self._rank, self._size)
        return range(batch * self._batching.size + mine.start, batch * self._batching.size + mine.stop)

    def sample(self) -> tuple[Any, ...]:
        """Returns one example."""
        if self._example is None:
            if not self._batching.count:
                raise ConfigurationError(f"{_WHERE} yields no batch at all.")
            data, _ = batches.as_data(self._batching.join([self._batching.examples[0]]))
            self._example = batches.to_host(data, _WHERE)
        return self._example

    def describe(self) -> str:
        """Returns one line for the log."""
        return f"grain MapDataset: {self._batching.count:,} global batches; this worker reads only its own examples"


class _Slices:
    """The batches of one worker, in the form that Grain reads.

    Args:
        source: Makes them.
        count: How many hold an example of this worker.
    """

    def __init__(self, source: IndexedGrainSource, count: int) -> None:
        self._source = source
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, batch: int) -> Any:
        return self._source.batch(batch)
