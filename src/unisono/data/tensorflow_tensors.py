"""Ragged and sparse tensors of TensorFlow, cut by rows.

On the TensorFlow backend rows stay ragged or sparse. Other backends have no such type, so rows become dense NumPy
arrays, padded with zeros to the width of the whole global batch: the width must not depend on the number of workers.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from unisono.data import kinds


def leaf(value: Any, dtype: str | None) -> RaggedLeaf | SparseLeaf:
    """Returns what cuts rows out of a `tf.RaggedTensor` or `tf.SparseTensor`.

    Args:
        value: The tensor.
        dtype: What its values are cast to; None keeps them.
    """
    if dtype is not None:
        value = tf.cast(value, dtype)
    return RaggedLeaf(value) if kinds.is_tensorflow_ragged(value) else SparseLeaf(value)


class RaggedLeaf:
    """A `tf.RaggedTensor`."""

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor
        self.rows = int(tensor.nrows())

    def take(self, mine: Any, batch: Any) -> Any:
        """Returns rows, ragged or dense by backend."""
        if keras.backend.backend() == "tensorflow":
            return _gather(self._tensor, mine)
        width = _gather(self._tensor, batch).bounding_shape()[1:]
        return _gather(self._tensor, mine).to_tensor(shape=[None, *width.numpy()]).numpy()

    def split(self, at: int) -> tuple[Any, Any]:
        """Returns two ragged tensors."""
        return self._tensor[:at], self._tensor[at:]


class SparseLeaf:
    """A `tf.SparseTensor` of any number of dimensions, kept as ragged rows of indices and values."""

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor
        self.rows = int(tensor.shape[0])
        ordered = tf.sparse.reorder(tensor)
        self._indices = ordered.indices.numpy()
        self._values = ordered.values
        self._starts = np.searchsorted(self._indices[:, 0], np.arange(self.rows + 1))

    def take(self, mine: Any, batch: Any) -> Any:
        """Returns rows, sparse or dense by backend."""
        rows = np.arange(self.rows)[mine]
        counts = self._starts[rows + 1] - self._starts[rows]
        at = np.concatenate([np.arange(self._starts[r], self._starts[r + 1]) for r in rows])
        indices = self._indices[at]
        indices[:, 0] = np.repeat(np.arange(len(rows)), counts)
        shape = [len(rows), *self._tensor.shape[1:]]
        return _by_backend(tf.SparseTensor(indices, tf.gather(self._values, at), shape))

    def split(self, at: int) -> tuple[Any, Any]:
        """Returns two sparse tensors."""
        return cut_sparse(self._tensor, slice(0, at)), cut_sparse(self._tensor, slice(at, self.rows))


def cut(value: Any, part: slice) -> Any:
    """Returns consecutive rows of a ragged or sparse batch, dense unless the backend is TensorFlow."""
    if kinds.is_tensorflow_sparse(value):
        return _by_backend(cut_sparse(value, part))
    return RaggedLeaf(value).take(part, slice(None))


def cut_sparse(value: Any, part: slice) -> Any:
    """Returns consecutive rows of a `tf.SparseTensor`."""
    shape = value.dense_shape.numpy()
    start = np.zeros_like(shape)
    start[0] = part.start
    size = shape.copy()
    size[0] = part.stop - part.start
    return tf.sparse.slice(value, start, size)


def sparse_from_scipy(matrix: Any) -> Any:
    """Returns a `scipy.sparse` matrix as `tf.SparseTensor`."""
    coo = matrix.tocoo()
    indices = np.stack([coo.row, coo.col], axis=1).astype(np.int64)
    return tf.sparse.reorder(tf.SparseTensor(indices, coo.data, coo.shape))


def _by_backend(sparse: Any) -> Any:
    return sparse if keras.backend.backend() == "tensorflow" else tf.sparse.to_dense(sparse).numpy()


def _gather(tensor: Any, rows: Any) -> Any:
    return tensor[rows] if isinstance(rows, slice) else tf.gather(tensor, rows)
