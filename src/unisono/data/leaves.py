"""Single arrays as the user gave them, and how to take rows of them cheaply.

Dense arrays of any framework become NumPy views once; rows are cut and cast per batch, so the whole is never
copied. Sparse and ragged ones are cut per batch as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import keras
import numpy as np

from unisono.data import kinds
from unisono.errors import ConfigurationError

Rows = slice | np.ndarray


class Leaf(Protocol):
    """One array, indexable by rows."""

    rows: int
    """Number of rows."""

    def take(self, mine: Rows, batch: Rows) -> Any:
        """Returns some rows.

        Args:
            mine: Rows this worker wants, at least one.
            batch: Rows of the whole global batch, for arrays whose padding depends on it.
        """

    def split(self, at: int) -> tuple[Any, Any]:
        """Returns the rows before `at` and from `at` on, as objects `leaf` takes."""


class DenseLeaf:
    """A NumPy array or a view of something like it.

    Args:
        array: At least one-dimensional; never written to.
        dtype: What rows are cast to; None keeps them.
    """

    def __init__(self, array: np.ndarray, dtype: str | None = None) -> None:
        if array.ndim == 0:
            raise ConfigurationError(
                f"An array without dimensions cannot be cut into batches. Received: {array!r}.",
                remedy="give one row per example, e.g. np.asarray([value]).",
            )
        self.rows = array.shape[0]
        self._array = array
        self._dtype = dtype
        # `ndarray.take` is faster than indexing, but would first copy an array that is not contiguous as a whole.
        self._take: Callable[..., np.ndarray] | None = array.take if array.flags.c_contiguous else None

    def take(self, mine: Rows, batch: Rows) -> np.ndarray:
        """Returns rows: a view for a slice of a writable array, else a copy of just these rows."""
        if type(mine) is slice or self._take is None:
            rows = self._array[mine]
        else:
            rows = self._take(mine, 0)
        if self._dtype is not None:
            return rows.astype(self._dtype)
        # Torch cannot take over memory it must not write to.
        return rows if rows.flags.writeable else rows.copy()

    def split(self, at: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns two views."""
        return self._array[:at], self._array[at:]


class ScipyLeaf:
    """A `scipy.sparse` matrix; rows become a `tf.SparseTensor` on the TensorFlow backend, else dense NumPy arrays."""

    def __init__(self, matrix: Any) -> None:
        self._matrix = matrix.tocsr()
        self._dtype = _cast(self._matrix.dtype)
        self.rows = int(self._matrix.shape[0])

    def take(self, mine: Rows, batch: Rows) -> Any:
        """Returns rows, converted."""
        rows = self._matrix[mine]
        if self._dtype is not None:
            rows = rows.astype(self._dtype)
        if keras.backend.backend() == "tensorflow":
            from unisono.data import tensorflow_tensors

            return tensorflow_tensors.sparse_from_scipy(rows)
        return rows.toarray()

    def split(self, at: int) -> tuple[Any, Any]:
        """Returns two matrices."""
        return self._matrix[:at], self._matrix[at:]


def leaf(value: Any) -> Leaf:
    """Returns what cuts rows out of one array.

    Floating-point values of another width than `keras.config.floatx()` are cast to it, as in stock Keras;
    integers, booleans and strings are kept. A DataFrame whose columns do not share one dtype is copied once.

    Args:
        value: NumPy array, tensor of any framework (dense, or ragged or sparse of TensorFlow), pandas DataFrame or
            Series, `scipy.sparse` matrix, or anything with `__array__`.

    Raises:
        ConfigurationError: If it is none of these.
    """
    if kinds.is_tensorflow_ragged(value) or kinds.is_tensorflow_sparse(value):
        from unisono.data import tensorflow_tensors

        return tensorflow_tensors.leaf(value, _cast(value.dtype))
    if kinds.is_scipy_sparse(value):
        return ScipyLeaf(value)
    if kinds.is_jax_sparse(value):
        return ScipyLeaf(_scipy_from_jax(value))
    array = dense(value)
    return DenseLeaf(array, _cast(array.dtype))


def few_values(array: Leaf, rows: np.ndarray) -> np.ndarray:
    """Returns a few values of some rows, without a copy of more.

    Args:
        array: Where they lie.
        rows: Numbers of the rows.

    Returns:
        Up to 8 of each row, of shape (n,); for arrays that are not dense, all that these rows hold.
    """
    if isinstance(array, DenseLeaf):
        flat = [array.take(slice(row, row + 1), slice(row, row + 1)).reshape(-1) for row in rows.tolist()]
        return np.concatenate([values[:: max(1, values.size // 8)][:8] for values in flat])
    taken = array.take(rows, rows)
    if kinds.is_tensorflow_ragged(taken):
        taken = taken.flat_values
    elif kinds.is_tensorflow_sparse(taken):
        taken = taken.values
    return np.asarray(taken).reshape(-1)


def dense(value: Any) -> np.ndarray:
    """Returns a NumPy array that shares the memory of `value` where that is possible.

    A Series becomes one column of shape (rows, 1). A tensor of torch on a device is copied to the host.
    """
    if kinds.is_a(value, "torch", "Tensor"):
        value = value.detach().cpu()
        if value.is_floating_point() and value.element_size() < 4:
            # NumPy has no bfloat16; half precision is cast to floatx later anyhow.
            value = value.float()
        return np.asarray(value.numpy())
    if kinds.is_a(value, "pandas", "DataFrame"):
        floats = any(_cast(d) is not None for d in value.dtypes)
        return np.asarray(value.to_numpy(dtype=keras.config.floatx() if floats and _numeric(value) else None))
    if kinds.is_a(value, "pandas", "Series"):
        return np.expand_dims(value.to_numpy(), -1)
    if kinds.is_array(value):
        return np.asarray(value)
    raise ConfigurationError(f"Expected an array, got {type(value).__name__}: {str(value)[:80]}.")


def _numeric(frame: Any) -> bool:
    return all(getattr(d, "kind", "O") in "biuf" for d in frame.dtypes)


def _cast(dtype: Any) -> str | None:
    """Returns floatx if `dtype` is a floating-point type of another width, else None."""
    name = getattr(dtype, "name", str(dtype))
    if "float" not in name.lower() or not keras.backend.is_float_dtype(name.lower()):
        return None
    floatx: str = keras.config.floatx()
    return None if name == floatx else floatx


def _scipy_from_jax(value: Any) -> Any:
    if value.ndim != 2 or getattr(value, "n_batch", 0):
        raise ConfigurationError(
            f"A sparse JAX array of shape {value.shape} cannot be cut into batches.",
            remedy="use a two-dimensional one without batch dimensions, or pass x.todense().",
        )
    from scipy import sparse

    indices = np.asarray(value.indices)
    return sparse.coo_matrix((np.asarray(value.data), (indices[:, 0], indices[:, 1])), shape=value.shape)
