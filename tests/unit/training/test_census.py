"""The census of an epoch: the same for any order and any number of workers, another for other examples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from unisono.data.base import Part
from unisono.training.census import Census, hashes
from unit.training.workers import together

X = np.random.default_rng(0).random((20, 3), np.float32)
NAMES = np.array([f"name {i}" for i in range(20)], object)


def census(order: list[int], size: int) -> tuple[int, int]:
    def work(channel: Any) -> tuple[int, int]:
        found = Census(channel)
        mine = order[channel.rank :: size]
        for some in (mine[:3], mine[3:]):
            found.add(Part(({"x": X[some], "n": NAMES[some]}, np.array(some)), len(some), None))
        found.add(None)
        return found.close_epoch()

    results = together(size, work)
    assert all(each == results[0] for each in results)
    return results[0]


@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_same_examples_in_any_order(size: int) -> None:
    right = census(list(range(20)), 1)
    assert right[0] == 20
    assert census(np.random.default_rng(size).permutation(20).tolist(), size) == right


@pytest.mark.parametrize(
    "order",
    [[*range(19), 0], [*range(19)], [*range(20), 3, 3], [0, 0, 2, 2, *range(4, 20)]],
    ids=["one for another", "one left out", "one three times", "two twice"],
)
def test_other_examples(order: list[int]) -> None:
    assert census(order, 2) != census(list(range(20)), 2)


def test_rows_that_share_their_values_have_other_hashes() -> None:
    rows = np.array([[1.0, 2.0], [2.0, 1.0], [0.0, 3.0], [3.0, 0.0], [1.0, 2.0]], np.float32)
    found = hashes((rows,)).tolist()
    assert len(set(found)) == 4 and found[0] == found[4]
    assert len(set(hashes((np.arange(1000, dtype=np.int16)[:, None],)).tolist())) == 1000
    assert len(set(hashes((np.arange(1000) % 2 == 0, np.arange(1000))).tolist())) == 1000
