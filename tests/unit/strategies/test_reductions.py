"""How a user may spell a reduction, and what is asked where there is nobody to ask."""

from __future__ import annotations

import enum
from typing import Any

import pytest

import unisono
from unisono.errors import ConfigurationError
from unisono.strategies import collective
from unisono.strategies.reductions import ReduceOp


class Theirs(enum.Enum):
    """As `tf.distribute.ReduceOp`."""

    SUM = "SUM"
    MEAN = "MEAN"


@pytest.mark.parametrize("given", [ReduceOp.MEAN, Theirs.MEAN, "MEAN", "mean", "Mean"])
def test_a_mean_may_be_spelled_in_many_ways(given: Any):
    assert ReduceOp.of(given) is ReduceOp.MEAN


@pytest.mark.parametrize("given", ["max", None, 3, ""])
def test_anything_else_is_refused_as_it_was_spelled(given: Any):
    with pytest.raises(ConfigurationError, match="SUM or MEAN") as caught:
        ReduceOp.of(given)
    assert repr(given) in str(caught.value) and "unisono.ReduceOp.SUM" in str(caught.value)


@pytest.mark.parametrize("function", [unisono.all_reduce, unisono.broadcast])
def test_without_a_strategy_nobody_is_asked(function: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(collective, "_active", [])
    with pytest.raises(ConfigurationError, match="no strategy yet"):
        function(1.0)
