"""Numbers that travel with gradients arrive once, exactly, or not at all."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unisono.data.base import Part
from unisono.training.agreement import Statement, Verdict, decide
from unisono.training.rider import Rider

NUMBERS = np.arange(3)
FLOAT32, FLOAT64, INT64 = (np.dtype(name) for name in ("float32", "float64", "int64"))


def test_a_ticket_is_taken_once():
    rider = Rider()
    assert rider.board(FLOAT32) is None
    ticket = rider.load(NUMBERS)
    assert ticket.sums is None
    assert rider.board(FLOAT32) is ticket
    assert rider.board(FLOAT32) is None


@pytest.mark.parametrize("dtype", [INT64, np.dtype("float16")])
def test_it_waits_for_an_exchange_that_can_carry_it(dtype: np.dtype):
    rider = Rider()
    ticket = rider.load(NUMBERS)
    assert rider.board(dtype) is None
    assert rider.board(FLOAT64) is ticket


def test_the_last_one_loaded_goes():
    rider = Rider()
    first, second = rider.load(NUMBERS), rider.load(NUMBERS)
    rider.drop(first)
    assert rider.board(FLOAT32) is second


def test_one_that_is_dropped_stays_behind():
    rider = Rider()
    rider.drop(rider.load(NUMBERS))
    assert rider.board(FLOAT32) is None


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 4000), st.integers(0, 4095), st.integers(0, 2**32 - 1), st.text(max_size=20))
def test_statements_are_summed_exactly_even_in_float32(size: int, local: int, fingerprint: int, activity: str):
    said = Statement(Part((np.zeros((1, 1)),), local, local * size, fingerprint), activity, True)
    sums = np.zeros_like(said.vector(), np.float32)
    for _ in range(size):
        sums += said.vector().astype(np.float32)
    assert decide(sums.astype(np.int64), said, size) == Verdict(False, False, True, local, local * size)
