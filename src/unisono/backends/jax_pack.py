"""Many JAX arrays in one flat array a dtype, and back, inside a compiled function."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from unisono.backends.base import WIRE_DTYPE, Tensor, group_by_dtype


def pack(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Returns the tensors in one flat array for each dtype that travels."""
    flats = []
    for dtype, positions in _groups(tensors).items():
        parts = [jnp.reshape(tensors[i], -1).astype(dtype) for i in positions]
        flats.append(jnp.concatenate(parts) if len(parts) > 1 else parts[0])
    return flats


def unpack(flats: Sequence[Tensor], like: Sequence[Any]) -> list[Tensor]:
    """Returns what `pack` has packed.

    Args:
        flats: Flat arrays, as `pack(like)` makes them, longer ones are cut.
        like: Anything with the shapes and dtypes of the tensors.
    """
    results: list[Tensor] = [None] * len(like)
    for flat, positions in zip(flats, _groups(like).values(), strict=True):
        offset = 0
        for i in positions:
            size = math.prod(like[i].shape)
            piece = jax.lax.slice(flat, (offset,), (offset + size,))
            results[i] = piece.reshape(like[i].shape).astype(like[i].dtype)
            offset += size
    return results


def lengths(like: Sequence[Any]) -> list[tuple[int, str]]:
    """Returns number of elements and dtype of each flat array that `pack(like)` makes."""
    return [(sum(math.prod(like[i].shape) for i in positions), dtype) for dtype, positions in _groups(like).items()]


def _groups(like: Sequence[Any]) -> dict[str, list[int]]:
    return group_by_dtype([WIRE_DTYPE.get(str(t.dtype), str(t.dtype)) for t in like])
