"""Values of all workers become one: sums, means and concatenations of nested structures."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from unisono.errors import ConfigurationError

if TYPE_CHECKING:
    from unisono.training.custom import CustomLoops

Axis = int | Sequence[int]


class ReduceOp(enum.Enum):
    """How the values of the workers become one; the names are TensorFlow's."""

    SUM = "SUM"
    MEAN = "MEAN"

    @classmethod
    def of(cls, given: object) -> ReduceOp:
        """Returns what a user means.

        Args:
            given: A member, one of `tf.distribute.ReduceOp`, or its name in any case.

        Raises:
            ConfigurationError: If it is neither a sum nor a mean.
        """
        name = str(getattr(given, "name", given)).upper()
        if name not in cls.__members__:
            raise ConfigurationError(
                f"Workers' values are combined by SUM or MEAN. Received: {given!r}.",
                remedy="pass unisono.ReduceOp.SUM or unisono.ReduceOp.MEAN.",
            )
        return cls[name]


def all_reduce(loops: CustomLoops, op: ReduceOp, value: Any) -> Any:
    """Adds or averages a structure of tensors over all workers; see `unisono.all_reduce`."""
    if loops.size == 1:
        return value

    def combined(leaves: list[Any]) -> list[Any]:
        results = _mean_of(leaves, loops) if op is ReduceOp.MEAN else loops.total(leaves)
        loops.remember_sums(results)
        return results

    return _on_leaves(combined, value, _number)


def reduce(loops: CustomLoops, op: ReduceOp, value: Any, axis: Axis | None) -> Any:
    """Adds or averages a structure of values over all workers; see the strategy's `reduce`."""
    if axis is None:
        return _on_leaves(
            lambda leaves: _mean_of(leaves, loops) if op is ReduceOp.MEAN else loops.total(leaves), value, _number
        )
    axes = (axis,) if isinstance(axis, int) else tuple(axis)

    def combined(leaves: list[Any]) -> list[Any]:
        for leaf in leaves:
            _check_axes(leaf, axes, "reduce")
        if op is ReduceOp.SUM:
            return loops.total([_sum(leaf, axes) for leaf in leaves])
        return _mean_along(leaves, axes, loops)

    return _on_leaves(combined, value, _number)


def gather(loops: CustomLoops, value: Any, axis: int) -> Any:
    """Concatenates a structure of values over all workers; see the strategy's `gather`."""

    def joined(leaves: list[Any]) -> list[Any]:
        for leaf in leaves:
            _check_axes(leaf, (axis,), "gather")
        return [loops.concatenated(leaf, axis % len(leaf.shape)) for leaf in leaves]

    return _on_leaves(joined, value, _tensor)


def broadcast(loops: CustomLoops, value: Any) -> Any:
    """Returns the chief's structure of values on all workers; see `unisono.broadcast`."""
    return value if loops.size == 1 else _on_leaves(loops.broadcast, value, _tensor)


def _on_leaves(function: Callable[[list[Any]], list[Any]], value: Any, convert: Callable[[Any], Any]) -> Any:
    """Applies a function to all leaves at once, so that they travel together; None stays None."""
    import keras

    leaves = keras.tree.flatten(value)
    present = [i for i, leaf in enumerate(leaves) if leaf is not None]
    for i, result in zip(present, function([convert(leaves[i]) for i in present]), strict=True):
        leaves[i] = result
    return keras.tree.pack_sequence_as(value, leaves)


def _tensor(leaf: Any) -> Any:
    import keras

    return keras.ops.convert_to_tensor(leaf)


def _number(leaf: Any) -> Any:
    import keras

    tensor = _tensor(leaf)
    dtype = keras.backend.standardize_dtype(tensor.dtype)
    if not (keras.backend.is_float_dtype(dtype) or keras.backend.is_int_dtype(dtype)):
        raise ConfigurationError(
            f"Only numbers can be added over workers. Received: a value of dtype {dtype}.",
            remedy='cast it, for example by keras.ops.cast(value, "int32").',
        )
    return tensor


def _mean_of(leaves: list[Any], loops: CustomLoops) -> list[Any]:
    if loops.size == 1:
        return leaves
    wide = [_wide(leaf) for leaf in leaves]
    means = [total / loops.size for total in loops.total(wide)]
    return [_narrow(mean, leaf) for mean, leaf in zip(means, leaves, strict=True)]


def _mean_along(leaves: list[Any], axes: tuple[int, ...], loops: CustomLoops) -> list[Any]:
    import keras

    wide = [_wide(leaf) for leaf in leaves]
    # A worker's mean counts by the number of its elements: sum over sum, in one exchange.
    counts = [keras.ops.cast(_count(leaf, axes), w.dtype) for leaf, w in zip(leaves, wide, strict=True)]
    totals = loops.total([*(_sum(w, axes) for w in wide), *counts])
    sums, numbers = totals[: len(leaves)], totals[len(leaves) :]
    return [_narrow(s / n, leaf) for s, n, leaf in zip(sums, numbers, leaves, strict=True)]


def _sum(leaf: Any, axes: tuple[int, ...]) -> Any:
    import keras

    return keras.ops.cast(keras.ops.sum(leaf, axis=axes), leaf.dtype)


def _count(leaf: Any, axes: tuple[int, ...]) -> Any:
    import keras

    lengths = [keras.ops.shape(leaf)[axis] for axis in axes]
    if all(isinstance(length, int) for length in lengths):
        return math.prod(lengths)
    return keras.ops.prod(keras.ops.stack([keras.ops.cast(length, "float32") for length in lengths]))


def _wide(leaf: Any) -> Any:
    """Returns a value in a type whose sums and quotients lose nothing that shows."""
    import keras

    dtype = keras.backend.standardize_dtype(leaf.dtype)
    if dtype in ("float32", "float64"):
        return leaf
    narrow = keras.backend.is_float_dtype(dtype) or keras.backend.backend() == "jax"
    return keras.ops.cast(leaf, "float32" if narrow else "float64")


def _narrow(mean: Any, leaf: Any) -> Any:
    import keras

    return keras.ops.cast(mean, leaf.dtype) if keras.backend.is_float_dtype(leaf.dtype) else mean


def _check_axes(leaf: Any, axes: tuple[int, ...], what: str) -> None:
    rank = len(leaf.shape)
    for axis in axes:
        if not -rank <= axis < rank:
            raise ConfigurationError(
                f"{what} cannot work along axis {axis} of a value with {rank} dimensions, shape {tuple(leaf.shape)}.",
                remedy="pass axis=None to combine the values as they are." if what == "reduce" else None,
            )
