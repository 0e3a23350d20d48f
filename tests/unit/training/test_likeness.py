"""What workers say of a loop before it begins."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest

from unisono.training.likeness import of_call, of_training

schedules = keras.optimizers.schedules


def compiled(optimizer: Any, **options: Any) -> Any:
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile(optimizer, "mse", **options)
    return model


def test_arguments_are_said_and_data_is_not():
    x = np.ones((4, 1))
    given = {"x": x, "y": x, "batch_size": np.int64(2), "epochs": 3, "shuffle": False, "verbose": 0, "callbacks": [1]}
    assert of_call("fit", given) == {"batch_size": "2", "epochs": "3", "shuffle": "False", "y": "given"}
    assert of_call("predict", {"x": x, "steps": None}) == {}


@pytest.mark.parametrize("weights", [{0: 1.0, 1: 2.0}, {1: np.float32(2), 0: 1}])
def test_equal_weights_of_classes_are_said_alike(weights: Any):
    assert of_call("fit", {"class_weight": weights}) == {"class_weight": "{0: 1, 1: 2}"}


@pytest.mark.parametrize(
    ("one", "other", "name"),
    [
        (keras.optimizers.SGD(momentum=0.9), keras.optimizers.SGD(momentum=0.8), "optimizer.momentum"),
        (keras.optimizers.SGD(clipnorm=1.0), keras.optimizers.SGD(), "optimizer.clipnorm"),
        (keras.optimizers.SGD(), keras.optimizers.Adam(), "optimizer"),
        (
            keras.optimizers.SGD(schedules.ExponentialDecay(0.1, 2, 0.9)),
            keras.optimizers.SGD(schedules.ExponentialDecay(0.2, 2, 0.9)),
            "optimizer.learning_rate.initial_learning_rate",
        ),
        (
            keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(momentum=0.9)),
            keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(momentum=0.8)),
            "optimizer.inner_optimizer.momentum",
        ),
    ],
)
def test_settings_of_optimizers_are_told_apart(one: Any, other: Any, name: str):
    first, second = of_training(compiled(one)), of_training(compiled(other))
    assert first.get(name) != second.get(name)
    if name != "optimizer":
        assert {key for key in first if first[key] != second.get(key)} == {name}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        # All workers are given the chief's.
        (lambda: keras.optimizers.SGD(0.1), lambda: keras.optimizers.SGD(0.2)),
        (lambda: keras.optimizers.SGD(name="a"), lambda: keras.optimizers.SGD(name="b")),
        # Another machine's last digit.
        (lambda: keras.optimizers.SGD(momentum=0.3), lambda: keras.optimizers.SGD(momentum=0.1 + 0.2)),
    ],
)
def test_what_may_differ_is_said_alike(one: Any, other: Any):
    assert of_training(compiled(one())) == of_training(compiled(other()))


def test_variables_are_no_settings():
    schedule = schedules.PiecewiseConstantDecay([5, 7], [0.1, 0.2, 0.3])
    for make in (lambda: keras.optimizers.SGD(schedule, momentum=0.9), lambda: keras.optimizers.AdamW(schedule)):
        model, built = compiled(make()), compiled(make())
        built.optimizer.build(built.trainable_variables)
        assert of_training(model) == of_training(built)
        assert of_training(built)["optimizer.learning_rate.boundaries"] == "[5, 7]"


class OwnSchedule(schedules.LearningRateSchedule):  # type: ignore[misc]
    def __call__(self, step: Any) -> float:
        return 0.1


class OwnOptimizer(keras.optimizers.SGD):  # type: ignore[misc]
    pass


def test_users_own_schedules_and_optimizers_need_not_say_what_they_are():
    said = of_training(compiled(keras.optimizers.SGD(OwnSchedule())))
    assert said["optimizer"] == "SGD" and not [name for name in said if "learning_rate" in name]
    assert "optimizer" not in of_training(compiled(OwnOptimizer()))


def test_ways_to_run_are_said():
    model = compiled("sgd", run_eagerly=True, steps_per_execution=3)
    assert {"run_eagerly": "True", "steps_per_execution": "3"}.items() <= of_training(model).items()
