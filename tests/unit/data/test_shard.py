"""Index arithmetic: every example once, contiguous, balanced."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unisono.data import shard
from unisono.errors import ConfigurationError


def sizes(total: int, size: int) -> list[int]:
    return [len(range(total)[shard.slice_of(total, rank, size)]) for rank in range(size)]


def test_r29_earlier_workers_get_the_larger_part():
    assert sizes(6, 3) == [2, 2, 2]
    assert sizes(1, 3) == [1, 0, 0]
    assert sizes(5, 3) == [2, 2, 1]


@given(st.integers(0, 10_000), st.integers(1, 64))
def test_slices_are_contiguous_balanced_and_cover_the_batch(total: int, size: int):
    slices = [shard.slice_of(total, rank, size) for rank in range(size)]
    assert slices[0].start == 0 and slices[-1].stop == total
    assert all(a.stop == b.start for a, b in itertools.pairwise(slices))
    lengths = [s.stop - s.start for s in slices]
    assert max(lengths) - min(lengths) <= 1
    assert lengths == sorted(lengths, reverse=True)


@given(st.integers(0, 10_000), st.integers(1, 500))
def test_batches_hold_all_examples_and_none_is_empty(examples: int, batch_size: int):
    count = shard.num_batches(examples, batch_size)
    assert (count - 1) * batch_size < examples <= count * batch_size or examples == count == 0


@pytest.mark.parametrize("batch_size", [0, -1])
def test_a_batch_needs_examples(batch_size: int):
    with pytest.raises(ConfigurationError, match="batch_size"):
        shard.num_batches(10, batch_size)


@given(st.integers(0, 2000), st.integers(0, 2**63 - 1))
def test_a_permutation_is_one_and_depends_on_the_seed_only(examples: int, seed: int):
    order = shard.permutation(examples, seed)
    assert order.dtype == np.int32
    assert sorted(order.tolist()) == list(range(examples))
    assert np.array_equal(order, shard.permutation(examples, seed))


def test_the_stream_of_a_seed_is_the_same_everywhere():
    assert shard.permutation(8, 7).tolist() == GOLDEN


GOLDEN = [0, 6, 7, 2, 4, 5, 1, 3]
