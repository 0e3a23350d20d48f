"""Results of metrics that a user's step returns under names of its own, such as {"loss": self.tracker.result()}.

Such a result tells what this worker has seen. Knowing the metric behind the name, the logs can tell the global one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import keras

from unisono.training.hooks import method
from unisono.training.metrics import flat

STEPS = ("train_step", "test_step")
"""Methods of a model that return logs."""


def only_results(kind: type) -> bool:
    """Returns whether all that the steps of a class of models return are results of metrics, as Keras asks for them."""
    names = (*STEPS, "compute_metrics", "get_metrics_result")
    return all(getattr(kind, name) is getattr(keras.Model, name) for name in names)


class Aliases:
    """The names under which the steps of one model return results of its metrics.

    Args:
        model: The model.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self.found: dict[str, Any] = {}
        """Metrics by other names than their own, as far as steps have been traced or run."""
        self.foreign: set[str] = set()
        """Names of values that are no results, though perhaps a metric has that name, as Keras's own "loss"."""

    def run(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Calls a step of the model, and looks at the logs that it returns.

        Args:
            name: One of `STEPS`.
            *args: As the model's method takes them.
            **kwargs: The same.
        """
        with _recorded(self._model.metrics) as results:
            returned = method(self._model, name)(*args, **kwargs)
        # On JAX a step returns its state, too.
        logs = returned[0] if isinstance(returned, tuple) else returned
        if isinstance(logs, Mapping):
            self._note(logs, results)
        return returned

    def _note(self, logs: Mapping[str, Any], results: list[tuple[Any, Any]]) -> None:
        asked = {name for result, metric in results for name in flat({metric.name: result})}
        for name, value in logs.items():
            metric = next((metric for result, metric in results if result is value), None)
            if metric is not None and name != metric.name:
                self.found[name] = metric
            elif metric is None and name not in asked and not isinstance(value, Mapping):
                self.foreign.add(name)


@contextlib.contextmanager
def _recorded(metrics: list[Any]) -> Iterator[list[tuple[Any, Any]]]:
    """Keeps, for a while, each result that a metric gives, with the metric."""
    results: list[tuple[Any, Any]] = []

    def recording(metric: Any, result: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            found = result(*args, **kwargs)
            results.append((found, metric))
            return found

        return call

    with contextlib.ExitStack() as stack:
        for metric in metrics:
            own = vars(metric).get("result")
            metric.__dict__["result"] = recording(metric, metric.result)
            stack.callback(_restore, metric, own)
        yield results


def _restore(metric: Any, result: Callable[..., Any] | None) -> None:
    if result is None:
        del metric.__dict__["result"]
    else:
        metric.__dict__["result"] = result
