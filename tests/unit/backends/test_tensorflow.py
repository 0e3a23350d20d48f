"""How a step of the TensorFlow backend is found for a batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from unisono.backends.tensorflow import _Stateful


class Counted:
    """A step, traced by `tf.function`; counts how often."""

    def __init__(self) -> None:
        self.traced = 0
        self.step = _Stateful(tf.function(self._step, reduce_retracing=True, autograph=False))

    def _step(self, data: Any, weights: Any) -> Any:
        self.traced += 1
        return tf.reduce_sum(tf.cast(tf.nest.flatten(data)[0], tf.float32)) * tf.cast(weights[0], tf.float32)

    def __call__(self, data: Any) -> float:
        return float(self.step(None, data, np.array([2, 0, 0, 0], np.float64))[0])


def rows(count: int, *, dtype: str = "float32", width: int = 3) -> np.ndarray:
    return np.ones((count, width), dtype)


def spec(dtype: str = "float32") -> tf.TensorSpec:
    return tf.TensorSpec([None, 3], dtype)


@pytest.mark.parametrize(
    ("prepared", "batch"),
    [
        ((spec(), None), lambda n: (rows(n), None)),
        (({"b": spec(), "a": spec("int32")},), lambda n: ({"b": rows(n), "a": rows(n, dtype="int32")},)),
        ((spec(), tf.TensorSpec([None], "int64")), lambda n: (tf.constant(rows(n)), tf.zeros(n, tf.int64))),
    ],
)
def test_batches_of_the_prepared_form_are_never_traced_again(prepared: Any, batch: Any) -> None:
    counted = Counted()
    counted.step.prepare(prepared)
    assert [counted(batch(n)) for n in (1, 4, 2)] == [6.0, 24.0, 12.0]
    assert counted.traced == 1


def test_other_batches_go_the_usual_way() -> None:
    counted = Counted()
    counted.step.prepare((spec(),))
    assert counted((rows(2, dtype="int32"),)) == 12.0
    assert counted((rows(2, width=2),)) == 8.0
    ragged = tf.ragged.constant([[1.0, 2.0], [3.0]])
    assert [counted((tf.ones((2, 3)), ragged)) for _ in range(2)] == [12.0] * 2
    assert counted.traced == 4


def test_functions_run_eagerly_where_the_user_wants_that() -> None:
    counted = Counted()
    counted.step.prepare((spec(),))
    tf.config.run_functions_eagerly(True)
    try:
        assert [counted((rows(2),)) for _ in range(2)] == [12.0] * 2
    finally:
        tf.config.run_functions_eagerly(False)
    assert counted.traced == 3
