"""`class_weight` as weights of examples."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from unisono.errors import ConfigurationError


def sample_weights(y: np.ndarray, class_weight: dict[int, float]) -> np.ndarray:
    """Returns the weight of each example's class.

    Args:
        y: Labels of shape (rows,) or (rows, ..., 1), rounded to integers, or one-hot along the last axis.
        class_weight: Weight by label; labels not named weigh 1.

    Returns:
        Array of `keras.config.floatx()`, of the shape of `y` without its last axis if it has several.
    """
    if y.ndim > 1:
        y = y[..., 0] if y.shape[-1] == 1 else np.argmax(y, axis=-1)
    labels = np.round(y).astype(np.int64)
    weights = np.ones(labels.shape, keras.config.floatx())
    if class_weight:
        known = np.array(sorted(class_weight), dtype=np.int64)
        values = np.array([class_weight[k] for k in sorted(class_weight)], dtype=weights.dtype)
        at = np.minimum(np.searchsorted(known, labels), len(known) - 1)
        weights = np.where(known[at] == labels, values[at], weights)
    return weights


def weigh(data: tuple[Any, ...], class_weight: dict[int, float] | None) -> tuple[Any, ...]:
    """Adds the weights of a batch `(x, y)`.

    Args:
        data: `(x,)`, `(x, y)` or `(x, y, sample_weight)` with NumPy arrays as targets.
        class_weight: Weight by label, or None to leave `data` alone.

    Raises:
        ConfigurationError: If the batch has weights already, no targets, or several outputs.
    """
    if class_weight is None:
        return data
    if len(data) == 3 and data[2] is not None:
        raise ConfigurationError(
            "class_weight was given, but the data set yields sample weights too; only one of them can say what an "
            "example weighs."
        )
    if len(data) < 2 or data[1] is None or keras.tree.is_nested(data[1]):
        raise ConfigurationError(
            "class_weight needs the targets of exactly one output: batches of the form (x, y) with one array y."
        )
    return (data[0], data[1], sample_weights(np.asarray(data[1]), class_weight))
