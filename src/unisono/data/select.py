"""Chooses the source for whatever the user gave to `fit`, `evaluate` or `predict`."""

from __future__ import annotations

import types
import warnings
from typing import Any, Literal

import keras

from unisono.data import arrays, kinds
from unisono.data.arrays import validation_split
from unisono.data.base import Agreement, Source
from unisono.data.distributed import Distributed, OwnSource
from unisono.data.generator import GeneratorSource
from unisono.data.py_dataset import PyDatasetSource
from unisono.errors import ConfigurationError

__all__ = ["make_source", "validation_split"]

ACCEPTED = (
    "NumPy arrays, tensors of any framework, pandas DataFrames or Series, scipy.sparse matrices (nested in dicts, "
    "lists or tuples if you like), files (unisono.data.csv and the like), a tf.data.Dataset, a keras.utils.PyDataset, "
    "a torch DataLoader, a Grain data set, or a Python generator"
)
_FILES = "file data set"


def make_source(
    x: Any,
    y: Any = None,
    sample_weight: Any = None,
    *,
    batch_size: int | None = None,
    steps: int | None = None,
    shuffle: bool | Literal["batch"] = False,
    class_weight: dict[int, float] | None = None,
    in_order: bool = False,
    rank: int,
    size: int,
    agreement: Agreement,
) -> Source:
    """Returns the source for some data, with the meaning stock Keras gives to the arguments; collective.

    Args:
        x: Inputs, or a data set that yields batches; a `Source` is returned as it is.
        y: Targets, for arrays only.
        sample_weight: Weights of examples, for arrays only.
        batch_size: Examples of a global batch, for arrays only; 32 by default.
        steps: Steps per epoch, used only to choose a batch size for arrays that have none.
        shuffle: Whether to shuffle; for arrays and a `PyDataset` (True, the default of `fit`, says nothing of files).
        class_weight: Weight of each class of a single output, by label; for arrays, `tf.data.Dataset`,
            `PyDataset` and files.
        in_order: Whether results must come in the order of the data, as those of `predict`.
        rank: This worker.
        size: Number of workers.
        agreement: How workers agree on seeds and other choices.
        in_order: Whether batches must come in the order of the data (`predict`).

    Raises:
        ConfigurationError: If the data is of no known kind, or an argument does not go with it.
    """
    if isinstance(x, Source):
        return x
    if isinstance(x, Distributed):
        return _distributed(x, class_weight=class_weight, in_order=in_order, rank=rank, size=size, agreement=agreement)
    if x is not None and arrays.accepts(x, y, sample_weight):
        return arrays.ArraySource(
            x,
            y,
            sample_weight,
            batch_size=batch_size,
            steps=steps,
            shuffle=shuffle,
            class_weight=class_weight,
            rank=rank,
            size=size,
            agreement=agreement,
        )
    kind = _kind(x)
    if kind is None:
        raise ConfigurationError(_unknown(x, y, sample_weight), remedy=f"pass {ACCEPTED}.")
    for name, value in (("y", y), ("sample_weight", sample_weight)):
        if value is not None:
            raise ConfigurationError(
                f"{name} was given beside a {kind}, which brings its own.",
                remedy=f"leave {name} out and let the {kind} yield (x, y) or (x, y, sample_weight).",
            )
    if class_weight is not None and kind not in ("tf.data.Dataset", "PyDataset", _FILES):
        raise ConfigurationError(
            f"class_weight does not work with a {kind}. Received: class_weight={class_weight}.",
            remedy=f"let the {kind} yield (x, y, sample_weight).",
        )
    if shuffle and kind != _FILES and (kind != "PyDataset" or x.num_batches is None):
        what = "an infinite PyDataset" if kind == "PyDataset" else f"a {kind}"
        warnings.warn(
            f"shuffle={shuffle} has no effect on {what}: its order is its own affair.",
            stacklevel=2,
        )
    if kind == "tf.data.Dataset":
        from unisono.data.tensorflow_dataset import tensorflow_source

        return tensorflow_source(
            x, class_weight=class_weight, in_order=in_order, rank=rank, size=size, agreement=agreement
        )
    if kind == _FILES:
        from unisono.data.file_source import FileSource

        return FileSource(x, class_weight=class_weight, rank=rank, size=size, agreement=agreement, in_order=in_order)
    if kind == "PyDataset":
        return PyDatasetSource(
            x, shuffle=bool(shuffle), class_weight=class_weight, rank=rank, size=size, agreement=agreement
        )
    if kind == "torch DataLoader":
        from unisono.data.torch_loader import torch_source

        return torch_source(x, rank=rank, size=size, agreement=agreement)
    if kind == "Grain data set":
        from unisono.data.grain_dataset import grain_source

        return grain_source(x, rank=rank, size=size)
    return GeneratorSource(x, rank=rank, size=size, agreement=agreement)


def _distributed(given: Distributed, *, in_order: bool, rank: int, size: int, **options: Any) -> Source:
    if not given.own:
        return make_source(given.dataset, in_order=in_order, rank=rank, size=size, **options)
    if in_order and size > 1:
        raise ConfigurationError(
            "predict was given data that each worker has made for itself, so there is no order of the whole.",
            remedy="give predict the same data on all workers.",
        )
    return OwnSource(make_source(given.dataset, in_order=in_order, rank=0, size=1, **options), size)


def _kind(x: Any) -> str | None:
    if kinds.is_a(x, "tensorflow", "data.Dataset"):
        return "tf.data.Dataset"
    if isinstance(x, keras.utils.PyDataset):
        return "PyDataset"
    if kinds.is_a(x, "torch", "utils.data.DataLoader"):
        return "torch DataLoader"
    if kinds.is_a(x, "grain", "MapDataset", "IterDataset", "DataLoader"):
        return "Grain data set"
    if kinds.is_a(x, "unisono.data.file_dataset", "FileDataset"):
        return _FILES
    if isinstance(x, types.GeneratorType):
        return "generator"
    return None


def _unknown(x: Any, y: Any, sample_weight: Any) -> str:
    for name, value in (("x", x), ("y", y), ("sample_weight", sample_weight)):
        for leaf in keras.tree.flatten(value):
            if leaf is not None and not kinds.is_array(leaf):
                inside = "" if leaf is value else f" (inside a {type(value).__name__})"
                return f"{name} is of a kind that cannot be cut into batches: {type(leaf).__name__}{inside}."
    return f"x={x!r} holds no data."
