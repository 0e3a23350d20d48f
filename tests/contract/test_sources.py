"""One suite over every kind of data: each example once per epoch, the same global batches for any number of workers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import grain
import keras
import numpy as np
import pandas
import pytest
import scipy.sparse
import tensorflow as tf
import torch

from minutes import Worker, in_turn
from unisono.data.base import Source
from unisono.data.select import make_source

N, BATCH = 23, 6
X = np.arange(N, dtype="float32")[:, None] + np.zeros((1, 3), "float32")
Y = np.arange(N, dtype="int64")


def chunks() -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for start in range(0, N, BATCH):
        yield X[start : start + BATCH], Y[start : start + BATCH]


class Batches(keras.utils.PyDataset):
    """Batches by index, optionally of rows shuffled without a seed after each epoch."""

    def __init__(self, reshuffled: bool = False, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.order = np.arange(N)
        self.reshuffled = reshuffled

    def __len__(self) -> int:
        return math.ceil(N / BATCH)

    def __getitem__(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        rows = self.order[k * BATCH : (k + 1) * BATCH]
        return X[rows], Y[rows]

    def on_epoch_begin(self) -> None:
        if self.reshuffled:
            np.random.shuffle(self.order)


class Streamed(torch.utils.data.IterableDataset):  # type: ignore[misc]
    """Examples one by one, in an order drawn without a seed."""

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.int64]]:
        for i in torch.randperm(N).tolist():
            yield X[i], Y[i]


class Rows:
    """A random-access source for Grain."""

    def __len__(self) -> int:
        return N

    def __getitem__(self, i: int) -> tuple[np.ndarray, np.int64]:
        return X[i], Y[i]


def shuffled_generator() -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for _ in range(2):
        order = np.random.permutation(N)
        for start in range(0, N, BATCH):
            rows = order[start : start + BATCH]
            yield X[rows], Y[rows]


def examples() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((X, Y))


def loader(**arguments: Any) -> torch.utils.data.DataLoader:
    data = torch.utils.data.TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))
    return torch.utils.data.DataLoader(data, **{"batch_size": BATCH, **arguments})


def grain_loader() -> grain.DataLoader:
    sampler = grain.samplers.IndexSampler(N, grain.sharding.NoSharding(), shuffle=True, num_epochs=1, seed=3)
    return grain.DataLoader(
        data_source=Rows(), sampler=sampler, operations=[grain.transforms.Batch(BATCH, drop_remainder=False)]
    )


ARRAYS: dict[str, Any] = {"y": Y, "batch_size": BATCH}
SOURCES: dict[str, Callable[[], dict[str, Any]]] = {
    "numpy": lambda: {"x": X, **ARRAYS},
    "numpy shuffled": lambda: {"x": X, "shuffle": True, **ARRAYS},
    "numpy shuffled in batches": lambda: {"x": X, "shuffle": "batch", **ARRAYS},
    "nested": lambda: {"x": {"a": X, "b": [X, None]}, "shuffle": True, **ARRAYS},
    "strided": lambda: {"x": np.asfortranarray(X), "shuffle": True, **ARRAYS},
    "pandas": lambda: {"x": pandas.DataFrame(X), "y": pandas.Series(Y), "batch_size": BATCH, "shuffle": True},
    "torch tensors": lambda: {"x": torch.from_numpy(X), "y": torch.from_numpy(Y), "batch_size": BATCH},
    "tf tensors": lambda: {"x": tf.constant(X), "y": tf.constant(Y), "batch_size": BATCH, "shuffle": True},
    "scipy": lambda: {"x": scipy.sparse.csr_matrix(X), "shuffle": True, **ARRAYS},
    "py_dataset": lambda: {"x": Batches()},
    "py_dataset shuffled": lambda: {"x": Batches(), "shuffle": True},
    "py_dataset reshuffled": lambda: {"x": Batches(reshuffled=True)},
    "py_dataset threads": lambda: {"x": Batches(workers=2, max_queue_size=3), "shuffle": True},
    "generator": lambda: {"x": (b for _ in range(2) for b in chunks())},
    "generator unseeded": lambda: {"x": shuffled_generator()},
    "tf.data": lambda: {"x": examples().batch(BATCH)},
    "tf.data shuffled": lambda: {"x": examples().shuffle(N).batch(BATCH)},
    "tf.data seeded": lambda: {"x": examples().shuffle(N, seed=3).batch(BATCH)},
    "tf.data shuffled twice": lambda: {"x": examples().shuffle(9).cache().shuffle(N).batch(BATCH).prefetch(2)},
    "tf.data out of order": lambda: {
        "x": tf.data.Dataset.range(0, 24, 6)
        .shuffle(4)
        .interleave(
            lambda i: examples().skip(i).take(6).shuffle(6), num_parallel_calls=2, deterministic=False, cycle_length=2
        )
        .batch(BATCH)
    },
    "tf.data random values": lambda: {
        "x": examples().shuffle(N).map(lambda x, y: (x + 0 * tf.random.uniform(()), y), tf.data.AUTOTUNE).batch(BATCH)
    },
    "tf.data from generator": lambda: {
        "x": tf.data.Dataset.from_generator(
            lambda: zip(X, Y, strict=True),
            output_signature=(tf.TensorSpec((3,), tf.float32), tf.TensorSpec((), tf.int64)),
        )
        .shuffle(N)
        .batch(BATCH)
    },
    "torch": lambda: {"x": loader()},
    "torch shuffled": lambda: {"x": loader(shuffle=True)},
    "torch batches of their own": lambda: {
        "x": loader(batch_size=None, sampler=torch.utils.data.BatchSampler(torch.randperm(N).tolist(), BATCH, False))
    },
    "torch streamed": lambda: {"x": torch.utils.data.DataLoader(Streamed(), batch_size=BATCH)},
    "grain map": lambda: {"x": grain.MapDataset.source(Rows()).shuffle(seed=3).batch(BATCH)},
    "grain map, read": lambda: {"x": grain.MapDataset.source(Rows()).shuffle(seed=3).batch(BATCH).to_iter_dataset()},
    "grain iter": lambda: {"x": grain.MapDataset.source(Rows()).to_iter_dataset().batch(BATCH)},
    "grain loader": lambda: {"x": grain_loader()},
}
ONE_PASS_ORDER_FREE_ALONE = {
    name for name in SOURCES if name.startswith("tf.data") and name not in ("tf.data", "tf.data seeded")
}
"""Alone, nothing is agreed: a pipeline without seeds runs as it is."""
EARLY = {"tf.data random values"}
"""Each worker's functions run on its own examples only, which it takes in turn."""


def read(kind: str, size: int, peek: bool = False) -> list[list[list[Any]]]:
    """Returns what each worker sees: `[rank][epoch][batch]`, a part with its examples as a list of ids."""

    def work(rank: int, size: int, agreement: Worker) -> list[list[Any]]:
        source: Source = make_source(**SOURCES[kind](), rank=rank, size=size, agreement=agreement)
        if peek:
            source.sample()
        epochs = []
        for _ in range(2):
            source.on_epoch_begin()
            parts = list(source.epoch())
            source.on_epoch_end()
            if kind.startswith("generator"):
                half = len(parts) // 2
                return [parts[:half], parts[half:]]
            epochs.append(parts)
        return epochs

    return in_turn(size, work)


def ids(part: Any) -> list[int]:
    if part.data is None:
        return []
    x, y = part.data
    labels = np.asarray(y).reshape(-1).tolist()
    for leaf in keras.tree.flatten(x):
        if leaf is not None:
            leaf = tf.sparse.to_dense(leaf) if isinstance(leaf, tf.SparseTensor) else leaf
            assert np.asarray(leaf)[:, 0].tolist() == labels
    return labels


@pytest.fixture(scope="module")
def alone() -> dict[str, list[list[list[int]]]]:
    return {}


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("kind", SOURCES)
def test_each_example_once_and_the_same_global_batches(kind: str, size: int, alone: dict[str, Any]) -> None:
    workers = read(kind, size)
    seen = []
    for epoch in range(2):
        batches = list(zip(*(w[epoch] for w in workers), strict=True))
        assert len(batches) == math.ceil(N / BATCH)
        for parts in batches:
            if kind not in EARLY or size == 1:
                assert {p.total for p in parts} == {sum(p.local for p in parts)}
            assert all(p.local == len(ids(p)) for p in parts)
            assert max(p.local for p in parts) - min(p.local for p in parts) <= 1
            assert len({p.fingerprint for p in parts}) == 1
        seen.append([[i for p in parts for i in ids(p)] for parts in batches])
        assert sorted(i for batch in seen[-1] for i in batch) == list(range(N))
    if "shuffled" in kind or "unseeded" in kind or "out of order" in kind:
        assert seen[0] != seen[1]
    if size == 1 and kind in ONE_PASS_ORDER_FREE_ALONE:
        return
    if kind in EARLY:
        seen = [[sorted(batch) for batch in epoch] for epoch in seen]
    assert seen == alone.setdefault(kind, seen)


@pytest.mark.parametrize("kind", SOURCES)
def test_a_sample_has_one_example_and_consumes_nothing(kind: str) -> None:
    def work(rank: int, size: int, agreement: Worker) -> Any:
        source = make_source(**SOURCES[kind](), rank=rank, size=size, agreement=agreement)
        source.on_epoch_begin()
        sample = source.sample()
        assert source.sample() is sample or kind in ARRAY_KINDS
        parts = list(source.epoch())
        with_data = next(p for p in parts if p.data is not None)
        shapes = [
            [None if a is None else (a.dtype, tuple(a.shape[1:])) for a in keras.tree.flatten(d)]
            for d in (sample, with_data.data)
        ]
        assert shapes[0] == shapes[1]
        return [ids(p) for p in parts]

    found = in_turn(2, work)
    first_epoch = [[i for p in parts for i in p] for parts in zip(*found, strict=True)]
    counts = 2 if kind.startswith("generator") else 1
    assert sorted(i for batch in first_epoch for i in batch) == sorted(list(range(N)) * counts)


ARRAY_KINDS = {"numpy", "numpy shuffled", "numpy shuffled in batches", "nested", "strided", "pandas", "torch tensors",
               "tf tensors", "scipy"}  # fmt: skip


@pytest.mark.parametrize("kind", SOURCES)
def test_an_epoch_is_lazy_and_can_be_left(kind: str) -> None:
    def work(rank: int, size: int, agreement: Worker) -> None:
        source = make_source(**SOURCES[kind](), rank=rank, size=size, agreement=agreement)
        assert source.describe()
        agreed = len(agreement._minutes)
        source.epoch()
        assert len(agreement._minutes) == agreed
        parts = source.epoch()
        next(parts)
        parts.close()  # type: ignore[attr-defined]

    in_turn(2, work)
