"""Makes each loss of a model that of the global batch.

With share s = n / N (examples of this worker over those of the global batch), gradients are summed as s * g over
the workers, and Keras's loss tracker sums n * loss over them. Both give what one process computes if each worker's
loss v satisfies: sum of s * v = loss of the global batch. For a mean over examples v is the local mean, for terms
without examples (regularisers) their plain value. Other reductions need a factor:

    sum                         v = local sum * N / n
    none                        v = local mean, with the gradient of: local sum * N / n
    mean over weights or mask   v = local mean * (d / D) * N / n, with divisors d here and D over all workers
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras

from unisono import log
from unisono.backends.base import StepScope
from unisono.training.hooks import Hooks, method
from unisono.training.keras_private import mask_of


def weigh_by_examples(tracker: Any, scope: StepScope) -> None:
    """Lets the metric of one output's loss count each batch by its examples.

    In a graph whose batch size is open Keras passes no weight, so that a small last batch counts like a full one;
    elsewhere it passes the number of examples.

    Args:
        tracker: A metric of `keras_private.loss_trackers`.
        scope: Of the model's steps.
    """
    _weigh(tracker, lambda values: scope.local if scope.active else None)


def weigh_by_share(metric: Any, scope: StepScope) -> None:
    """Lets a mean that a user's code gives one number for each batch count that batch once, over all workers.

    Args:
        metric: A `keras.metrics.Mean`.
        scope: Of the model's steps.
    """
    _weigh(metric, lambda values: scope.share if scope.active and tuple(getattr(values, "shape", ())) == () else None)


def _weigh(metric: Any, weight: Callable[[Any], Any]) -> None:
    """Gives the values of a metric a weight where none is given with them."""

    def update_state(values: Any, sample_weight: Any = None) -> Any:
        if sample_weight is None:
            sample_weight = weight(values)
        return method(metric, "update_state")(values, sample_weight=sample_weight)

    Hooks(metric).set("update_state", update_state)


class GlobalLoss:
    """Stands in for one loss of a compiled model.

    Args:
        loss: The loss that Keras has resolved.
        scope: Of the model's steps.
        total: Sums a scalar over all workers inside a step.
    """

    def __init__(self, loss: Any, scope: StepScope, total: Callable[[Any], Any]) -> None:
        self.loss = loss
        self.name = loss.name
        self._scope = scope
        self._total = total

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        """Returns the loss, scaled to the global batch inside a step."""
        if not self._scope.active:
            return self.loss(y_true, y_pred, sample_weight)
        value, mask = self._masked(y_true, y_pred, sample_weight)
        reduction = self.loss.reduction
        if reduction == "sum":
            return value * keras.ops.cast(self._scope.inverse, value.dtype)
        if reduction in (None, "none"):
            # Keras logs the mean of such a loss, and TensorFlow's gradient is that of its sum.
            total = keras.ops.sum(value) * keras.ops.cast(self._scope.inverse, value.dtype)
            mean = keras.ops.stop_gradient(keras.ops.mean(value))
            return mean + (total - keras.ops.stop_gradient(total))
        divisor = self._divisor(mask, sample_weight, value.dtype)
        if divisor is None:
            return value
        factor = keras.ops.divide_no_nan(divisor, self._total(divisor))
        return value * factor * keras.ops.cast(self._scope.inverse, value.dtype)

    def _masked(self, y_true: Any, y_pred: Any, sample_weight: Any) -> tuple[Any, Any | None]:
        """Returns the loss and the mask it was taken with: that of the predictions and the one that it sets itself."""
        masks = [mask_of(y_pred)]
        function = self.loss.call

        def call(*args: Any, **kwargs: Any) -> Any:
            values = function(*args, **kwargs)
            masks.append(mask_of(values))
            if tuple(getattr(values, "shape", (1,))) == ():
                log.once(
                    f"scalar loss {self.name}",
                    f"loss {self.name!r} gives one number for a whole batch, taken as a mean over its examples. A "
                    "sum, or a ratio of sums as in Dice, is not that of the global batch: let it return one number per "
                    "example.",
                )
            return values

        self.loss.__dict__["call"] = call
        try:
            value = self.loss(y_true, y_pred, sample_weight)
        finally:
            del self.loss.__dict__["call"]
        present = [keras.ops.cast(mask, "bool") for mask in masks if mask is not None]
        return value, functools.reduce(keras.ops.logical_and, present) if present else None

    def _divisor(self, mask: Any | None, sample_weight: Any, dtype: Any) -> Any | None:
        """Returns what the local mean was divided by, up to a constant; None if it is the number of elements."""
        if mask is not None:
            mask = keras.ops.cast(mask, dtype)
        if self.loss.reduction != "mean_with_sample_weight" or sample_weight is None:
            return None if mask is None else keras.ops.sum(mask)
        weights = keras.ops.cast(sample_weight, dtype)
        if mask is not None:
            while len(weights.shape) < len(mask.shape):
                weights = keras.ops.expand_dims(weights, -1)
            while len(mask.shape) < len(weights.shape):
                mask = keras.ops.expand_dims(mask, -1)
            weights = weights * mask
        return keras.ops.sum(weights)


@contextlib.contextmanager
def summed_activity(layers: Sequence[Any], scope: StepScope) -> Iterator[None]:
    """Makes activity regularizers that are sums over the local batch those of the global batch, inside a step.

    They stand in their layers only while a step is traced or run, so that nothing else sees them.

    Args:
        layers: Those with an activity regularizer.
        scope: Of the running step.
    """
    own = [layer.activity_regularizer for layer in layers]

    def scaled(regularizer: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def call(outputs: Any) -> Any:
            value = regularizer(outputs)
            return value * keras.ops.cast(scope.inverse, value.dtype)

        return call

    for layer, regularizer in zip(layers, own, strict=True):
        layer.__dict__["activity_regularizer"] = scaled(regularizer)
    try:
        yield
    finally:
        for layer, regularizer in zip(layers, own, strict=True):
            layer.__dict__["activity_regularizer"] = regularizer
