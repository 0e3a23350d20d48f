"""Grain: a worker reads only its own examples where examples have an index."""

from __future__ import annotations

from typing import Any

import grain
import numpy as np
import pytest

from minutes import Worker, in_turn
from unisono.data.grain_private import batching
from unisono.data.select import make_source


class Rows:
    """Remembers which rows were read."""

    def __init__(self) -> None:
        self.read: list[int] = []

    def __len__(self) -> int:
        return 23

    def __getitem__(self, row: int) -> tuple[np.ndarray, int]:
        self.read.append(int(row))
        return np.full(2, row, "float32"), int(row)


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("drop", [False, True])
def test_a_worker_reads_only_its_own_examples(size: int, drop: bool) -> None:
    def work(rank: int, size: int, agreement: Worker) -> tuple[list[list[int]], list[int]]:
        rows = Rows()
        dataset = grain.MapDataset.source(rows).shuffle(seed=1).batch(5, drop_remainder=drop)
        source = make_source(dataset, rank=rank, size=size, agreement=agreement)
        assert "only its own" in source.describe()
        parts = list(source.epoch())
        assert [p.total for p in parts] == ([5] * 4 if drop else [5] * 4 + [3])
        return [[] if p.data is None else p.data[1].tolist() for p in parts], rows.read

    workers = in_turn(size, work)
    right = [b[1].tolist() for b in grain.MapDataset.source(Rows()).shuffle(seed=1).batch(5, drop_remainder=drop)]
    assert [[i for w, _ in workers for i in w[k]] for k in range(len(right))] == right
    for seen, read in workers:
        assert sorted(read) == sorted(i for batch in seen for i in batch)


def test_what_grain_keeps_to_itself_is_still_there() -> None:
    def join(rows: Any) -> Any:
        return np.stack([x for x, _ in rows])

    found = batching(grain.MapDataset.source(Rows()).batch(5, batch_fn=join).to_iter_dataset())
    assert found is not None and (found.size, found.count, found.join) == (5, 5, join)
    assert found.read_options is not None
    assert batching(grain.MapDataset.source(Rows()).to_iter_dataset().batch(5)) is None
    assert batching(grain.MapDataset.source(Rows()).batch(5).map(lambda rows: rows)) is None
