"""Many arrays in one flat buffer a dtype, and back: pure index arithmetic.

A plan needs only shapes and names of dtypes, so that compiled steps (which concatenate with the framework's own
operations) and NumPy code (`pack`, `unpack`) share it. float16 and bfloat16 travel as float32, because engines
cannot add them exactly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from unisono.errors import ConfigurationError

_WIDENED = {"float16": "float32", "bfloat16": "float32"}


@dataclass(frozen=True)
class Slot:
    """Where one array lies.

    Args:
        index: Position of the array in the list that was planned.
        offset: First element in the flat buffer.
        size: Number of elements.
        shape: Shape of the array.
        dtype: Name of its own dtype, which may be narrower than that of the buffer.
    """

    index: int
    offset: int
    size: int
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Buffer:
    """One flat buffer.

    Args:
        dtype: Name of the dtype in which it travels.
        size: Number of elements.
        slots: The arrays in it, in order and without gaps.
        pieces: [start, stop) ranges of elements that cover it, each sent in one operation.
    """

    dtype: str
    size: int
    slots: tuple[Slot, ...]
    pieces: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class PackPlan:
    """How a list of arrays becomes flat buffers; equal on all workers if their lists are alike.

    Args:
        buffers: One for each dtype that travels, in the order in which dtypes appear.
        count: Number of arrays planned.
    """

    buffers: tuple[Buffer, ...]
    count: int

    @classmethod
    def of(cls, shapes: Sequence[Sequence[int]], dtypes: Sequence[str], bytes_per_pack: int = 0) -> PackPlan:
        """Plans for arrays of known shapes.

        Args:
            shapes: Shape of each array.
            dtypes: Name of each dtype, e.g. "float32" or "bfloat16".
            bytes_per_pack: Largest number of bytes of a piece; 0 makes each buffer one piece.

        Returns:
            The plan.

        Raises:
            ConfigurationError: If the lists differ in length.
        """
        if len(shapes) != len(dtypes):
            raise ConfigurationError(f"{len(shapes)} shapes do not go with {len(dtypes)} dtypes.")
        slots: dict[str, list[Slot]] = {}
        for index, (shape, dtype) in enumerate(zip(shapes, dtypes, strict=True)):
            row = slots.setdefault(wire_dtype(dtype), [])
            offset = row[-1].offset + row[-1].size if row else 0
            row.append(Slot(index, offset, math.prod(shape), tuple(shape), dtype))
        return cls(tuple(_buffer(dtype, row, bytes_per_pack) for dtype, row in slots.items()), len(shapes))


def wire_dtype(dtype: str) -> str:
    """Returns the name of the dtype in which arrays of `dtype` travel."""
    return _WIDENED.get(dtype, dtype)


def pieces(size: int, itemsize: int, bytes_per_pack: int) -> tuple[tuple[int, int], ...]:
    """Cuts a flat buffer.

    Args:
        size: Number of elements.
        itemsize: Bytes of one element.
        bytes_per_pack: Largest number of bytes of a piece, at least one element; 0 for no limit.

    Returns:
        [start, stop) ranges that cover it in order; none if it is empty.
    """
    step = max(1, bytes_per_pack // itemsize) if bytes_per_pack else max(1, size)
    return tuple((start, min(start + step, size)) for start in range(0, size, step))


def pack(plan: PackPlan, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Copies arrays into new flat buffers.

    Args:
        plan: A plan made for their shapes and dtypes.
        arrays: The arrays, in the order that was planned.

    Returns:
        One flat array for each buffer of the plan.

    Raises:
        ConfigurationError: If an array does not fit the plan.
    """
    if len(arrays) != plan.count:
        raise ConfigurationError(f"{len(arrays)} arrays do not fit a plan for {plan.count}.")
    flat = []
    for buffer in plan.buffers:
        out = np.empty(buffer.size, buffer.dtype)
        for slot in buffer.slots:
            array = arrays[slot.index]
            if array.shape != slot.shape:
                raise ConfigurationError(
                    f"Array {slot.index} of shape {array.shape} does not fit a plan for shape {slot.shape}."
                )
            out[slot.offset : slot.offset + slot.size] = array.reshape(-1)
        flat.append(out)
    return flat


def unpack(plan: PackPlan, flat: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Returns the arrays that lie in flat buffers.

    Args:
        plan: The plan with which they were packed.
        flat: One flat array for each buffer of the plan.

    Returns:
        The arrays in the order that was planned: views of the buffers where the dtype travels as it is,
        converted copies where it was widened.
    """
    arrays: list[np.ndarray | None] = [None] * plan.count
    for buffer, data in zip(plan.buffers, flat, strict=True):
        for slot in buffer.slots:
            part = data[slot.offset : slot.offset + slot.size].reshape(slot.shape)
            arrays[slot.index] = part if slot.dtype == buffer.dtype else part.astype(slot.dtype)
    return [array for array in arrays if array is not None]


def _buffer(dtype: str, slots: list[Slot], bytes_per_pack: int) -> Buffer:
    size = slots[-1].offset + slots[-1].size
    return Buffer(dtype, size, tuple(slots), pieces(size, np.dtype(dtype).itemsize, bytes_per_pack))
