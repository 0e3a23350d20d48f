"""Losses as those of the global batch."""

from __future__ import annotations

import keras
import numpy as np
import pytest

from unisono.backends.base import StepScope
from unisono.training import losses

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
