"""Metrics are reduced as state, and what is reduced is dropped."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest

from unisono.training.metrics import MetricReader, plain, reduce_states
from unit.training.workers import together

# Keras hands its variables to NumPy 2 in an old way.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


def reduced(aggregation: str, *values: Any, dtype: str = "float32") -> list[np.ndarray]:
    """Returns what each worker gets if worker r holds `values[r]`."""
    arrays = [np.asarray(v, dtype) for v in values]
    results = together(len(arrays), lambda c: reduce_states(c, [arrays[c.rank]], [aggregation])[0])
    assert all(r.dtype == dtype and r.shape == arrays[0].shape for r in results)
    return results


@pytest.mark.parametrize(
    ("aggregation", "dtype", "values", "right"),
    [
        ("sum", "float32", ([1, 2], [3, 4], [5, 6]), [9, 12]),
        ("none", "float32", (1, 3), 4),
        ("mean", "float32", (1, 3), 2),
        ("mean", "float32", ([1, 2], [4, 8], [4, 2]), [3, 4]),
        ("only_first_replica", "float32", ([7, 8], [9, 9]), [7, 8]),
        ("sum", "int32", (2**30, 3), 2**30 + 3),
        ("sum", "uint8", (100, 27), 127),
        ("mean", "int64", (2, 4), 3),
        ("only_first_replica", "int32", (5, 6), 5),
        ("sum", "bool", ([True, False, True], [False, False, True]), [True, False, True]),
        ("only_first_replica", "bool", (False, True), False),
        ("sum", "float64", (0.1, 0.2), 0.1 + 0.2),
        ("sum", "float16", ([1, 2], [3, 4]), [4, 6]),
        ("sum", "float32", (np.zeros((2, 0)), np.zeros((2, 0))), np.zeros((2, 0))),
    ],
)
def test_how_states_are_reduced(aggregation: str, dtype: str, values: Any, right: Any):
    for result in reduced(aggregation, *values, dtype=dtype):
        assert np.array_equal(result, np.asarray(right, dtype))


def test_what_another_worker_holds_does_not_count_where_the_first_wins():
    for result in reduced("only_first_replica", 1.5, np.nan):
        assert result == 1.5


def test_many_variables_of_all_kinds_at_once():
    def work(channel: Any) -> list[np.ndarray]:
        values = [np.full((2, 3), channel.rank, "float32"), np.array(channel.rank + 1), np.array([True, False])]
        before = [v.copy() for v in values]
        out = reduce_states(channel, values, ["mean", "sum", "sum"])
        assert all(np.array_equal(a, b) for a, b in zip(values, before, strict=True)), "the input was changed"
        return out

    for mean, count, flags in together(3, work):
        assert np.array_equal(mean, np.ones((2, 3), "float32"))
        assert count == 6 and count.dtype == "int64"
        assert flags.tolist() == [True, False] and flags.dtype == bool


def test_alone_nothing_changes():
    values = [np.array(3, "int32")]
    (result,), *others = together(1, lambda c: reduce_states(c, values, ["mean"]))
    assert result is values[0] and not others


def test_a_model_reads_global_results_and_keeps_its_own_state():
    truth, said = [[0.0, 0.0], [1.0, 1.0]], [[0.0, 1.0], [1.0, 1.0]]

    def work(channel: Any) -> Any:
        model = keras.Sequential([keras.Input((1,)), keras.layers.Identity()])
        model.compile("sgd", "mse", metrics=[keras.metrics.BinaryAccuracy(name="right")])
        y = np.array(truth[channel.rank], "float32")[:, None]
        model._symbolic_build(data_batch=(y, y))
        model.metrics[1].update_state(y, np.array(said[channel.rank], "float32")[:, None])
        reader = MetricReader(model, channel, lambda function: function)
        return (
            [reader.read()["right"] for _ in range(2)],
            float(model.get_metrics_result()["right"]),
            reader.read(often=True),
        )

    for rank, (twice, own, often) in enumerate(together(2, work)):
        assert twice == [0.75, 0.75], "what was reduced has been counted again"
        assert own == [0.5, 1.0][rank]
        assert often["right"] == 0.75 and type(often["right"]) is float


class Counter(keras.metrics.Metric):
    """Returns its variable itself, as many users' metrics do."""

    def __init__(self) -> None:
        super().__init__(name="counter")
        self.count = self.add_weight(name="count", shape=(), initializer="zeros")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        self.count.assign_add(2.0)

    def result(self) -> Any:
        return self.count


@pytest.mark.skipif(keras.backend.backend() == "jax", reason="JAX refuses such a metric by itself")
def test_a_metric_that_returns_its_variable_is_global_too():
    def work(channel: Any) -> Any:
        model = keras.Sequential([keras.Input((1,)), keras.layers.Identity()])
        model.compile("sgd", "mse", metrics=[Counter()])
        y = np.zeros((2, 1), "float32")
        model._symbolic_build(data_batch=(y, y))
        model.metrics[1].update_state(y, y)
        reader = MetricReader(model, channel, lambda function: function)
        return reader.read()["counter"], reader.read(often=True)["counter"]

    assert together(3, work) == [(6.0, 6.0)] * 3


class Mixed(keras.metrics.Metric):
    """Holds states of several dtypes, shapes and ways to be reduced."""

    def __init__(self) -> None:
        super().__init__(name="mixed")
        self.total = self.add_weight(name="total", shape=(2, 3), initializer="zeros")
        self.count = self.add_weight(name="count", shape=(), initializer="zeros", dtype="int32")
        self.rate = self.add_variable(name="rate", shape=(1,), initializer="zeros", aggregation="mean")
        self.first = self.add_variable(name="first", shape=(2,), initializer="zeros", aggregation="only_first_replica")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        self.count.assign(self.count + 1)

    def fill(self, number: float) -> None:
        self.total.assign(np.full((2, 3), number, "float32"))
        self.count.assign(int(number))
        self.rate.assign(np.full(1, number, "float32"))
        self.first.assign(np.full(2, number, "float32"))

    def result(self) -> Any:
        tops = keras.ops.cast(self.count, "float32") + self.rate[0] * 100 + self.first[1] * 10_000
        return {"sum": keras.ops.sum(self.total), "tops": tops}


def compiled(function: Any) -> Any:
    if keras.backend.backend() == "torch":
        return function
    if keras.backend.backend() == "jax":
        import jax

        return jax.jit(function)
    import tensorflow as tf

    return tf.function(function, autograph=False)


def test_results_read_often_are_those_read_once():
    def work(channel: Any) -> Any:
        model = keras.Sequential([keras.Input((1,)), keras.layers.Identity()])
        mixed = Mixed()
        model.compile("sgd", "mse", metrics=[mixed])
        y = np.zeros((2, 1), "float32")
        model._symbolic_build(data_batch=(y, y))
        reader, found = MetricReader(model, channel, compiled), []
        for number in (1.0, 2.0):
            mixed.fill(number + channel.rank)
            found += [reader.read(), reader.read(often=True)]
        return [(round(each["sum"]), round(each["tops"])) for each in found]

    # 1 and 2, then 2 and 3: six sums, their sum, a hundred times their mean, ten thousand times the first.
    assert together(2, work) == [[(18, 10_153), (18, 10_153), (30, 20_255), (30, 20_255)]] * 2


def test_plain_values():
    assert plain(keras.ops.convert_to_tensor(1.5)) == 1.5 and type(plain(np.float32(2))) is float
    assert isinstance(plain(keras.ops.ones(3)), np.ndarray)
