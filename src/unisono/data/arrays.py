"""Arrays in memory: NumPy, pandas, tensors of any framework, nested in dicts, lists and tuples.

Every worker holds the whole (as a script's `load_data()` gives it) and touches only its own rows of each global
batch. Shuffles use one agreed seed per epoch, so that global batches do not depend on the number of workers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Literal

import keras
import numpy as np

from unisono.data import class_weights, kinds, shard
from unisono.data.base import Agreement, Glance, Part, Source
from unisono.data.leaves import Leaf, Rows, dense, few_values, leaf
from unisono.data.policy import Way
from unisono.data.report import Report, Share
from unisono.errors import ConfigurationError

DEFAULT_BATCH_SIZE = 32
_ROWS_SEEN = 32
"""Rows that are compared between the workers."""


class ArraySource(Source):
    """Global batches cut from arrays.

    Args:
        x: Inputs: an array or nested structure of arrays; all have the same number of rows.
        y: Targets, likewise; None without targets.
        sample_weight: One weight per example, or the same structure as `y`.
        batch_size: Examples of a global batch; None for 32, or enough for `steps` batches.
        steps: Steps per epoch, used only to choose a batch size.
        shuffle: False, True (rows of the whole epoch) or "batch" (only within each global batch).
        class_weight: Weight of each class of a single output, by label; classes not named weigh 1.
        rank: This worker.
        size: Number of workers.
        agreement: Gives the seed of each epoch's order.

    Raises:
        ConfigurationError: If arrays disagree in their number of rows, are empty, or arguments do not go together.
    """

    def __init__(
        self,
        x: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        batch_size: int | None = None,
        steps: int | None = None,
        shuffle: bool | Literal["batch"] = False,
        class_weight: dict[int, float] | None = None,
        rank: int,
        size: int,
        agreement: Agreement,
    ) -> None:
        sample_weight = _weights(y, sample_weight, class_weight)
        self._bare = y is None and not isinstance(x, tuple | list)
        data = (x,) if y is None else (x, y) if sample_weight is None else (x, y, sample_weight)
        self._examples = _rows(data)
        names = ("x", "y", "sample_weight")
        self._form = ", ".join(f"{name} {_forms(value)}" for name, value in zip(names, data, strict=False))
        self._leaves = keras.tree.map_structure(lambda a: None if a is None else leaf(a), data)
        self._batch_size = batch_size or (math.ceil(self._examples / steps) if steps else DEFAULT_BATCH_SIZE)
        self.num_batches: int = shard.num_batches(self._examples, self._batch_size)
        self._shuffle = shuffle
        self._rank = rank
        self._size = size
        self._agreement = agreement

    def epoch(self) -> Iterator[Part]:
        """One full pass; see `Source.epoch`."""
        rng = order = None
        if self._shuffle == "batch":
            rng = np.random.Generator(np.random.PCG64(self._agreement.seed()))
        elif self._shuffle:
            order = shard.permutation(self._examples, self._agreement.seed())
        full = shard.slice_of(self._batch_size, self._rank, self._size)
        for start in range(0, self._examples, self._batch_size):
            stop = min(start + self._batch_size, self._examples)
            total = stop - start
            part = full if total == self._batch_size else shard.slice_of(total, self._rank, self._size)
            batch: Rows
            if order is not None:
                batch = order[start:stop]
            elif rng is not None:
                batch = rng.permutation(total) + start
            else:
                batch = slice(start, stop)
            yield self._part(part, batch, start, total)

    def _part(self, part: slice, batch: Rows, start: int, total: int) -> Part:
        local = part.stop - part.start
        if local == 0:
            return Part(None, 0, total, 0, self._bare)
        mine: Rows
        if isinstance(batch, slice):
            mine = slice(start + part.start, start + part.stop)
        else:
            mine = batch[part].astype(np.intp)
        return Part(_take(self._leaves, mine, batch), local, total, 0, self._bare)

    def sample(self) -> tuple[Any, ...]:
        """Returns the first examples, as many as this worker gets of a full batch, at least one."""
        share = shard.slice_of(min(self._batch_size, self._examples), self._rank, self._size)
        rows = slice(0, max(1, share.stop - share.start))
        data: tuple[Any, ...] = _take(self._leaves, rows, rows)
        return data

    def glance(self) -> Glance:
        """Returns values of some rows, spread over the arrays."""
        rows = np.unique(np.linspace(0, self._examples - 1, _ROWS_SEEN).astype(np.intp))
        leaves: list[Leaf] = [each for each in keras.tree.flatten(self._leaves) if each is not None]
        return Glance(self._form, tuple(few_values(each, rows) for each in leaves))

    def report(self) -> Report:
        """Returns how the workers share the examples."""
        whole, rest = divmod(self._examples, self._batch_size)
        slices = [
            [shard.slice_of(rows, worker, self._size) for rows in (self._batch_size, rest)]
            for worker in range(self._size)
        ]
        shares = [
            Share(worker, None, None, whole * (full.stop - full.start) + last.stop - last.start)
            for worker, (full, last) in enumerate(slices)
        ]
        return Report("arrays", Way.SLICES, "rows can be picked", shares)

    def describe(self) -> str:
        """Returns one line for the log."""
        mine = "" if self._size == 1 else "; this worker prepares only its own slice"
        return f"arrays: {self._examples:,} examples, {self.num_batches:,} global batches of {self._batch_size:,}{mine}"


def accepts(*structures: Any) -> bool:
    """Returns whether every leaf is an array or None."""
    return all(a is None or kinds.is_array(a) for a in keras.tree.flatten(structures))


def validation_split(x: Any, y: Any, sample_weight: Any, fraction: float) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Sets the last part of arrays aside, before any shuffle.

    Args:
        x: Array or nested structure of arrays.
        y: Likewise, or None.
        sample_weight: Likewise, or None.
        fraction: Part to set aside, between 0 and 1.

    Returns:
        `(x, y, sample_weight)` to train on and `(x, y, sample_weight)` to validate on: views, not copies.

    Raises:
        ConfigurationError: If something is not an array, or one of the two parts would be empty.
    """
    if not accepts(x, y, sample_weight):
        odd = next(a for a in keras.tree.flatten((x, y, sample_weight)) if a is not None and not kinds.is_array(a))
        raise ConfigurationError(
            f"validation_split={fraction} needs arrays, but the data is of type {type(odd).__name__}.",
            remedy="pass validation_data=..., or split the data set yourself.",
        )
    rows = _rows((x, y, sample_weight))
    at = math.floor(rows * (1.0 - fraction))
    if not 0 < at < rows:
        raise ConfigurationError(
            f"validation_split={fraction} of {rows} examples leaves nothing to train on, or nothing to validate on.",
            remedy="choose another fraction, or pass validation_data=...",
        )

    def cut(a: Any) -> tuple[Any, Any]:
        if a is None:
            return None, None
        if hasattr(a, "iloc"):
            return a.iloc[:at], a.iloc[at:]
        return leaf(a).split(at)

    train = keras.tree.map_structure(lambda a: cut(a)[0], (x, y, sample_weight))
    held = keras.tree.map_structure(lambda a: cut(a)[1], (x, y, sample_weight))
    return train, held


def _take(node: Any, mine: Rows, batch: Rows) -> Any:
    """Takes rows of every leaf; a walk of our own, as `keras.tree` costs more than the rows."""
    kind = type(node)
    if kind is tuple:
        return tuple([_take(n, mine, batch) for n in node])
    if kind is dict:
        return {k: _take(n, mine, batch) for k, n in node.items()}
    if kind is list:
        return [_take(n, mine, batch) for n in node]
    if node is None:
        return None
    if hasattr(node, "take"):
        return node.take(mine, batch)
    return keras.tree.map_structure(lambda n: None if n is None else n.take(mine, batch), node)


def _weights(y: Any, sample_weight: Any, class_weight: dict[int, float] | None) -> Any:
    """Returns the weights of the examples in the structure Keras expects, or None."""
    if class_weight is not None:
        if sample_weight is not None:
            raise ConfigurationError(
                "Both class_weight and sample_weight were given; only one of them can say what an example weighs."
            )
        if y is None or keras.tree.is_nested(y):
            raise ConfigurationError("class_weight needs the targets of exactly one output, given as one array y.")
        return class_weights.sample_weights(dense(y), class_weight)
    if sample_weight is None or y is None or not keras.tree.is_nested(y):
        return sample_weight
    if isinstance(sample_weight, list | tuple | dict):
        try:
            keras.tree.assert_same_structure(y, sample_weight)
        except (ValueError, TypeError):
            raise ConfigurationError(
                "sample_weight must have one array per output, nested like y. Received: "
                f"y={_shapes(y)}, sample_weight={_shapes(sample_weight)}."
            ) from None
        return sample_weight
    shape = tuple(sample_weight.shape)
    if len(shape) > 2 or (len(shape) == 2 and shape[1] != 1):
        raise ConfigurationError(
            f"A single sample_weight for several outputs needs one number per example. Received: shape {shape}.",
            remedy="pass one sample_weight array per output, nested like y.",
        )
    return keras.tree.map_structure(lambda _: sample_weight, y)


def _rows(data: tuple[Any, ...]) -> int:
    """Returns the number of rows all arrays share."""
    counts = {int(a.shape[0]) if len(a.shape) else -1 for a in keras.tree.flatten(data) if a is not None}
    if len(counts) != 1 or counts & {-1, 0}:
        names = ("x", "y", "sample_weight")
        shapes = ", ".join(f"{n}={_shapes(d)}" for n, d in zip(names, data, strict=False))
        wrong = "hold no examples" if counts <= {0} else "must have the same number of rows"
        raise ConfigurationError(f"Data cardinality: the arrays of x, y and sample_weight {wrong}. Shapes: {shapes}.")
    return counts.pop()


def _forms(structure: Any) -> Any:
    return keras.tree.map_structure(
        lambda a: None if a is None else f"{tuple(a.shape)} {getattr(a, 'dtype', type(a).__name__)}", structure
    )


def _shapes(structure: Any) -> Any:
    return keras.tree.map_structure(lambda a: None if a is None else str(tuple(a.shape)), structure)
