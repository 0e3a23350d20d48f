"""Losses as those of the global batch."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unisono.backends.base import StepScope
from unisono.training import losses
from unisono.training.agreement import Verdict
from unisono.training.losses import GlobalLoss

# Keras hands its variables to NumPy 2 in an old way.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


def test_summed_activity_is_scaled_inside_a_step_only():
    layer = keras.layers.Dense(1, activity_regularizer=keras.regularizers.L1(1.0), kernel_initializer="ones")
    layer.build((None, 1))
    own = layer.activity_regularizer
    scope = StepScope(2)
    scope.around = lambda: losses.summed_activity([layer], scope)
    outputs = np.array([[1.0], [2.0]], np.float32)
    with scope.enter("train", np.array([0.25, 4.0, 1.0, 2.0], np.float32)):
        assert float(layer.activity_regularizer(outputs)) == 12.0
        assert layer.activity_regularizer is not own
    assert layer.activity_regularizer is own
    assert layer.get_config()["activity_regularizer"]["class_name"] == "L1"


def test_summed_activity_is_taken_back_after_an_error():
    layer = keras.layers.Dense(1, activity_regularizer="l2")
    own = layer.activity_regularizer
    with pytest.raises(KeyError), losses.summed_activity([layer], StepScope(2)):
        raise KeyError
    assert layer.activity_regularizer is own


RNG = np.random.default_rng(0)
WORDS = 3


def batch(examples: int, masked: bool, weighted: str) -> tuple[np.ndarray, np.ndarray, Any, Any]:
    """Returns targets, predictions, weights or None, and mask or None, of `examples` sequences."""
    y, predicted = RNG.random((2, examples, WORDS, 2)).astype("float32")
    shape = {"no": None, "by example": (examples, 1), "by word": (examples, WORDS)}[weighted]
    weights = None if shape is None else RNG.integers(0, 3, shape).astype("float32")
    mask = RNG.integers(0, 2, (examples, WORDS)).astype(bool) if masked else None
    return y, predicted, weights, mask


def value(loss: Any, y: Any, predicted: Any, weights: Any, mask: Any) -> float:
    outputs = keras.ops.convert_to_tensor(predicted)
    if mask is not None:
        outputs._keras_mask = keras.ops.convert_to_tensor(mask)
    return float(loss(y, outputs, weights))


def whole_of_parts(loss: Any, data: tuple[Any, ...], sizes: list[int]) -> float:
    """Returns what the workers' losses add up to, if worker r has `sizes[r]` of the examples."""
    scope = StepScope(len(sizes))
    divisors: list[Any] = []
    sums: list[Any] = []

    def total(divisor: Any) -> Any:
        divisors.append(divisor)
        return sums[0] if sums else divisor

    mine = GlobalLoss(loss, scope, total)

    def added() -> float:
        result, start = 0.0, 0
        for size in sizes:
            part = [None if a is None else a[start : start + size] for a in data]
            start += size
            weights = Verdict(False, False, False, size, sum(sizes)).weights
            with scope.enter("train", weights):
                result += float(weights[0]) * value(mine, *part)
        return result

    added()
    if divisors:
        assert len(divisors) == len(sizes), "some workers ask for a total and others do not"
        sums.append(sum(divisors))
    return added()


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=4),
    st.sampled_from(["sum", "mean", "sum_over_batch_size", "mean_with_sample_weight"]),
    st.booleans(),
    st.sampled_from(["no", "by example", "by word"]),
)
def test_parts_give_the_loss_of_the_whole(sizes: list[int], reduction: str, masked: bool, weighted: str):
    loss = keras.losses.MeanSquaredError(reduction=reduction)
    data = batch(sum(sizes), masked, weighted)
    assert whole_of_parts(loss, data, sizes) == pytest.approx(value(loss, *data), rel=1e-4, abs=1e-6)


def test_nothing_counts_where_all_weights_are_zero():
    loss = keras.losses.MeanSquaredError(reduction="mean_with_sample_weight")
    y, predicted, _, _ = batch(4, masked=False, weighted="no")
    assert whole_of_parts(loss, (y, predicted, np.zeros((4, 1), "float32"), None), [2, 2]) == 0.0


def test_outside_of_steps_it_is_the_users_own():
    loss = GlobalLoss(keras.losses.MeanSquaredError(reduction="sum"), StepScope(2), lambda _: pytest.fail("no step"))
    assert float(loss(np.ones((3, 1), "float32"), np.zeros((3, 1), "float32"))) == 3.0
    assert loss.name == "mean_squared_error"


@pytest.mark.parametrize("reduction", [None, "none"])
def test_a_loss_without_reduction_is_logged_as_its_mean(reduction: Any):
    scope = StepScope(2)
    loss = GlobalLoss(keras.losses.MeanSquaredError(reduction=reduction, name="mine"), scope, lambda d: d)
    with scope.enter("train", Verdict(False, False, False, 1, 2).weights):
        found = loss(np.array([[1.0], [3.0]], "float32"), np.zeros((2, 1), "float32"))
    assert found.shape == () and float(found) == 5.0
