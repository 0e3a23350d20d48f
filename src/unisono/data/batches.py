"""Global batches that every worker reads whole: their size, this worker's slice of them, and their fingerprint."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from unisono.data import kinds
from unisono.data.leaves import ScipyLeaf
from unisono.errors import ConfigurationError

SAMPLED_BYTES = 2048
"""Bytes of each array that go into a fingerprint."""


def as_data(element: Any) -> tuple[tuple[Any, ...], bool]:
    """Brings what a data set yields into the form of `Part.data`.

    Args:
        element: A tuple or list `(x,)`, `(x, y)`, `(x, y, sample_weight)`, or anything else, which is x itself.

    Returns:
        The tuple, and whether stock Keras would hand the element itself to `train_step`.
    """
    if isinstance(element, list):
        element = tuple(element)
    if type(element) is tuple:
        return element, False
    return (element,), True


def each(function: Callable[[Any], Any], node: Any) -> Any:
    """Maps the leaves of a batch; a walk of our own, as `keras.tree` costs more than the work on a small batch."""
    kind = type(node)
    if kind is tuple:
        return tuple([each(function, n) for n in node])
    if kind is dict:
        return {k: each(function, n) for k, n in node.items()}
    if kind is list:
        return [each(function, n) for n in node]
    if node is None or hasattr(node, "shape"):
        return function(node)
    return keras.tree.map_structure(function, node)


def _leaves(data: Any) -> list[Any]:
    found: list[Any] = []
    each(found.append, data)
    return [a for a in found if a is not None]


def to_host(data: Any, where: str) -> Any:
    """Turns every array of a batch into NumPy, sharing memory where possible; TensorFlow's ragged and sparse stay.

    Args:
        data: Nested structure of arrays and None.
        where: What yielded it, for messages, e.g. "The generator".
    """

    def convert(a: Any) -> Any:
        if a is None or isinstance(a, np.ndarray):
            return a
        if kinds.is_tensorflow_ragged(a) or kinds.is_tensorflow_sparse(a) or kinds.is_scipy_sparse(a):
            return a
        if kinds.is_a(a, "torch", "Tensor"):
            return a.detach().cpu().numpy()
        if kinds.is_jax_sparse(a):
            return np.asarray(a.todense())
        if kinds.is_array(a):
            return np.asarray(a)
        raise ConfigurationError(
            f"{where} yielded a batch with {type(a).__name__} ({str(a)[:80]}) where an array is needed.",
            remedy="yield (x,), (x, y) or (x, y, sample_weight), each an array with one row per example, or a nested "
            "structure of such arrays.",
        )

    return each(convert, data)


def is_ready(data: Any) -> bool:
    """Returns whether a batch is in the form that the step takes, so that a worker need not copy what is its own."""
    if keras.backend.backend() != "tensorflow":
        return False
    return all(kinds.is_a(a, "tensorflow", "Tensor") for a in _leaves(data))


def rows(data: Any, where: str) -> int:
    """Returns the number of examples of a batch.

    Args:
        data: Nested structure of arrays (as `to_host` returns it) and None.
        where: What yielded it, for messages.

    Raises:
        ConfigurationError: If an array has no dimensions, or arrays disagree.
    """
    shapes = [tuple(a.shape) for a in _leaves(data)]
    counts = {int(s[0]) if s else -1 for s in shapes}
    if len(counts) != 1 or -1 in counts:
        raise ConfigurationError(
            f"{where} yielded a batch whose arrays do not have one row per example each. Shapes: {shapes}.",
            remedy="yield whole (global) batches: all arrays with the same first dimension.",
        )
    return counts.pop()


def cut(data: Any, part: slice) -> Any:
    """Returns some rows of a batch: views of NumPy arrays; on torch copies of read-only ones, which it cannot take.

    Ragged and sparse arrays are made dense, padded to the width of the whole batch, unless the backend is TensorFlow.
    """
    copies = keras.backend.backend() == "torch"

    def take(a: Any) -> Any:
        if a is None:
            return None
        if kinds.is_tensorflow_ragged(a) or kinds.is_tensorflow_sparse(a):
            from unisono.data import tensorflow_tensors

            return tensorflow_tensors.cut(a, part)
        if kinds.is_scipy_sparse(a):
            return ScipyLeaf(a).take(part, part)
        return a[part].copy() if copies and not a.flags.writeable else a[part]

    return each(take, data)


def first_row(data: Any, where: str) -> Any:
    """Returns the first row of a batch in the form of `to_host`; arguments as there."""
    return cut(to_host(data, where), slice(0, 1))


def fingerprint(*structures: Any) -> int:
    """Returns a cheap hash of arrays that tells different batches, or the same rows in another order, apart.

    Shapes, dtypes and about `SAMPLED_BYTES` bytes spread over each array are hashed with CRC-32.

    Returns:
        1 to 2**32 - 1.
    """
    crc = 0
    for a in keras.tree.flatten(structures):
        if a is None:
            continue
        if kinds.is_tensorflow_ragged(a):
            crc = _hash(np.asarray(a.flat_values), crc)
            crc = _hash(np.asarray(a.row_splits), crc)
        elif kinds.is_tensorflow_sparse(a):
            crc = _hash(np.asarray(a.values), crc)
            crc = _hash(np.asarray(a.indices), crc)
        elif kinds.is_scipy_sparse(a):
            matrix = a.tocsr()
            crc = _hash(matrix.data, crc)
            crc = _hash(matrix.indices, crc)
        else:
            crc = _hash(a, crc)
    return crc or 1


def _hash(array: np.ndarray, crc: int) -> int:
    crc = zlib.crc32(f"{array.shape}{array.dtype}".encode(), crc)
    if array.size == 0:
        return crc
    if array.dtype.hasobject or array.dtype.kind in "UT":
        flat = array.reshape(-1)
        for value in flat[:: max(1, flat.size // 64)].tolist():
            crc = zlib.crc32(value if isinstance(value, bytes) else str(value).encode(), crc)
        return crc
    if not array.flags.c_contiguous:
        array = np.ascontiguousarray(array[:: max(1, len(array) // 64)])
    raw = array.reshape(-1).view(np.uint8)
    # An odd stride, so that not the same byte of every number is looked at.
    step = (raw.size // SAMPLED_BYTES) | 1 if raw.size > SAMPLED_BYTES else 1
    return zlib.crc32(raw[::step].tobytes(), crc)
