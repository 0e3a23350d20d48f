"""Sums and broadcasts over the workers of the active strategy, for any code that has no strategy at hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from unisono.errors import ConfigurationError
from unisono.strategies import reductions
from unisono.strategies.reductions import ReduceOp

if TYPE_CHECKING:
    from unisono.training.custom import CustomLoops


_active: list[Callable[[], CustomLoops]] = []


def activate(loops: Callable[[], CustomLoops]) -> None:
    """Makes the loops of a strategy, the last one that was made, those that the functions of this file use."""
    _active[:] = [loops]


def all_reduce(value: Any, op: str | ReduceOp | object = "sum") -> Any:
    """Adds or averages values over all workers of the strategy that was made last; a collective call.

    All workers must call it in the same order. It works eagerly, inside `tf.function` and inside `jax.jit`, and is
    not differentiable: call it on gradients, not inside a loss. With one worker it returns `value` itself.

    A Keras optimizer of the strategy sums the gradients it is given by itself, so give it those of this worker;
    `all_reduce` is for updates by anything else, such as `torch.optim`, optax or code of your own.

    Args:
        value: A tensor, array or number, or a nested structure of them, of the same shapes and dtypes on all workers;
            floats or integers. None stays None.
        op: "sum" or "mean": the sum over the workers, or that divided by their number. In a step of `strategy.run`
            that was given no examples, this worker adds zeros.

    Returns:
        The same structure of tensors, bit-identical on all workers. Means of integers are floats.

    Raises:
        ConfigurationError: If there is no strategy yet, or a value is no number.
    """
    loops = _loops("all_reduce")
    return loops.as_written(reductions.all_reduce)(loops, ReduceOp.of(op), value)


def broadcast(value: Any) -> Any:
    """Returns the chief's values on all workers of the strategy that was made last; a collective call.

    For state that lies outside of Keras: weights that a JAX loop passes around, the `state_dict` of a torch module.
    The models and optimizers of the strategy's scope are given the chief's state by it too. Not for compiled code.

    Args:
        value: A tensor, array or number, or a nested structure of them, of the same shapes and dtypes on all workers.

    Returns:
        The same structure of tensors. With one worker `value` itself.

    Raises:
        ConfigurationError: If there is no strategy yet, or if it is called inside a compiled function.
    """
    loops = _loops("broadcast")
    return loops.as_written(reductions.broadcast)(loops, value)


def _loops(what: str) -> CustomLoops:
    if not _active:
        raise ConfigurationError(
            f"unisono.{what} has no workers to ask: there is no strategy yet.",
            remedy="make a unisono.MultiWorkerMirroredStrategy first.",
        )
    return _active[0]()
