"""Several arrays, each of any number of rows, in one buffer, so that they travel in one exchange."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np


def pack(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Returns the arrays and their numbers of rows as bytes: uint8 of shape (bytes,)."""
    counts = np.array([len(array) for array in arrays], np.int64)
    return np.concatenate([np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in (counts, *arrays)])


def unpack(buffer: np.ndarray, like: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Returns what another worker has packed.

    Args:
        buffer: What its `pack` has returned.
        like: Arrays of the same dtypes and shapes, but for the number of rows.
    """
    counts = np.frombuffer(buffer[: 8 * len(like)].tobytes(), np.int64)
    offset, arrays = counts.nbytes, []
    for count, array in zip(counts.tolist(), like, strict=True):
        size = count * array.itemsize * math.prod(array.shape[1:])
        # A copy, as numbers may lie at odd places in the buffer.
        rows = np.frombuffer(buffer[offset : offset + size].tobytes(), array.dtype)
        arrays.append(rows.reshape(count, *array.shape[1:]))
        offset += size
    return arrays
