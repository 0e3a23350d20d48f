"""What is private of Keras's JAX trainer, how a loop holds the model's state while it runs, and of JAX.

A test fails when these names move.
"""

from __future__ import annotations

from typing import Any

import jax
from jax._src import xla_bridge

_TRAINING = ("trainable_variables", "non_trainable_variables", "optimizer_variables", "metrics_variables")
_EVALUATION = ("trainable_variables", "non_trainable_variables", "metrics_variables")
_PREDICTION = ("trainable_variables", "non_trainable_variables")
_ASYNC = "jax_cpu_enable_async_dispatch"
_NAMES = {len(names): names for names in (_TRAINING, _EVALUATION, _PREDICTION)}


def put_back(model: Any, state: Any) -> None:
    """Puts the state of a running loop into the model's variables, which are empty meanwhile.

    Args:
        model: The model.
        state: A tuple of lists of arrays, as the step functions take it.
    """
    model._jax_state = dict(zip(_NAMES[len(state)], state, strict=True))
    model._jax_state_synced = False
    model.jax_state_sync()


def run_inline() -> bool:
    """Lets JAX compute on the CPU in the thread that asks for it.

    Returns:
        Whether it does from now on; False if JAX has begun to work already, after which it does not ask any more.
    """
    if xla_bridge.backends_are_initialized():
        return False
    jax.config.update(_ASYNC, False)
    return True


def computes_inline() -> bool:
    """Returns whether JAX computes on the CPU in the thread that asks for it."""
    return not jax.config.read(_ASYNC)
