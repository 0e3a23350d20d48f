"""Exchanges gradients at the entry of the optimizer's public `apply` (`stateless_apply` on JAX).

Clipping, loss scaling, weight decay, averaging and accumulation come after it and see what one process would see.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from unisono import log
from unisono.backends.base import Backend, StepScope
from unisono.training.hooks import Hooks, method
from unisono.training.keras_private import optimized_variables


def hook(optimizer: Any, backend: Backend, scope: StepScope) -> Hooks:
    """Lets one optimizer exchange gradients inside steps of its model.

    Args:
        optimizer: A Keras optimizer; outside of steps it behaves as before.
        backend: Does the exchange.
        scope: Of the model's steps.

    Returns:
        What was set over the optimizer's methods.
    """
    hooks = Hooks(optimizer)

    def passes() -> bool:
        if not scope.active and not scope.inner and scope.size > 1:
            log.once(
                f"outside {id(optimizer)}",
                "the optimizer was called outside of fit and train_on_batch: these gradients are NOT exchanged, "
                "each worker trains alone. Override train_step and call fit instead.",
                logging.WARNING,
            )
        return not scope.active or scope.inner

    def apply(grads: Sequence[Any], trainable_variables: Sequence[Any] | None = None) -> Any:
        original = method(optimizer, "apply")
        if passes():
            return original(grads, trainable_variables)
        variables = list(optimized_variables(optimizer) if trainable_variables is None else trainable_variables)
        gradients = list(grads)
        scope.applied.append((optimizer, variables, backend.kinds(gradients)))
        scope.exchanged = True
        summed = backend.exchange_gradients(gradients, scope.share, scope)
        with scope.within_optimizer():
            return original(summed, trainable_variables)

    def stateless_apply(optimizer_variables: Any, grads: Any, trainable_variables: Any) -> Any:
        original = method(optimizer, "stateless_apply")
        if passes():
            return original(optimizer_variables, grads, trainable_variables)
        scope.exchanged = True
        summed = backend.exchange_gradients(list(grads), scope.share, scope)
        with scope.within_optimizer():
            return original(optimizer_variables, summed, trainable_variables)

    hooks.set("apply", apply)
    if backend.apply_method == "stateless_apply":
        hooks.set("stateless_apply", stateless_apply)
    return hooks
