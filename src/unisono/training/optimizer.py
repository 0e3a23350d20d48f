"""Exchanges gradients at the entry of the optimizer's public `apply` (`stateless_apply` on JAX).

Clipping, loss scaling, weight decay, averaging and accumulation come after it and see what one process would see.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from unisono import log
from unisono.backends.base import Backend, StepScope
from unisono.training.hooks import Hooks, method
from unisono.training.keras_private import optimized_variables

Find = Callable[[Sequence[Any]], StepScope]
"""Takes the gradients of an update; returns the scope of what is running now."""


def is_hooked(optimizer: Any) -> bool:
    """Returns whether an optimizer exchanges gradients already."""
    return "apply" in vars(optimizer)


def hook(optimizer: Any, backend: Backend, find: Find) -> Hooks:
    """Lets one optimizer exchange gradients inside steps.

    Args:
        optimizer: A Keras optimizer; outside of steps it behaves as before.
        backend: Does the exchange.
        find: Says in which step an update is made.

    Returns:
        What was set over the optimizer's methods.
    """
    hooks = Hooks(optimizer)

    def passes(scope: StepScope) -> bool:
        if scope.custom:
            return scope.inner
        if not scope.active and not scope.inner and scope.size > 1:
            log.once(
                f"outside {id(optimizer)}",
                "the optimizer was called outside of fit and train_on_batch: these gradients are NOT exchanged, "
                "each worker trains alone. Make the optimizer inside `with strategy.scope():`.",
                logging.WARNING,
            )
        return not scope.active or scope.inner

    def apply(grads: Sequence[Any], trainable_variables: Sequence[Any] | None = None) -> Any:
        original = method(optimizer, "apply")
        gradients = list(grads)
        scope = find(gradients)
        if passes(scope):
            return original(gradients, trainable_variables)
        variables = list(optimized_variables(optimizer) if trainable_variables is None else trainable_variables)
        scope.applied.append((optimizer, variables))
        summed = exchanged(gradients, scope)
        with scope.within_optimizer(), backend.updating(scope):
            return original(summed, trainable_variables)

    def stateless_apply(optimizer_variables: Any, grads: Any, trainable_variables: Any) -> Any:
        original = method(optimizer, "stateless_apply")
        gradients = list(grads)
        scope = find(gradients)
        if passes(scope):
            return original(optimizer_variables, gradients, trainable_variables)
        summed = exchanged(gradients, scope)
        with scope.within_optimizer(), backend.updating(scope):
            return original(optimizer_variables, summed, trainable_variables)

    def exchanged(gradients: list[Any], scope: StepScope) -> list[Any]:
        scope.exchanged = True
        # Loops of the user's own sum also where no step has begun.
        summed = backend.exchange_gradients(gradients, 1.0 if scope.share is None else scope.share, scope)
        if not scope.active:
            scope.applied = []
        return summed

    hooks.set("apply", backend.as_written(apply))
    if backend.apply_method == "stateless_apply":
        hooks.set("stateless_apply", stateless_apply)
    return hooks
