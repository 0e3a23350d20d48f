"""How lists of arrays are grouped for a broadcast."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from unisono.collectives import objects
from unisono.collectives.loopback import Alone
from unisono.errors import ConfigurationError

LIMIT = objects._PIECE_BYTES


@given(st.lists(st.integers(0, 3 * LIMIT), max_size=30))
def test_runs_keep_the_order_and_the_limit(sizes):
    runs = objects._runs(sizes)
    assert [index for run in runs for index in run] == list(range(len(sizes)))
    for run in runs:
        assert len(run) == 1 or sum(sizes[index] for index in run) <= LIMIT


def test_small_arrays_go_together_and_large_ones_alone():
    assert objects._runs([10, LIMIT // 2, LIMIT + 1, 5, LIMIT // 2, LIMIT // 2]) == [[0, 1], [2], [3, 4], [5]]


def test_arrays_that_cannot_be_overwritten_are_refused_before_anything_is_sent():
    with pytest.raises(ConfigurationError, match="broadcast_arrays works in place"):
        objects.broadcast_arrays(Alone(), [np.ones(3), np.ones((3, 3)).T[:, :2]])
