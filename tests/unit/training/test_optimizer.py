"""Where gradients are exchanged: at the optimizer's door, once, inside steps only."""

from __future__ import annotations

import contextlib
import logging
from typing import Any

import keras
import numpy as np
import pytest

from unisono import log
from unisono.backends.base import StepScope
from unisono.training.agreement import Verdict
from unisono.training.optimizer import hook

# Keras hands its variables to NumPy 2 in an old way.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


class Doubles:
    """A backend whose exchange doubles gradients."""

    apply_method = "apply"

    def __init__(self) -> None:
        self.exchanged: list[Any] = []

    def as_written(self, function: Any) -> Any:
        return function

    def updating(self, scope: StepScope) -> Any:
        return contextlib.nullcontext()

    def exchange_gradients(self, gradients: Any, weight: Any, scope: StepScope) -> list[Any]:
        self.exchanged.append(float(weight))
        return [g * 2 for g in gradients]


def ready(optimizer: Any, size: int = 2) -> tuple[Any, Doubles, StepScope, Any]:
    variable = keras.Variable(np.zeros(1, "float32"))
    optimizer.build([variable])
    backend, scope = Doubles(), StepScope(size)
    hooks = hook(optimizer, backend, lambda _: scope)
    return variable, backend, scope, hooks


def in_step(scope: StepScope) -> Any:
    return scope.enter("train", Verdict(False, False, False, 1, 4).weights)


def number(variable: Any) -> float:
    return float(keras.ops.convert_to_numpy(variable.value)[0])


@pytest.mark.parametrize("how", ["apply", "apply without variables", "apply_gradients"])
def test_gradients_are_exchanged_before_the_update(how: str):
    optimizer = keras.optimizers.SGD(1.0, clipvalue=1.5)
    variable, backend, scope, _ = ready(optimizer)
    with in_step(scope):
        if how == "apply_gradients":
            optimizer.apply_gradients([(keras.ops.ones(1), variable)])
        elif how == "apply":
            optimizer.apply([keras.ops.ones(1)], [variable])
        else:
            optimizer.apply([keras.ops.ones(1)])
    assert number(variable) == -1.5, "clipped before the exchange"
    assert backend.exchanged == [0.25]
    ((noted, variables),) = scope.applied
    assert noted is optimizer and variables[0] is variable


def test_an_optimizer_inside_another_does_not_exchange_again():
    inner = keras.optimizers.SGD(1.0)
    optimizer = keras.optimizers.LossScaleOptimizer(inner, initial_scale=4.0)
    variable, backend, scope, _ = ready(optimizer)
    hook(inner, backend, lambda _: scope)
    with in_step(scope):
        optimizer.apply([keras.ops.ones(1) * 4], [variable])
    assert (number(variable), len(backend.exchanged)) == (-2.0, 1)
    assert not scope.inner


def test_an_error_inside_the_update_leaves_no_mark(monkeypatch: pytest.MonkeyPatch):
    optimizer = keras.optimizers.SGD(1.0)
    variable, _, scope, _ = ready(optimizer)
    monkeypatch.setattr(type(optimizer), "update_step", lambda *_, **__: (_ for _ in ()).throw(KeyError("own")))
    with pytest.raises(KeyError, match="own"), in_step(scope):
        optimizer.apply([keras.ops.ones(1)], [variable])
    assert (scope.inner, scope.active) == (False, False)


def test_outside_of_steps_it_trains_alone_and_says_so(caplog: pytest.LogCaptureFixture, monkeypatch: Any):
    monkeypatch.setattr(log, "_said", set())
    monkeypatch.setattr(log.logger, "propagate", True)
    optimizer = keras.optimizers.SGD(1.0)
    variable, backend, _, _ = ready(optimizer)
    with caplog.at_level(logging.WARNING, "unisono"):
        for _ in range(2):
            optimizer.apply([keras.ops.ones(1)], [variable])
    assert (number(variable), backend.exchanged) == (-2.0, [])
    assert [r.message for r in caplog.records if "NOT exchanged" in r.message] == [caplog.records[0].message]
    assert len(caplog.records) == 1


def test_in_loops_of_the_users_own_gradients_are_summed_also_where_no_step_has_begun():
    optimizer = keras.optimizers.SGD(1.0)
    variable, backend, scope, _ = ready(optimizer)
    scope.custom = True
    optimizer.apply([keras.ops.ones(1)], [variable])
    assert (number(variable), backend.exchanged, scope.applied) == (-2.0, [1.0], [])
    with scope.enter("custom", (0.0, 1.0, 0.0, 0.0)):
        optimizer.apply([keras.ops.ones(1)], [variable])
    assert backend.exchanged == [1.0, 0.0]


def test_given_back_it_is_as_before():
    optimizer = keras.optimizers.SGD(1.0)
    variable, backend, scope, hooks = ready(optimizer)
    hooks.remove()
    with in_step(scope):
        optimizer.apply([keras.ops.ones(1)], [variable])
    assert (number(variable), backend.exchanged) == (-1.0, [])
