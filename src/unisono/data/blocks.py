"""Rows of blocks: structures of NumPy arrays with equally many rows, cut, joined and chosen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from unisono.data.batches import each
from unisono.errors import ConfigurationError


def rows(block: Any, where: str) -> int:
    """Returns the number of rows.

    Args:
        block: Structure of arrays.
        where: What made it, for messages, e.g. "The function of map()".

    Raises:
        ConfigurationError: If a leaf is no array, or arrays have different numbers of rows.
    """
    leaves: list[Any] = []
    each(leaves.append, block)
    shapes = [tuple(getattr(leaf, "shape", ())) for leaf in leaves]
    if not leaves or not all(shapes) or len({shape[0] for shape in shapes}) != 1:
        told = [shape or type(leaf).__name__ for leaf, shape in zip(leaves, shapes, strict=True)]
        raise ConfigurationError(
            f"{where} returned what does not have one row per example in each array: {told}.",
            remedy="return arrays, in dicts or tuples if you like, that all have the same first dimension.",
        )
    return int(shapes[0][0])


def take(block: Any, which: slice | np.ndarray) -> Any:
    """Returns some rows: views for a slice, else copies."""
    return each(lambda a: a[which], block)


def put(block: Any, which: np.ndarray, others: Any) -> Any:
    """Replaces some rows by all of another block, in place where their types allow it.

    Returns:
        The block.

    Raises:
        ConfigurationError: If blocks are not alike.
    """

    def replace(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        if a.shape[1:] != b.shape[1:]:
            raise ValueError(f"rows of shape {a.shape[1:]} and {b.shape[1:]}")
        if not np.can_cast(b.dtype, a.dtype):
            # Text of fixed width would be cut off without a word.
            a = a.astype(np.promote_types(a.dtype, b.dtype))
        a[which] = b
        return a

    try:
        return keras.tree.map_structure(replace, block, others)
    except (ValueError, TypeError) as error:
        raise _unlike(error) from None


def join(blocks: Sequence[Any]) -> Any:
    """Returns the rows of all blocks in new arrays.

    Raises:
        ConfigurationError: If blocks are not alike.
    """
    try:
        return keras.tree.map_structure(lambda *arrays: np.concatenate(arrays), *blocks)
    except (ValueError, TypeError) as error:
        raise _unlike(error) from None


def _unlike(error: Exception) -> ConfigurationError:
    return ConfigurationError(
        f"Blocks of rows are not alike: {str(error).splitlines()[0]}.",
        remedy="let the function of map() return the same structure, with rows of the same shape, each time.",
    )


def owned(block: Any) -> Any:
    """Returns arrays that may be written to: torch takes no others."""
    return each(lambda a: a.copy() if isinstance(a, np.ndarray) and not a.flags.writeable else a, block)
