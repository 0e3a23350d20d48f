"""Metrics of a user's own loop: updated with this worker's examples, read as global ones.

As in `fit`, their state is reduced over the workers, and the reduced state is dropped once the result is computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import keras

from unisono.training.hooks import Hooks, method
from unisono.training.keras_private import in_stateless_scope
from unisono.training.metrics import value_now


class Loops(Protocol):
    """What a metric must know of the loops around it."""

    size: int

    @property
    def presence(self) -> Any:
        """1, or 0 in a step without examples: a float where that is known, else a scalar tensor."""

    @property
    def reads_locally(self) -> bool:
        """Whether metrics tell the state of this worker only."""

    @property
    def rank(self) -> int:
        """This worker's number."""

    def total(self, tensors: Sequence[Any]) -> list[Any]:
        """Sums tensors over all workers."""

    def as_written(self, function: Any) -> Any:
        """Returns a function of ours that the framework leaves as it is."""


def hook(metric: Any, loops: Loops) -> Hooks:
    """Lets one metric give global results.

    Args:
        metric: A Keras metric; inside steps and loops of a model it behaves as before.
        loops: The user's own.

    Returns:
        What was set over its methods.
    """
    hooks = Hooks(metric)

    def update_state(*args: Any, **kwargs: Any) -> Any:
        original = method(metric, "update_state")
        presence = loops.presence
        if isinstance(presence, float):
            # One process would not have had a batch without examples.
            return original(*args, **kwargs) if presence else None
        before = [keras.ops.copy(v.value) for v in metric.variables]
        result = original(*args, **kwargs)
        for variable, old in zip(metric.variables, before, strict=True):
            variable.assign(keras.ops.where(presence > 0, variable.value, old))
        return result

    def result(*args: Any, **kwargs: Any) -> Any:
        original = method(metric, "result")
        variables = metric.variables
        if not variables or in_stateless_scope() or loops.reads_locally:
            return original(*args, **kwargs)
        reduced = reduce_variables(variables, loops)
        with keras.StatelessScope(state_mapping=list(zip(variables, reduced, strict=True))):
            return value_now(original(*args, **kwargs))

    hooks.set("update_state", loops.as_written(update_state))
    hooks.set("result", loops.as_written(result))
    return hooks


def reduce_variables(variables: Sequence[Any], loops: Loops) -> list[Any]:
    """Returns the values of a metric's variables over all workers; a collective call, also in a graph.

    Args:
        variables: Each with Keras's `aggregation`: "mean", "only_first_replica" (the chief's value wins), anything
            else is a sum.
        loops: The user's own.
    """
    parts = [_part(v, loops) for v in variables]
    return [keras.ops.cast(total, v.dtype) for v, total in zip(variables, loops.total(parts), strict=True)]


def _part(variable: Any, loops: Loops) -> Any:
    value = keras.ops.stop_gradient(variable.value)
    if keras.backend.standardize_dtype(value.dtype) == "bool":
        value = keras.ops.cast(value, "int32")
    if variable.aggregation == "only_first_replica":
        return value if loops.rank == 0 else keras.ops.zeros_like(value)
    if variable.aggregation == "mean":
        return keras.ops.cast(value, "float32" if not keras.backend.is_float_dtype(value.dtype) else value.dtype) / (
            loops.size
        )
    return value
