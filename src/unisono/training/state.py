"""One state on all workers: what is broadcast from the chief, and what must differ."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np

from unisono.collectives.base import Collectives
from unisono.collectives.objects import all_gather_object, broadcast_arrays
from unisono.errors import ConfigurationError, DivergenceError
from unisono.training.keras_private import flat_layers, global_seed

_RANK_STRIDE = 0x9E3779B9
"""Added to a seed once per rank; odd and far from 0, so that seeds of different ranks never meet by counting."""


def seed_variables(model: Any) -> list[Any]:
    """Returns the states of the model's random generators: the only variables that differ by rank."""
    others = {id(v) for v in [*model.weights, *model.metrics_variables]}
    return [v for v in model.non_trainable_variables if id(v) not in others]


def is_made(thing: Any) -> bool:
    """Returns whether the `__init__` of a model or an optimizer has run.

    Keras makes, and drops, an instance without it of each class of a user's that becomes a functional model.
    """
    return hasattr(thing, "built")


def shared_variables(model: Any) -> list[Any]:
    """Returns all variables that must be equal on all workers: weights, moving statistics, optimizer state."""
    return [*model.weights, *(v for optimizer in optimizers(model) for v in optimizer.variables)]


def optimizers(model: Any) -> list[Any]:
    """Returns the optimizer given to `compile` and those that a user's own class keeps in attributes, as GANs do."""
    held = [getattr(model, "optimizer", None), *keras.tree.flatten(_plain_attributes(model))]
    found = {id(o): o for o in held if isinstance(o, keras.optimizers.Optimizer)}
    return list(found.values())


def _plain_attributes(model: Any) -> list[Any]:
    # Private attributes are Keras's own; some of its containers are no plain trees.
    values = [value for name, value in sorted(vars(model).items()) if not name.startswith("_")]
    return [v for v in values if isinstance(v, keras.optimizers.Optimizer | list | tuple | dict)]


def moving_variables(model: Any) -> list[Any]:
    """Returns the variables that a forward pass in training may change: moving statistics and the like.

    Those of layers set to `trainable = False` stay as they are, so they need not travel. Unsigned integers are left
    out: they are states of random generators, not numbers to be weighted.
    """
    frozen: set[int] = set()
    wanted: dict[int, Any] = {}
    for layer in flat_layers(model):
        for variable in layer.non_trainable_weights:
            if layer.trainable:
                wanted[id(variable)] = variable
            else:
                frozen.add(id(variable))
    return [
        v
        for i, v in wanted.items()
        if i not in frozen and not v.trainable and not keras.backend.standardize_dtype(v.dtype).startswith("uint")
    ]


def refuse_rows_in_state(model: Any, size: int) -> None:
    """Refuses what several workers cannot do: layers that keep something of each example from batch to batch.

    Args:
        model: The model.
        size: Number of workers.

    Raises:
        ConfigurationError: If there is such a layer and more than one worker.
    """
    kept = [] if size == 1 else [each for each in flat_layers(model) if isinstance(each, keras.layers.RNN)]
    for layer in kept:
        if layer.stateful:
            raise ConfigurationError(
                f"Layer {layer.name!r} has stateful=True: it keeps the states of the examples of a whole batch, but "
                f"each of {size} workers sees a part of the batch.",
                remedy="make it with stateful=False, or train this model with one worker.",
            )


def checksum(variables: Sequence[Any]) -> int:
    """Returns a number that differs if any value differs in any bit."""
    crc = 0
    for variable in variables:
        crc = zlib.crc32(np.ascontiguousarray(keras.ops.convert_to_numpy(variable)).tobytes(), crc)
    return crc


def broadcast_state(model: Any, channel: Collectives, names: Sequence[str]) -> bool:
    """Gives all workers the chief's state, and each its own stream of random numbers.

    Weights and optimizer state travel only if they are not the same already, as they are after a training.

    Args:
        model: A built model.
        channel: The channel to use.
        names: Name of each worker, for messages.

    Returns:
        Whether weights or optimizer state had to travel.

    Raises:
        DivergenceError: On all workers, if their models have different variables.
    """
    metrics = model.metrics_variables
    return broadcast_variables(shared_variables(model), seed_variables(model), channel, names, own=metrics)


def broadcast_variables(
    shared: Sequence[Any], seeds: Sequence[Any], channel: Collectives, names: Sequence[str], own: Sequence[Any] = ()
) -> bool:
    """Does the same for any variables.

    Args:
        shared: Variables that must be equal on all workers.
        seeds: States of random generators.
        channel: The channel to use.
        names: Name of each worker, for messages.
        own: Variables that only must be alike: each worker has its own values, to be reduced.

    Returns:
        Whether shared variables had to travel.

    Raises:
        DivergenceError: On all workers, if they have different variables.
    """
    if channel.size == 1:
        return False
    _check_same_shape(channel, [*shared, *seeds, *own], names)
    sums = channel.all_gather(np.array([checksum(shared)], np.int64))
    differed = any(int(each[0]) != int(sums[0][0]) for each in sums)
    if differed:
        for variable, array in zip(shared, from_chief(channel, shared), strict=True):
            if channel.rank:
                variable.assign(array)
    for variable, array in zip(seeds, from_chief(channel, seeds), strict=True):
        if channel.rank:
            variable.assign(seed_of_rank(array, channel.rank))
    return differed


def spread_global_seed(rank: int, from_chief: Callable[[Any], Any]) -> None:
    """Gives each worker its own stream of the numbers that Keras draws where no seed is given.

    Args:
        rank: This worker.
        from_chief: Returns the chief's value on all workers.
    """
    variable = global_seed()
    chiefs = from_chief(None if variable is None else keras.ops.convert_to_numpy(variable))
    if rank and variable is not None and chiefs is not None:
        variable.assign(seed_of_rank(np.asarray(chiefs), rank))


def from_chief(channel: Collectives, variables: Sequence[Any]) -> list[np.ndarray]:
    """Returns the chief's values of variables or tensors of equal shapes and dtypes; a collective call."""
    arrays = [np.array(keras.ops.convert_to_numpy(v), order="C") for v in variables]
    if arrays:
        broadcast_arrays(channel, arrays)
    return arrays


def seed_of_rank(state: np.ndarray, rank: int) -> np.ndarray:
    """Returns the state of a random generator for one rank; rank 0 keeps the chief's.

    Args:
        state: State of the chief's generator, uint32 of shape (2,): seed and counter.
        rank: The rank.
    """
    own = state.astype(np.uint64)
    own[0] = (own[0] + np.uint64(rank * _RANK_STRIDE)) % np.uint64(2**32)
    return own.astype(state.dtype)


def _check_same_shape(channel: Collectives, variables: Sequence[Any], names: Sequence[str]) -> None:
    mine = [(tuple(v.shape), keras.backend.standardize_dtype(v.dtype)) for v in variables]
    mark = zlib.crc32(repr(mine).encode())
    marks = channel.all_gather(np.array([mark], np.int64))
    if all(int(m[0]) == mark for m in marks):
        return
    everyone = all_gather_object(channel, [(v.path, *m) for v, m in zip(variables, mine, strict=True)])
    for name, other in zip(names, everyone, strict=True):
        for a, b in zip(everyone[0], other, strict=False):
            if a[1:] != b[1:]:
                raise DivergenceError(
                    f"The models differ: {a[0]!r} is {a[2]} {a[1]} on {names[0]}, "
                    f"but {b[0]!r} is {b[2]} {b[1]} on {name}.",
                    remedy="build and compile the same model on all workers.",
                )
        if len(other) != len(everyone[0]):
            raise DivergenceError(
                f"The models differ: {len(everyone[0])} variables on {names[0]}, {len(other)} on {name}.",
                remedy="build and compile the same model on all workers.",
            )
