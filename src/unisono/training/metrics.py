"""Global metrics: their *state* is reduced over the workers, never their results.

The reduced state is used to compute results and then dropped: were it kept, the next reduction would count it
again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from unisono.collectives.base import Collectives
from unisono.collectives.packing import PackPlan, pack, unpack
from unisono.training.hooks import method


def reduce_states(channel: Collectives, values: Sequence[np.ndarray], aggregations: Sequence[str]) -> list[np.ndarray]:
    """Reduces the variables of metrics over all workers.

    Args:
        channel: The channel to use.
        values: One array for each variable; same shapes and dtypes on all workers.
        aggregations: Keras's `aggregation` of each variable: "mean", "only_first_replica" (the chief's value wins),
            anything else is a sum, as Keras's `Metric.add_variable` has it by default.

    Returns:
        The reduced arrays.
    """
    if channel.size == 1:
        return list(values)
    plan, buffers = _reduce(channel, values, aggregations)
    return [out.astype(v.dtype) for out, v in zip(unpack(plan, buffers), values, strict=True)]


def _reduce(
    channel: Collectives, values: Sequence[np.ndarray], aggregations: Sequence[str]
) -> tuple[PackPlan, list[np.ndarray]]:
    weighted = [_contribution(v, how, channel) for v, how in zip(values, aggregations, strict=True)]
    plan = PackPlan.of([v.shape for v in weighted], [v.dtype.name for v in weighted])
    return plan, [channel.all_reduce(buffer) for buffer in pack(plan, weighted)]


def _contribution(value: np.ndarray, how: str, channel: Collectives) -> np.ndarray:
    if value.dtype.kind in "iub":
        value = value.astype(np.int64)
    if how == "only_first_replica":
        return value if channel.rank == 0 else np.zeros_like(value)
    if how == "mean":
        return value.astype(np.float64) / channel.size
    return value


class MetricReader:
    """Reads the global results of a model's metrics.

    Args:
        model: The model.
        channel: The channel to use.
        compile_function: Compiles a pure function of tensors, or returns it as it is.
    """

    def __init__(self, model: Any, channel: Collectives, compile_function: Callable[..., Any]) -> None:
        self._model = model
        self._channel = channel
        self._compile = compile_function
        self._compiled: tuple[Any, Callable[..., Any]] | None = None

    def read(
        self, tensors: Sequence[Any] | None = None, *, often: bool = False, also: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Returns the results over all workers' data; a collective call.

        Args:
            tensors: Current values of the model's metric variables where they are not in the variables (JAX).
            often: Whether this is called so often that compiling the results pays.
            also: Metrics of the model whose results are asked for under other names, too.

        Returns:
            Floats, or arrays for metrics with several values.
        """
        variables = self._model.metrics_variables
        current = variables if tensors is None else tensors
        values = [keras.ops.convert_to_numpy(v) for v in current]
        aggregations = [v.aggregation for v in variables]
        if often:
            plan, buffers = _reduce(self._channel, values, aggregations)
            found = self._results_function(variables, plan, also or {})(buffers)
        else:
            found = self._results(variables, reduce_states(self._channel, values, aggregations), also or {})
        return {name: plain(value) for name, value in found.items()}

    def _results(self, variables: Sequence[Any], values: Sequence[Any], also: Mapping[str, Any]) -> dict[str, Any]:
        with keras.StatelessScope(state_mapping=list(zip(variables, values, strict=True))):
            found = method(self._model, "get_metrics_result")()
            named = {name: metric.result() for name, metric in also.items()}
            return {name: value_now(v) for name, v in flat(named | found).items()}

    def _results_function(
        self, variables: Sequence[Any], plan: PackPlan, also: Mapping[str, Any]
    ) -> Callable[..., Any]:
        """Returns a function of packed states: few arguments, as each costs as much as a small metric."""
        key = ([id(v) for v in variables], plan, list(also))
        if self._compiled is None or self._compiled[0] != key:
            named = dict(also)

            def results(buffers: Sequence[Any]) -> dict[str, Any]:
                return self._results(variables, _unpacked(plan, buffers, variables), named)

            self._compiled = (key, self._compile(results))
        return self._compiled[1]


def flat(results: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the results of a model, with those of a metric that gives several next to the others, as Keras logs."""
    found: dict[str, Any] = {}
    for name, value in results.items():
        found.update(flat(value) if isinstance(value, dict) else {name: value})
    return found


def _unpacked(plan: PackPlan, flat: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
    """Returns the values of variables that lie in flat tensors."""
    values: dict[int, Any] = {}
    for buffer, data in zip(plan.buffers, flat, strict=True):
        for slot in buffer.slots:
            part = keras.ops.reshape(data[slot.offset : slot.offset + slot.size], slot.shape)
            values[slot.index] = keras.ops.cast(part, variables[slot.index].dtype)
    return [values[i] for i in range(len(variables))]


def value_now(found: Any) -> Any:
    """Returns what a metric gave as its result: the value, where it gave its variable.

    The variable holds the reduced state only in the scope in which the result was computed.
    """
    return found.value if isinstance(found, keras.Variable) else found


def plain(value: Any) -> Any:
    """Returns a float for a scalar of any framework, else a NumPy array."""
    array = np.asarray(keras.ops.convert_to_numpy(value))
    return float(array) if array.ndim == 0 else array
