"""torch DataLoader: each worker loads only its own examples, as the user's loader would."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    RandomSampler,
    Sampler,
    Subset,
)

from minutes import Minutes, Worker, in_turn
from unisono.data.select import make_source
from unisono.errors import ConfigurationError


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


class Augmented(Rows):
    def __getitem__(self, i: Any) -> tuple[torch.Tensor, Any]:
        return torch.rand(2) + np.random.rand() + i, int(i)


@pytest.mark.parametrize("kind", [Rows, Augmented])
def test_a_glance_is_alike_though_random_numbers_are_not(kind: Any):
    first = make_source(DataLoader(kind(), batch_size=2), rank=0, size=2, agreement=Minutes().worker(0)).glance()
    torch.rand(3), np.random.rand()
    second = make_source(DataLoader(kind(), batch_size=2), rank=1, size=2, agreement=Minutes().worker(0)).glance()
    assert first is not None and second is not None and first.is_like(second)
    assert not first.certain


def test_a_glance_shows_that_the_script_gives_each_worker_a_part():
    one, other = (
        make_source(
            DataLoader(Subset(Rows(), range(rank, 10, 2)), batch_size=2), rank=0, size=2, agreement=Minutes().worker(0)
        ).glance()
        for rank in range(2)
    )
    assert one is not None and other is not None and one.form == other.form and not one.is_like(other)


@pytest.mark.parametrize("as_batches", [False, True])
def test_a_sampler_that_shares_the_data_out_by_itself_is_refused(as_batches: bool):
    rows = Rows()
    sampler: Any = DistributedSampler(rows, num_replicas=2, rank=0)
    loader = (
        DataLoader(rows, batch_sampler=BatchSampler(sampler, 2, False))
        if as_batches
        else DataLoader(rows, 2, sampler=sampler)
    )
    with pytest.raises(ConfigurationError, match=r"DistributedSampler.*(.|\n)*leave the sampler out"):
        make_source(loader, rank=0, size=2, agreement=Minutes().worker(0))
    # What one worker makes for itself is its own affair.
    assert make_source(loader, rank=0, size=1, agreement=Minutes().worker(0)).num_batches == 3
