"""`keras.utils.PyDataset`: batches by index, made by threads or processes if the data set asks for them.

Every worker calls `dataset[k]` and takes its slice. Code of the data set that runs in this process (the hooks, and
`__getitem__` unless it runs in threads or processes of its own) draws its random numbers from one shared stream, so
that the usual unseeded shuffle in `on_epoch_end` is the same on all workers. The fingerprint covers the targets
only: augmenting inputs at random is fine, another order is not.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any

import numpy as np

from unisono.data import batches, class_weights, shard
from unisono.data.base import Agreement, Part
from unisono.data.randomness import SharedRandomness
from unisono.data.whole import WholeSource
from unisono.errors import ConfigurationError

_WHERE = "PyDataset.__getitem__()"


class PyDatasetSource(WholeSource):
    """Global batches from a `PyDataset`.

    Args:
        dataset: The data set; its `workers`, `use_multiprocessing` and `max_queue_size` are honoured.
        shuffle: Whether to shuffle the order of its batches each epoch; ignored if it is infinite.
        class_weight: Weight of each class, by label.
        rank: This worker.
        size: Number of workers.
        agreement: Gives the seed of each epoch's order.
    """

    def __init__(
        self,
        dataset: Any,
        *,
        shuffle: bool = False,
        class_weight: dict[int, float] | None = None,
        rank: int,
        size: int,
        agreement: Agreement,
    ) -> None:
        super().__init__(_WHERE, rank, size)
        self._dataset = dataset
        self._shuffle = bool(shuffle) and dataset.num_batches is not None
        self._class_weight = class_weight
        self._agreement = agreement
        self._random = SharedRandomness(size, agreement)
        self._pool: _Pool | None = None
        workers = dataset.workers
        if workers > 1 or (workers > 0 and dataset.use_multiprocessing):
            self._pool = _Pool(dataset, workers, dataset.use_multiprocessing, dataset.max_queue_size)

    @property
    def num_batches(self) -> int | None:  # type: ignore[override]
        """Global batches per epoch, asked anew each time, as a data set may change between epochs."""
        count: int | None = self._dataset.num_batches
        return count

    def epoch(self) -> Iterator[Part]:
        """One full pass; see `Source.epoch`."""
        count = self.num_batches
        indices: Iterable[int] = itertools.count() if count is None else range(count)
        if count is not None and self._shuffle:
            indices = shard.permutation(count, self._agreement.seed()).tolist()
        self._random.begin()
        for element in self._read(indices):
            yield self._part(self._checked(element))

    def _mark(self, data: tuple[Any, ...]) -> int:
        return batches.fingerprint(data[1:] or data)

    def _read(self, indices: Iterable[int]) -> Iterator[Any]:
        if self._pool is not None:
            yield from self._pool.read(indices)
            return
        for k in indices:
            with self._random():
                element = self._dataset[k]
            yield element

    def _checked(self, element: Any) -> Any:
        if isinstance(element, dict):
            return element
        if isinstance(element, np.ndarray):
            element = (element,)
        if isinstance(element, list):
            element = tuple(element)
        if not isinstance(element, tuple) or len(element) not in (1, 2, 3):
            raise ConfigurationError(
                f"{_WHERE} returned {type(element).__name__} ({str(element)[:80]}).",
                remedy="return (x,), (x, y) or (x, y, sample_weight), or a dict of inputs.",
            )
        if self._class_weight is not None and len(element) > 1:
            element = class_weights.weigh(batches.to_host(element, _WHERE), self._class_weight)
        return element

    def _first(self) -> Any:
        """Makes batch 0; collective."""
        if self.num_batches == 0:
            raise ConfigurationError("The PyDataset has no batches: its length is 0.")
        with self._random():
            return self._checked(self._dataset[0])

    def describe(self) -> str:
        """Returns one line for the log."""
        count = "no end of" if self.num_batches is None else f"{self.num_batches:,}"
        shared = "" if self._size == 1 else "; every worker makes each batch and takes its slice"
        return f"PyDataset: {count} global batches{shared}"

    def on_epoch_begin(self) -> None:
        """Calls the data set's hook; collective the first time."""
        with self._random():
            self._dataset.on_epoch_begin()

    def on_epoch_end(self) -> None:
        """Ends threads and processes, so that the next epoch's see a changed data set, and calls the hook."""
        if self._pool is not None:
            self._pool.pause()
        with self._random():
            self._dataset.on_epoch_end()


class _Pool:
    """Threads or processes that make batches ahead, in order, at most `limit` of them."""

    def __init__(self, dataset: Any, workers: int, processes: bool, limit: int) -> None:
        self._dataset = dataset
        self._workers = workers
        self._processes = processes
        self._limit = max(1, limit)
        self._executor: Executor | None = None
        self._pending: deque[tuple[int, Future[Any]]] = deque()

    def read(self, indices: Iterable[int]) -> Iterator[Any]:
        """Yields the batches of `indices`; closing the iterator ends threads and processes."""
        ahead = iter(indices)
        self._pending.clear()
        try:
            while True:
                executor = self._start()
                while len(self._pending) < self._limit:
                    k = next(ahead, None)
                    if k is None:
                        break
                    self._pending.append((k, self._submit(executor, k)))
                if not self._pending:
                    return
                yield self._pending.popleft()[1].result()
        finally:
            self._pending.clear()
            self.pause()

    def pause(self) -> None:
        """Ends threads and processes; batches not yet taken are made again when reading goes on."""
        executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(wait=True, cancel_futures=True)

    def _start(self) -> Executor:
        if self._executor is None:
            if self._processes:
                # Started as Keras does (fork on Linux), or spawned ones would run the user's script again.
                self._executor = ProcessPoolExecutor(self._workers, initializer=_serve, initargs=(self._dataset,))
            else:
                self._executor = ThreadPoolExecutor(self._workers, thread_name_prefix="unisono-pydataset")
            self._pending = deque((k, self._submit(self._executor, k)) for k, _ in self._pending)
        return self._executor

    def _submit(self, executor: Executor, k: int) -> Future[Any]:
        if self._processes:
            return executor.submit(_serve_batch, k)
        return executor.submit(self._dataset.__getitem__, k)


_served: Any = None


def _serve(dataset: Any) -> None:
    """Keeps the data set in a process of the pool."""
    global _served
    _served = dataset


def _serve_batch(k: int) -> Any:
    return _served[k]
