"""`torch.utils.data.DataLoader`, on any Keras backend.

Map-style data sets are divided at the source: the chief's batch sampler says which examples each global batch holds,
in the chief's order, and every worker loads only its slice of each batch, through a DataLoader like the user's
(`num_workers`, `collate_fn`, `pin_memory` and the rest). `collate_fn` therefore sees a slice: padding to the
longest example is to the longest of the slice.

Iterable-style data sets cannot be indexed: every worker reads them whole, with the chief's random state, and takes
its slice of each batch; fingerprints show differences. With `batch_size=None` each element counts as a global batch
and is read whole as well.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import keras
import numpy as np
import torch
from torch.utils import data as torch_data

from unisono import log
from unisono.data import batches, shard
from unisono.data.base import Agreement, Glance, Part, Source
from unisono.data.randomness import SharedRandomness, preserved, seeded
from unisono.data.whole import WholeSource
from unisono.errors import ConfigurationError

_WHERE = "The torch DataLoader"
_CHUNK = 4096
"""Global batches whose indices the chief sends at once."""


def torch_source(loader: Any, *, rank: int, size: int, agreement: Agreement) -> Source:
    """Returns the source for a DataLoader.

    Args:
        loader: The user's DataLoader; it yields global batches.
        rank: This worker.
        size: Number of workers.
        agreement: Brings the chief's index lists, or its random state, to all.
    """
    if size > 1:
        _refuse_shares(loader)
    if size == 1 or loader.batch_sampler is None or isinstance(loader.dataset, torch_data.IterableDataset):
        return WholeLoaderSource(loader, rank=rank, size=size, agreement=agreement)
    log.once(
        "torch DataLoader",
        "torch DataLoader: the chief's sampler decides which examples each global batch holds; every worker loads "
        "only its own.",
    )
    return MapLoaderSource(loader, rank=rank, size=size, agreement=agreement)


class MapLoaderSource(Source):
    """Global batches from a map-style data set; each worker loads only its slice.

    Args:
        loader: A DataLoader over a data set with `__getitem__`, with batches.
        rank: This worker.
        size: Number of workers.
        agreement: Brings the chief's index lists to all.
    """

    def __init__(self, loader: Any, *, rank: int, size: int, agreement: Agreement) -> None:
        self._loader = loader
        self._rank = rank
        self._size = size
        self._agreement = agreement
        self._sampler = _Slices()
        self._mine = _like(loader, batch_sampler=self._sampler)
        self._example: tuple[Any, ...] | None = None

    @property
    def num_batches(self) -> int | None:  # type: ignore[override]
        """Global batches per epoch; None if the sampler does not know."""
        return _length(self._loader)

    def epoch(self) -> Iterator[Part]:
        """One full pass; see `Source.epoch`."""
        plan = _Plan(self._loader.batch_sampler, self._rank, self._agreement)
        batches_of_all = plan.entries()
        self._sampler.source = plan.slices(self._rank, self._size)
        loaded = iter(self._mine)
        try:
            for indices in batches_of_all:
                share = shard.slice_of(len(indices), self._rank, self._size)
                local = share.stop - share.start
                if local:
                    data, bare = batches.as_data(next(loaded))
                    yield Part(batches.to_host(data, _WHERE), local, len(indices), 0, bare)
                else:
                    yield Part(None, 0, len(indices))
        finally:
            self._sampler.source = ()
            del loaded

    def sample(self) -> tuple[Any, ...]:
        """Returns one example, loaded in this process."""
        if self._example is None:
            with preserved():
                index = _first_index(self._loader.batch_sampler)
                # Random augmentation shall draw the same on all workers, so that their examples can be compared.
                seeded(0)
                data, _ = batches.as_data(self._loader.collate_fn([self._loader.dataset[index]]))
            self._example = batches.to_host(data, _WHERE)
        return self._example

    def glance(self) -> Glance:
        """Returns the number of examples and one of them."""
        arrays = [np.asarray(a).reshape(-1) for a in keras.tree.flatten(self.sample()) if a is not None]
        few = tuple(a[:: max(1, a.size // 64)] for a in arrays)
        return Glance(f"{len(self._loader.dataset):,} examples", few, certain=False)

    def describe(self) -> str:
        """Returns one line for the log."""
        count = "an unknown number of" if self.num_batches is None else f"{self.num_batches:,}"
        return f"torch DataLoader: {count} global batches; this worker loads only its own slice"


class WholeLoaderSource(WholeSource):
    """Global batches that every worker reads whole from its DataLoader.

    Args:
        loader: Any DataLoader.
        rank: This worker.
        size: Number of workers.
        agreement: Brings the chief's random state, and its order of a map-style data set, to all.
    """

    def __init__(self, loader: Any, *, rank: int, size: int, agreement: Agreement) -> None:
        super().__init__(_WHERE, rank, size)
        self._loader = loader
        self._agreement = agreement
        self._random = SharedRandomness(size, agreement)
        self._sampler = _Slices()
        self._indexed = size > 1 and not isinstance(loader.dataset, torch_data.IterableDataset)
        self._mine = _like(loader, batch_size=None, sampler=self._sampler) if self._indexed else loader
        self._begun: tuple[list[Any], Iterator[Any]] | None = None

    @property
    def num_batches(self) -> int | None:  # type: ignore[override]
        """Global batches per epoch; None if the data set does not know."""
        return _length(self._loader)

    def epoch(self) -> Iterator[Part]:
        """One full pass; see `Source.epoch`."""
        first, begun = self._begin() if self._begun is None else self._begun
        self._begun = None
        for element in itertools.chain(first, self._rest(begun)):
            yield self._part(element)

    def _begin(self) -> tuple[list[Any], Iterator[Any]]:
        self._random.begin()
        if self._indexed:
            self._sampler.source = _Plan(self._loader.sampler, self._rank, self._agreement).entries()
        with self._random():
            begun = iter(self._mine)
            return list(itertools.islice(begun, 1)), begun

    def _rest(self, begun: Iterator[Any]) -> Iterator[Any]:
        while True:
            with self._random():
                element = next(begun, _END)
            if element is _END:
                return
            yield element

    def _first(self) -> Any:
        """Begins the next epoch and returns its first batch; collective."""
        if self._begun is None:
            self._begun = self._begin()
        if not self._begun[0]:
            raise ConfigurationError(f"{_WHERE} yields no batch at all.")
        return self._begun[0][0]

    def describe(self) -> str:
        """Returns one line for the log."""
        shared = "" if self._size == 1 else "; every worker reads them whole and takes its slice"
        return f"torch DataLoader of global batches{shared}"


def _refuse_shares(loader: Any) -> None:
    for sampler in (loader.sampler, getattr(loader.batch_sampler, "sampler", None), loader.batch_sampler):
        if isinstance(sampler, torch_data.DistributedSampler) and sampler.num_replicas > 1:
            raise ConfigurationError(
                f"{_WHERE} has a DistributedSampler, which gives each worker a part of the data; Unisono takes each "
                "worker's part of what a DataLoader yields, so the rest would be lost.",
                remedy="leave the sampler out (shuffle=True is fine), with the global batch size; or, for data that "
                "each worker shares out by itself, use strategy.distribute_datasets_from_function.",
            )


_END = object()


class _Slices(torch_data.Sampler[Any]):  # type: ignore[misc]
    """What this worker's DataLoader is told to load; set anew for each epoch."""

    def __init__(self) -> None:
        self.source: Iterable[Any] = ()

    def __iter__(self) -> Iterator[Any]:
        return iter(self.source)


class _Plan:
    """What the chief's sampler yields, fetched in chunks by whichever reader needs the next one first."""

    def __init__(self, sampler: Any, rank: int, agreement: Agreement) -> None:
        self._chief = iter(sampler) if rank == 0 else None
        self._agreement = agreement
        self._known: dict[int, Any] = {}
        self._fetched = 0
        self._ended = False
        self._readers: list[int] = []

    def entries(self) -> Iterator[Any]:
        """Returns a reader of all that the sampler yields: lists of indices, or single ones.

        All readers of a plan are made before the first one reads: what all have read is forgotten.
        """
        self._readers.append(0)
        return self._read(len(self._readers) - 1)

    def slices(self, rank: int, size: int) -> Iterator[Any]:
        """Returns a reader of this worker's part of each global batch that has one for it."""
        parts = (batch[shard.slice_of(len(batch), rank, size)] for batch in self.entries())
        return (part.tolist() if isinstance(part, np.ndarray) else part for part in parts if len(part))

    def _read(self, reader: int) -> Iterator[Any]:
        for k in itertools.count():
            if not self._have(k):
                return
            entry = self._known[k]
            self._readers[reader] = k + 1
            if min(self._readers) > k:
                del self._known[k]
            yield entry

    def _have(self, k: int) -> bool:
        while k >= self._fetched and not self._ended:
            chunk = None if self._chief is None else [_packed(b) for b in itertools.islice(self._chief, _CHUNK)]
            chunk = self._agreement.from_chief(chunk)
            self._known.update(enumerate(chunk, self._fetched))
            self._fetched += len(chunk)
            self._ended = len(chunk) < _CHUNK
        return k < self._fetched


def _packed(batch: Any) -> Any:
    """Returns a list of integers as an array, which is sent in fewer bytes; anything else as it is."""
    if isinstance(batch, list | tuple) and all(type(i) is int for i in batch):
        return np.asarray(batch, dtype=np.int64)
    return batch


def _like(loader: Any, **what: Any) -> Any:
    """Returns a DataLoader that differs from the user's only in what it loads."""
    return torch_data.DataLoader(
        loader.dataset,
        num_workers=loader.num_workers,
        collate_fn=loader.collate_fn,
        pin_memory=loader.pin_memory,
        timeout=loader.timeout,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
        generator=loader.generator,
        prefetch_factor=loader.prefetch_factor,
        persistent_workers=loader.persistent_workers,
        **what,
    )


def _first_index(sampler: Any) -> Any:
    """Returns an index the sampler may give, without drawing from the generators of torch's own samplers."""
    inner = getattr(sampler, "sampler", sampler)
    if isinstance(inner, torch_data.SequentialSampler | torch_data.RandomSampler | torch_data.WeightedRandomSampler):
        return 0
    if isinstance(inner, torch_data.SubsetRandomSampler):
        return inner.indices[0]
    first = next(iter(sampler))
    return first[0] if isinstance(first, list | tuple | np.ndarray | torch.Tensor) else first


def _length(loader: Any) -> int | None:
    if not hasattr(loader.dataset, "__len__"):
        return None
    try:
        return len(loader)
    except TypeError:
        return None
