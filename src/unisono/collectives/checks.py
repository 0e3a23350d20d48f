"""What an engine accepts; the same answer from every engine."""

from __future__ import annotations

import numpy as np

from unisono.errors import ConfigurationError

REDUCIBLE = tuple(np.dtype(char) for char in "?bhilqBHILQfd")
"""The dtypes that `all_reduce` can combine, in the byte order of this machine."""


def check_reducible(array: np.ndarray) -> None:
    """Refuses an array that `all_reduce` cannot combine in place.

    Args:
        array: Any shape; must be contiguous, writable, and float32, float64, an integer or bool.

    Raises:
        ConfigurationError: If it is not.
    """
    _check_memory(array, "all_reduce")
    if array.dtype not in REDUCIBLE:
        raise ConfigurationError(
            f"all_reduce cannot combine dtype {array.dtype.name}; it takes float32, float64, integers and bool.",
            remedy="send float16 and bfloat16 as float32.",
        )


def check_in_place(array: np.ndarray, operation: str) -> None:
    """Refuses an array whose memory cannot be overwritten in one go.

    Args:
        array: Any shape and dtype.
        operation: Name of the operation, for the message.

    Raises:
        ConfigurationError: If it is not contiguous, not writable, or holds Python objects.
    """
    _check_memory(array, operation)
    check_plain(array, operation)


def check_plain(array: np.ndarray, operation: str) -> None:
    """Refuses arrays of Python objects.

    Args:
        array: Any shape and dtype.
        operation: Name of the operation, for the message.

    Raises:
        ConfigurationError: If the elements are Python objects.
    """
    if array.dtype.hasobject:
        raise ConfigurationError(
            f"{operation} moves plain memory and cannot move dtype {array.dtype.name}.",
            remedy="use unisono.collectives.objects for Python values.",
        )


def check_root(root: int, size: int) -> None:
    """Refuses a root that is no worker.

    Raises:
        ConfigurationError: If `root` is not in [0, size).
    """
    if not 0 <= root < size:
        raise ConfigurationError(f"root={root} is no rank; this job has the ranks 0 to {size - 1}.")


def _check_memory(array: np.ndarray, operation: str) -> None:
    flags = array.flags
    if not (flags.c_contiguous and flags.writeable):
        what = "read-only" if flags.c_contiguous else "not contiguous"
        raise ConfigurationError(
            f"{operation} works in place; this array of shape {array.shape} is {what}.",
            remedy="pass np.array(x, order='C').",
        )
