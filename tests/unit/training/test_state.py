"""One state on all workers, and streams of random numbers that differ."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest

from unisono.errors import ConfigurationError, DivergenceError
from unisono.training import keras_private, state
from unisono.training.state import broadcast_state, moving_variables, seed_of_rank, seed_variables, shared_variables
from unit.training.workers import names, together

# Keras hands its variables to NumPy 2 in an old way.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


def model_of(units: int = 2, *more: Any) -> keras.Model:
    layers = [keras.layers.Dense(units), keras.layers.BatchNormalization(), keras.layers.Dropout(0.5), *more]
    model = keras.Sequential([keras.Input((3,)), *layers])
    model.compile(keras.optimizers.Adam(), "mse")
    model.optimizer.build(model.trainable_variables)
    return model


def value(variable: Any) -> np.ndarray:
    return np.asarray(keras.ops.convert_to_numpy(variable))


@pytest.mark.parametrize("dtype", ["uint32", "int64"])
def test_each_rank_has_a_seed_of_its_own(dtype: str):
    chief = np.array([7, 41], dtype)
    states = [seed_of_rank(chief, rank) for rank in range(1000)]
    assert states[0].tolist() == [7, 41]
    assert len({int(s[0]) for s in states}) == 1000
    assert all(s.dtype == dtype and s[1] == 41 and 0 <= s[0] < 2**32 for s in states)
    assert chief.tolist() == [7, 41]


def test_seeds_of_ranks_do_not_meet_where_users_count_seeds_up():
    seeds = [int(seed_of_rank(np.array([s, 0], "uint32"), r)[0]) for s in range(100) for r in range(16)]
    assert len(set(seeds)) == len(seeds)


def test_only_random_generators_differ_by_rank():
    model = model_of()
    model.metrics[0].update_state(1.0)
    (seed,) = seed_variables(model)
    assert seed.shape == (2,) and "seed" in seed.path
    shared = shared_variables(model)
    assert not {id(seed)} & {id(v) for v in shared}
    expected = [*model.weights, *model.optimizer.variables]
    assert [id(v) for v in shared] == [id(v) for v in expected]


def test_what_a_forward_pass_may_change():
    class Counts(keras.layers.Layer):
        def build(self, shape: Any) -> None:
            self.mean = self.add_weight(shape=(), trainable=False, name="mean")
            self.steps = self.add_weight(shape=(), trainable=False, name="steps", dtype="int32", initializer="zeros")
            self.stream = self.add_weight(shape=(), trainable=False, name="no", dtype="uint32", initializer="zeros")

        def call(self, x: Any) -> Any:
            return x

    model = model_of(2, Counts())
    assert [v.name for v in moving_variables(model)] == ["moving_mean", "moving_variance", "mean", "steps"]
    model.layers[1].trainable = False
    assert [v.name for v in moving_variables(model)] == ["mean", "steps"]
    model.layers[1].trainable = True
    model.layers[0].trainable = False
    assert [v.name for v in moving_variables(model)] == ["moving_mean", "moving_variance", "mean", "steps"]
    model.trainable = False
    assert moving_variables(model) == []


def test_layers_that_are_frozen_inside_do_not_travel():
    inner = keras.Sequential([keras.Input((2,)), keras.layers.BatchNormalization()])
    inner.trainable = False
    model = model_of(2, inner)
    assert len(moving_variables(model)) == 2


def test_a_checksum_sees_every_bit():
    one, other = (keras.Variable(np.array(v, "float32")) for v in ([0.0, 1.0], [-0.0, 1.0]))
    assert state.checksum([one]) == state.checksum([keras.Variable(np.array([0.0, 1.0], "float32"))])
    assert state.checksum([one]) != state.checksum([other])
    assert state.checksum([one, other]) != state.checksum([other, one])


def test_all_get_the_chiefs_state():
    def work(channel: Any) -> Any:
        model = model_of()
        variables = shared_variables(model)
        for variable in variables:
            variable.assign(np.full(variable.shape, channel.rank + 1))
        seeds = [value(v) for v in seed_variables(model)]
        broadcast_state(model, channel, names(channel.size))
        changed = [value(v) for v in seed_variables(model)]
        return [value(v) for v in variables], seeds, changed

    results = together(3, work)
    for values, _, _ in results:
        assert all((v == 1).all() for v in values)
    chiefs = results[0][1]
    for rank, (_, _, seeds) in enumerate(results):
        for mine, chief in zip(seeds, chiefs, strict=True):
            assert mine.tolist() == seed_of_rank(chief, rank).tolist()


def test_state_that_is_equal_does_not_travel():
    class Counted:
        def __init__(self, channel: Any) -> None:
            self.channel, self.sent = channel, 0

        def __getattr__(self, name: str) -> Any:
            return getattr(self.channel, name)

        def broadcast(self, buffer: np.ndarray, *args: Any, **kwargs: Any) -> Any:
            self.sent += buffer.nbytes
            return self.channel.broadcast(buffer, *args, **kwargs)

    def work(channel: Any) -> list[int]:
        model, counted = model_of(), Counted(channel)
        sent = []
        for change in (None, 0, None, channel.size - 1):
            if channel.rank == change:
                model.layers[0].kernel.assign_add(np.ones((3, 2), "float32"))
            counted.sent = 0
            broadcast_state(model, counted, names(channel.size))
            sent.append(counted.sent)
        return [*sent, sum(value(v).nbytes for v in seed_variables(model))]

    for first, after_chief, again, after_last, seeds in together(3, work):
        assert first > 3 * 2 * 4 + seeds and first == after_chief == after_last
        assert again == seeds


def test_numbers_without_a_seed_differ_by_rank():
    keras.random.normal((1,))
    variable = keras_private.global_seed()
    chief = value(variable)
    state.spread_global_seed(0, lambda mine: mine)
    assert value(variable).tolist() == chief.tolist()
    state.spread_global_seed(2, lambda mine: chief)
    assert value(variable).tolist() == seed_of_rank(chief, 2).tolist()
    state.spread_global_seed(1, lambda mine: None)
    assert value(variable).tolist() == seed_of_rank(chief, 2).tolist()
    keras.random.normal((1,))


def test_alone_nothing_is_touched():
    def work(channel: Any) -> Any:
        model = model_of()
        before = [value(v) for v in [*shared_variables(model), *seed_variables(model)]]
        broadcast_state(model, channel, names(1))
        after = [value(v) for v in [*shared_variables(model), *seed_variables(model)]]
        return all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))

    assert together(1, work) == [True]


@pytest.mark.parametrize(
    ("units", "more", "texts"),
    [
        ((2, 3, 2), (0, 0, 0), ["is float32 (3, 2) on worker 0", "is float32 (3, 3) on worker 1"]),
        ((2, 2, 2), (0, 0, 1), ["differ"]),
    ],
)
def test_different_models_are_told_to_all_at_once(units: Any, more: Any, texts: list[str]):
    def work(channel: Any) -> Any:
        layers = [keras.layers.Dense(1)] * more[channel.rank]
        return broadcast_state(model_of(units[channel.rank], *layers), channel, names(3))

    errors = together(3, work)
    assert all(isinstance(e, DivergenceError) for e in errors), errors
    assert len({str(e).replace("_1", "") for e in errors}) == 1
    for text in [*texts, "build and compile the same model on all workers"]:
        assert text in str(errors[0])


@pytest.mark.parametrize("wrap", [lambda layer: layer, keras.layers.Bidirectional])
def test_states_of_a_whole_batch_are_refused_where_there_are_several_workers(wrap: Any):
    model = keras.Sequential([wrap(keras.layers.GRU(2, stateful=True, name="memory")), keras.layers.Dense(1)])
    with pytest.raises(ConfigurationError, match=r"'.*memory' has stateful=True.*2 workers"):
        state.refuse_rows_in_state(model, 2)
    state.refuse_rows_in_state(model, 1)
    state.refuse_rows_in_state(keras.Sequential([wrap(keras.layers.GRU(2))]), 2)
