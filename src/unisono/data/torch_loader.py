"""`torch.utils.data.DataLoader`, on any Keras backend.

Map-style data sets are divided at the source: the chief's batch sampler says which examples each global batch holds,
in the chief's order, and every worker loads only its slice of each batch, through a DataLoader like the user's
(`num_workers`, `collate_fn`, `pin_memory` and the rest). `collate_fn` therefore sees a slice: padding to the
longest example is to the longest of the slice.

Iterable-style data sets cannot be indexed: every worker reads them whole, with the chief's random state, and takes
its slice of each batch; fingerprints show differences. With `batch_size=None` each element counts as a global batch.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch.utils import data as torch_data

from unisono import log
from unisono.data import batches, shard
from unisono.data.base import Agreement, Part, Source
from unisono.data.randomness import SharedRandomness, preserved

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
    if isinstance(loader.dataset, torch_data.IterableDataset) or size == 1:
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
        loader: A DataLoader over a data set with `__getitem__`.
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
        self._mine = _like(loader, self._sampler)

    @property
    def num_batches(self) -> int | None:  # type: ignore[override]
        """Global batches per epoch; None if the sampler does not know."""
        return _length(self._loader)

    def epoch(self) -> Iterator[Part]:
        """One full pass; see `Source.epoch`."""
        whole = self._loader.batch_sampler is None
        plan = _Plan(self._loader.sampler if whole else self._loader.batch_sampler, self._rank, self._agreement)
        self._sampler.source = plan.mine(self._rank, self._size, whole)
        loaded = iter(self._mine)
        try:
            for batch in plan.batches():
                if whole:
                    part, _ = batches.part_of(next(loaded), self._rank, self._size, _WHERE)
                    yield part
                    continue
                share = shard.slice_of(len(batch), self._rank, self._size)
                local = share.stop - share.start
                if local == 0:
                    yield Part(None, 0, len(batch))
                    continue
                data, bare = batches.as_data(next(loaded))
                yield Part(batches.to_host(data, _WHERE), local, len(batch), 0, bare)
        finally:
            self._sampler.source = ()
            del loaded

    def sample(self) -> tuple[Any, ...]:
        """Returns one example, loaded in this process."""
        dataset = self._loader.dataset
        with preserved():
            if self._loader.batch_sampler is None:
                element = self._loader.collate_fn(dataset[_first_index(self._loader.sampler)])
            else:
                element = self._loader.collate_fn([dataset[_first_index(self._loader.batch_sampler)]])
        data, _ = batches.as_data(element)
        first: tuple[Any, ...] = batches.cut(batches.to_host(data, _WHERE), slice(0, 1))
        return first

    def describe(self) -> str:
        """Returns one line for the log."""
        count = "an unknown number of" if self.num_batches is None else f"{self.num_batches:,}"
        return f"torch DataLoader: {count} global batches; this worker loads only its own slice"


class WholeLoaderSource(Source):
    """Global batches that every worker reads whole from its DataLoader.

    Args:
        loader: Any DataLoader.
        rank: This worker.
        size: Number of workers.
        agreement: Brings the chief's random state to all.
    """

    def __init__(self, loader: Any, *, rank: int, size: int, agreement: Agreement) -> None:
        self._loader = loader
        self._rank = rank
        self._size = size
        self._random = SharedRandomness(size, agreement)
        self._begun: tuple[Any, Any] | None = None

    @property
    def num_batches(self) -> int | None:  # type: ignore[override]
        """Global batches per epoch; None if the data set does not know."""
        return _length(self._loader)

    def epoch(self) -> Iterator[Part]:
        """One full pass; see `Source.epoch`."""
        first, begun = self._begin() if self._begun is None else self._begun
        self._begun = None
        for element in itertools.chain(first, self._rest(begun)):
            part, whole = batches.part_of(element, self._rank, self._size, _WHERE)
            mark = batches.fingerprint(whole) if self._size > 1 else 0
            yield Part(part.data, part.local, part.total, mark, part.bare)

    def _begin(self) -> tuple[list[Any], Iterator[Any]]:
        with self._random():
            begun = iter(self._loader)
            return list(itertools.islice(begun, 1)), begun

    def _rest(self, begun: Iterator[Any]) -> Iterator[Any]:
        while True:
            with self._random():
                element = next(begun, _END)
            if element is _END:
                return
            yield element

    def sample(self) -> tuple[Any, ...]:
        """Returns one example of the first batch, which the next epoch will yield; collective."""
        if self._begun is None:
            self._begun = self._begin()
        data, _ = batches.as_data(self._begun[0][0])
        first: tuple[Any, ...] = batches.cut(batches.to_host(data, _WHERE), slice(0, 1))
        return first

    def describe(self) -> str:
        """Returns one line for the log."""
        shared = "" if self._size == 1 else "; every worker reads them whole and takes its slice"
        return f"torch DataLoader of global batches{shared}"


_END = object()


class _Slices(torch_data.Sampler[Any]):
    """What this worker's DataLoader is told to load; set anew for each epoch."""

    def __init__(self) -> None:
        self.source: Iterable[Any] = ()

    def __iter__(self) -> Iterator[Any]:
        return iter(self.source)


class _Plan:
    """The chief's index lists, fetched in chunks by whoever needs the next one first."""

    def __init__(self, sampler: Any, rank: int, agreement: Agreement) -> None:
        self._chief = iter(sampler) if rank == 0 else None
        self._agreement = agreement
        self._known: dict[int, Any] = {}
        self._fetched = 0
        self._ended = False

    def batches(self) -> Iterator[Any]:
        """Yields the indices of each global batch, and forgets them."""
        for k in itertools.count():
            if not self._have(k):
                return
            yield self._known.pop(k)

    def mine(self, rank: int, size: int, whole: bool) -> Iterator[Any]:
        """Yields what this worker loads: its part of each batch that has one for it, or everything."""
        for k in itertools.count():
            if not self._have(k):
                return
            batch = self._known[k]
            part = batch if whole else batch[shard.slice_of(len(batch), rank, size)]
            if whole or len(part):
                yield part.tolist() if isinstance(part, np.ndarray) else part

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


def _like(loader: Any, sampler: Any) -> Any:
    """Returns a DataLoader that differs from the user's only in what it loads."""
    what: dict[str, Any] = {"batch_sampler": sampler}
    if loader.batch_sampler is None:
        what = {"batch_size": None, "sampler": sampler}
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
