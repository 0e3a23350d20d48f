"""torch DataLoader: each worker loads only its own examples, as the user's loader would."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, RandomSampler, Sampler

from minutes import Worker, in_turn
from unisono.data.select import make_source


class Rows(Dataset):  # type: ignore[misc]
    """Row i is i; remembers what was loaded."""

    def __init__(self, n: int = 11) -> None:
        self.n = n
        self.loaded: list[Any] = []

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: Any) -> tuple[torch.Tensor, Any]:
        self.loaded.append(i)
        return torch.full((2,), float(i)), int(i)


def read(build: Any, size: int = 2, epochs: int = 2) -> list[Any]:
    """Returns the global batches of each epoch as lists of labels."""

    def work(rank: int, size: int, agreement: Worker) -> Any:
        source = make_source(build(rank), rank=rank, size=size, agreement=agreement)
        source.sample()
        return [list(source.epoch()) for _ in range(epochs)]

    workers = in_turn(size, work)
    for parts in zip(*(p for w in workers for p in w), strict=False):
        assert len({p.total for p in parts}) == 1
    return [
        [
            [i for p in parts if p.data for i in p.data[1].tolist()]
            for parts in zip(*(w[e] for w in workers), strict=True)
        ]
        for e in range(epochs)
    ]


@pytest.mark.parametrize("size", [2, 3])
def test_only_my_examples_are_loaded(size: int) -> None:
    data = [Rows() for _ in range(size)]
    (epoch,) = read(lambda rank: DataLoader(data[rank], batch_size=4, shuffle=True), size, epochs=1)
    assert sorted(i for b in epoch for i in b) == list(range(11))
    loaded = [sorted(d.loaded[1:]) for d in data]
    assert sum(len(part) for part in loaded) == 11
    assert all(len(part) <= 11 // size + 2 for part in loaded)


def test_a_worker_without_examples_loads_nothing() -> None:
    data = [Rows(1), Rows(1)]
    assert read(lambda rank: DataLoader(data[rank], batch_size=4), epochs=1) == [[[0]]]
    assert len(data[1].loaded) == 1  # the sample


def test_a_sampler_of_the_users_own_is_the_chiefs() -> None:
    class Private(Sampler):  # type: ignore[misc]
        """Has random numbers of its own, others on each worker; yields batches of keys."""

        def __init__(self, seed: int) -> None:
            self.rng = np.random.default_rng(seed)

        def __iter__(self) -> Iterator[list[str]]:
            order = [str(i) for i in self.rng.permutation(11)]
            return (order[i : i + 4] for i in range(0, 11, 4))

    epochs = read(lambda rank: DataLoader(Rows(), batch_sampler=Private(rank)))
    assert all(sorted(i for b in epoch for i in b) == list(range(11)) for epoch in epochs)
    assert epochs[0] != epochs[1]


def test_an_endless_sampler_is_read_bit_by_bit() -> None:
    class Endless(Sampler):  # type: ignore[misc]
        def __iter__(self) -> Iterator[list[int]]:
            while True:
                yield [0, 1, 2]

    def work(rank: int, size: int, agreement: Worker) -> Any:
        source = make_source(DataLoader(Rows(), batch_sampler=Endless()), rank=rank, size=size, agreement=agreement)
        assert source.num_batches is None
        parts = source.epoch()
        found = [next(parts).data[1].tolist() for _ in range(3)]
        parts.close()  # type: ignore[attr-defined]
        return found

    assert in_turn(2, work) == [[[0, 1]] * 3, [[2]] * 3]


def test_a_sample_does_not_move_torchs_generators() -> None:
    own = torch.Generator().manual_seed(3)
    rows = Rows()

    def work(rank: int, size: int, agreement: Worker) -> None:
        loader = DataLoader(rows, batch_size=4, sampler=RandomSampler(rows, generator=own))
        before = own.get_state(), torch.get_rng_state()
        make_source(loader, rank=rank, size=size, agreement=agreement).sample()
        assert torch.equal(before[0], own.get_state()) and torch.equal(before[1], torch.get_rng_state())

    in_turn(2, work)
