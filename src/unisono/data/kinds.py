"""Recognises objects of libraries that may not be installed, without importing any of them.

An object of a library can only exist once the library has been imported, so `sys.modules` knows.
"""

from __future__ import annotations

import sys


def is_a(value: object, module: str, *paths: str) -> bool:
    """Returns whether `value` is an instance of a class found under `module` by one of the dotted `paths`."""
    for path in paths:
        found: object = sys.modules.get(module)
        for name in path.split("."):
            found = getattr(found, name, None)
        if isinstance(found, type) and isinstance(value, found):
            return True
    return False


def is_scipy_sparse(value: object) -> bool:
    """Returns whether `value` is a matrix or array of `scipy.sparse`."""
    return type(value).__module__.startswith("scipy.sparse") and hasattr(value, "tocsr")


def is_jax_sparse(value: object) -> bool:
    """Returns whether `value` is a `jax.experimental.sparse` array."""
    return type(value).__module__.startswith("jax.experimental.sparse")


def is_tensorflow_ragged(value: object) -> bool:
    """Returns whether `value` is a `tf.RaggedTensor`."""
    return is_a(value, "tensorflow", "RaggedTensor")


def is_tensorflow_sparse(value: object) -> bool:
    """Returns whether `value` is a `tf.SparseTensor`."""
    return is_a(value, "tensorflow", "SparseTensor")


def is_array(value: object) -> bool:
    """Returns whether `value` can be sliced by rows: an array, a tensor of any framework, pandas, or sparse."""
    return (
        hasattr(value, "__array__")
        or is_scipy_sparse(value)
        or is_jax_sparse(value)
        or is_tensorflow_ragged(value)
        or is_tensorflow_sparse(value)
    ) and not isinstance(value, type)
