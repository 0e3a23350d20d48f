"""Everything private of Keras that the training layer touches, in one place.

Keras documents the methods of a model that may be overridden, but not how its training loops take their data. The
loops accept an object of `DataAdapter` in place of `x`, which is how the parts of this worker reach them. A test
fails when one of these names moves.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import keras
from keras.src.backend.common.global_state import get_global_attribute
from keras.src.backend.common.masking import get_keras_mask as mask_of
from keras.src.backend.common.stateless_scope import in_stateless_scope
from keras.src.legacy.saving import legacy_h5_format
from keras.src.saving import saving_lib
from keras.src.trainers.data_adapters.data_adapter import DataAdapter

from unisono.backends.base import flat_layers
from unisono.training.hooks import method

__all__ = [
    "ASSIGN",
    "BUILD",
    "FILE_WRITERS",
    "DataAdapter",
    "activity_losses_are_sums",
    "assign_untracked",
    "build",
    "compile_loss",
    "flat_layers",
    "global_seed",
    "in_stateless_scope",
    "initial_epoch",
    "learning_rate_schedule",
    "loss_trackers",
    "mask_of",
    "optimized_variables",
    "set_initial_epoch",
    "takes_a_batch_to_build",
    "wrap_losses",
]


FILE_WRITERS = (
    (saving_lib, "save_model"),
    (saving_lib, "save_weights_only"),
    (legacy_h5_format, "save_model_to_hdf5"),
)
"""Module and name of the functions `(model, filepath, ...)` in which all that Keras saves of a model ends."""


BUILD = "_symbolic_build"
"""The method of a model by which its loops create variables, from their first batch, where something is not built."""


ASSIGN = "_setattr_hook"
"""The method of a layer that may change what is assigned to an attribute, before Keras looks for variables in it."""
_STATE = "_jax_state"
"""The attribute in which the loops on JAX leave the arrays of each step, should a callback ask for them."""


def assign_untracked(model: Any) -> Callable[[str, Any], tuple[str, Any]]:
    """Returns what stands over `ASSIGN`, so that Keras does not look through all arrays of a model in each step.

    There are no variables among them, and the search costs a small step a tenth of its time. Keras looks into
    dictionaries, not into views of them.
    """
    own = method(model, ASSIGN)

    def assign(name: str, value: Any) -> tuple[str, Any]:
        return own(name, MappingProxyType(value) if name == _STATE and type(value) is dict else value)  # type: ignore[no-any-return]

    return assign


def takes_a_batch_to_build(model: Any) -> bool:
    """Returns whether Keras's own `fit` and `evaluate` first take a batch of the data to build a model."""
    if keras.backend.backend() == "tensorflow":
        return False
    parts = (getattr(model, name, None) for name in ("_compile_metrics", "_compile_loss"))
    return not all(layer.built for layer in flat_layers(model)) or any(p is not None and not p.built for p in parts)


def build(model: Any, sample: Any) -> None:
    """Creates all variables of model, optimizer, losses and metrics from a sample of the data."""
    method(model, BUILD)(data_batch=sample)


def compile_loss(model: Any) -> Any | None:
    """Returns the object that holds the losses given to `compile`, or None."""
    return getattr(model, "_compile_loss", None)


def wrap_losses(model: Any, wrap: Callable[[Any], Any]) -> None:
    """Replaces each loss that Keras has resolved from `compile(loss=...)` by `wrap(loss)`, in this model only."""
    holder = compile_loss(model)
    if holder is not None and holder.built:
        holder._flat_losses = [entry._replace(loss=wrap(entry.loss)) for entry in holder._flat_losses]


def activity_losses_are_sums() -> bool:
    """Returns whether Keras sums an activity regularizer over the batch; from 3.14 on it divides by the examples."""
    return tuple(int(part) for part in keras.__version__.split(".")[:2]) < (3, 14)


def loss_trackers(model: Any) -> list[Any]:
    """Returns the metrics in which Keras logs the losses of single outputs."""
    holder = compile_loss(model)
    return [] if holder is None else list(holder.metrics)


def global_seed() -> Any | None:
    """Returns the state from which Keras draws where no seed is given, or None if nothing has drawn yet."""
    generator = get_global_attribute("global_seed_generator")
    return None if generator is None else generator.state


def initial_epoch(model: Any) -> int | None:
    """Returns the epoch at which a restored run goes on, as `BackupAndRestore` leaves it."""
    return getattr(model, "_initial_epoch", None)


def set_initial_epoch(model: Any, epoch: int | None) -> None:
    """Sets the epoch at which `fit` begins, as `BackupAndRestore` does."""
    model._initial_epoch = epoch


def optimized_variables(optimizer: Any) -> list[Any]:
    """Returns the variables an optimizer was built for, in the order of its gradients."""
    return list(optimizer._trainable_variables)


def learning_rate_schedule(optimizer: Any) -> Any:
    """Returns the schedule that an optimizer takes its learning rate from; None for a plain number or a function."""
    rate = getattr(optimizer, "_learning_rate", None)
    return rate if isinstance(rate, keras.optimizers.schedules.LearningRateSchedule) else None
