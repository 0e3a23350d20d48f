"""What ops of a TensorFlow function make of tensors that have one row for each example of a batch.

Each either keeps the rows apart, as `x / 255` does, or may join them, as `tf.reduce_mean(x)` does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unisono.data.tensorflow_graph import value_of


@dataclass(frozen=True)
class Rows:
    """A tensor with one row for each example.

    Args:
        inner: Shape of a row; None if it is not known.
    """

    inner: tuple[int | None, ...] | None


@dataclass(frozen=True)
class Fixed:
    """A tensor that does not depend on the examples.

    Args:
        shape: Its shape; None if it is not known.
        value: What it holds; None if it is not known.
    """

    shape: tuple[int, ...] | None = None
    value: Any = None

    @classmethod
    def of(cls, value: Any) -> Fixed:
        """Returns what holds a value; None stands for an unknown one."""
        return cls() if value is None else cls(np.shape(value), value)


Value = Rows | Fixed


class MayJoinError(Exception):
    """A function may join examples."""


_Op = Callable[[Any, list[Value]], list[Value]]


def _each(node: Any, given: list[Value]) -> list[Value]:
    """Values that are computed from those at the same place, of one tensor or several that are broadcast."""
    rows = [v for v in given if isinstance(v, Rows)]
    fixed = [v for v in given if isinstance(v, Fixed)]
    if not rows:
        return [Fixed(np.broadcast_shapes(*map(_shape, fixed)))]
    if len(given) == 1:
        return [rows[0]]
    ranks = {None if r.inner is None else len(r.inner) for r in rows}
    if len(ranks) > 1 or (None in ranks and len(rows) > 1):
        raise MayJoinError(node.op)
    shapes: list[tuple[int | None, ...]] = [r.inner for r in rows if r.inner is not None]
    for shape in (_shape(f) for f in fixed):
        if not shape:
            continue
        if not shapes or len(shape) > len(shapes[0]) + 1 or (len(shape) == len(shapes[0]) + 1 and shape[0] != 1):
            raise MayJoinError(node.op)
        padded = (1,) * (len(shapes[0]) + 1 - len(shape)) + shape
        shapes.append(padded[1:])
    if not shapes:
        return [Rows(None)]
    return [Rows(tuple(_broadcast(dims) for dims in zip(*shapes, strict=True)))]


def _broadcast(dims: Sequence[int | None]) -> int | None:
    wide = {d for d in dims if d != 1}
    if not wide:
        return 1
    known = wide - {None}
    return known.pop() if known else None


def _shape(fixed: Fixed) -> tuple[int, ...]:
    if fixed.shape is None:
        raise MayJoinError("a shape that is not known")
    return fixed.shape


def _known(value: Value) -> Any:
    """Returns what a tensor holds that does not depend on the examples."""
    if not isinstance(value, Fixed) or value.value is None:
        raise MayJoinError("a value that is not known")
    return value.value


def _inner(value: Value) -> tuple[int | None, ...]:
    """Returns the shape of a row."""
    if not isinstance(value, Rows) or value.inner is None:
        raise MayJoinError("a shape that is not known")
    return value.inner


def _axis(axis: Any, rank: int) -> int:
    """Returns which axis of a row an axis of the batch is."""
    at = int(axis) if axis >= 0 else int(axis) + rank
    if at < 1:
        raise MayJoinError("the axis of the examples")
    return at - 1


def _const(node: Any, given: list[Value]) -> list[Value]:
    return [Fixed.of(value_of(node))]


def _one_hot(node: Any, given: list[Value]) -> list[Value]:
    inner = _inner(given[0])
    at = _axis(node.attr["axis"].i, len(inner) + 2)
    return [Rows((*inner[:at], int(_known(given[1])), *inner[at:]))]


def _expand_dims(node: Any, given: list[Value]) -> list[Value]:
    inner = _inner(given[0])
    at = _axis(_known(given[1]), len(inner) + 2)
    return [Rows((*inner[:at], 1, *inner[at:]))]


def _squeeze(node: Any, given: list[Value]) -> list[Value]:
    inner = _inner(given[0])
    dropped = {_axis(axis, len(inner) + 1) for axis in node.attr["squeeze_dims"].list.i}
    if not dropped:
        raise MayJoinError(node.op)
    return [Rows(tuple(d for at, d in enumerate(inner) if at not in dropped))]


def _reshape(node: Any, given: list[Value]) -> list[Value]:
    tensor, shape = given[0], [int(d) for d in np.ravel(_known(given[1]))]
    if isinstance(tensor, Fixed):
        return [Fixed(np.broadcast_to(np.False_, _shape(tensor)).reshape(shape).shape)]
    inner = _inner(tensor)
    if None in inner or not shape or shape[0] != -1 or math.prod(shape[1:]) != math.prod(d or 0 for d in inner):
        raise MayJoinError(node.op)
    return [Rows(tuple(shape[1:]))]


def _broadcast_to(node: Any, given: list[Value]) -> list[Value]:
    if not isinstance(given[0], Fixed):
        raise MayJoinError(node.op)
    return [Fixed(tuple(int(d) for d in _known(given[1])))]


def _reduce(node: Any, given: list[Value]) -> list[Value]:
    inner = _inner(given[0])
    over = {_axis(axis, len(inner) + 1) for axis in np.ravel(_known(given[1]))}
    kept = tuple(1 if at in over else d for at, d in enumerate(inner))
    return [Rows(kept if node.attr["keep_dims"].b else tuple(d for at, d in enumerate(inner) if at not in over))]


def _join(node: Any, given: list[Value]) -> list[Value]:
    *parts, axis = given
    inners = [_inner(part) for part in parts]
    at = _axis(_known(axis), len(inners[0]) + 1)
    sizes = [inner[at] for inner in inners]
    wide = None if None in sizes else sum(s or 0 for s in sizes)
    return [Rows((*inners[0][:at], wide, *inners[0][at + 1 :]))]


def _pack(node: Any, given: list[Value]) -> list[Value]:
    inner = _inner(given[0])
    for part in given:
        _inner(part)
    at = _axis(node.attr["axis"].i, len(inner) + 2)
    return [Rows((*inner[:at], len(given), *inner[at:]))]


def _gather(node: Any, given: list[Value]) -> list[Value]:
    table, indices, axis = given
    if int(_known(axis)) or node.attr["batch_dims"].i:
        raise MayJoinError(node.op)
    return [Rows((*_inner(indices), *np.shape(_known(table))[1:]))]


def _index(node: Any, given: list[Value]) -> list[Value]:
    """Python's `x[:, ...]`."""
    inner = _inner(given[0])
    if None in inner:
        raise MayJoinError("a shape that is not known")
    begin, end, step = (np.ravel(_known(v)) for v in given[1:])
    masks = {k: node.attr[f"{k}_mask"].i for k in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")}
    index: list[Any] = []
    for at in range(len(begin)):
        on = {k for k, mask in masks.items() if mask >> at & 1}
        if "ellipsis" in on:
            index.append(Ellipsis)
        elif "new_axis" in on:
            index.append(None)
        elif "shrink_axis" in on:
            index.append(int(begin[at]))
        else:
            bounds = (None if "begin" in on else int(begin[at]), None if "end" in on else int(end[at]))
            index.append(slice(*bounds, int(step[at])))
    if index[0] not in (Ellipsis, slice(None, None, 1)):
        raise MayJoinError(node.op)
    # Two sizes of batches show whether the first axis is left alone.
    small, large = (np.broadcast_to(np.False_, (n, *(d or 0 for d in inner))) for n in (3, 5))
    try:
        shapes = (small[tuple(index)].shape, large[tuple(index)].shape)
    except IndexError:
        raise MayJoinError(node.op) from None
    if shapes[0][:1] != (3,) or shapes[1] != (5, *shapes[0][1:]):
        raise MayJoinError(node.op)
    return [Rows(shapes[0][1:])]


def _resize(node: Any, given: list[Value]) -> list[Value]:
    inner, size = _inner(given[0]), np.ravel(_known(given[1]))
    return [Rows((int(size[0]), int(size[1]), inner[2]))]


def _look_up(node: Any, given: list[Value]) -> list[Value]:
    table, keys, default = given
    if not isinstance(table, Fixed) or not isinstance(default, Fixed):
        raise MayJoinError(node.op)
    return [keys]


def _decode_csv(node: Any, given: list[Value]) -> list[Value]:
    records, *defaults = given
    if not all(isinstance(default, Fixed) for default in defaults):
        raise MayJoinError(node.op)
    return [records] * len(defaults)


def _parse_example(node: Any, given: list[Value]) -> list[Value]:
    shapes = node.attr["dense_shapes"].list.shape
    sparse = node.attr["num_sparse"].i or node.attr["ragged_value_types"].list.type
    if sparse or any(s.unknown_rank or any(d.size < 0 for d in s.dim) for s in shapes):
        # What has no fixed length gets the width of the longest row.
        raise MayJoinError(node.op)
    if not isinstance(given[0], Rows) or not all(isinstance(v, Fixed) for v in given[1:]):
        raise MayJoinError(node.op)
    return [Rows(tuple(d.size for d in s.dim)) for s in shapes]


_EACH = """
Abs Add AddV2 AsString Cast CheckNumerics Ceil ClipByValue Cos Div DivNoNan Equal Exp Expm1 Floor FloorDiv FloorMod
Greater GreaterEqual Identity IsFinite IsInf IsNan Less LessEqual Log Log1p LogicalAnd LogicalNot LogicalOr Maximum
Minimum Mod Mul Neg NotEqual OnesLike Pow RealDiv Reciprocal RegexReplace Relu Round Rsqrt SelectV2 Sigmoid Sign Sin
Snapshot Sqrt Square SquaredDifference StaticRegexReplace StopGradient StringLower StringStrip StringToHashBucketFast
StringToNumber StringUpper Sub Tanh TruncateDiv ZerosLike
"""
OPS: dict[str, _Op] = {
    **dict.fromkeys(_EACH.split(), _each),
    **dict.fromkeys(("All", "Any", "Max", "Mean", "Min", "Prod", "Sum"), _reduce),
    **dict.fromkeys(("ResizeArea", "ResizeBicubic", "ResizeBilinear", "ResizeNearestNeighbor"), _resize),
    "BroadcastTo": _broadcast_to,
    "ConcatV2": _join,
    "Const": _const,
    "DecodeCSV": _decode_csv,
    "ExpandDims": _expand_dims,
    "GatherV2": _gather,
    "LookupTableFindV2": _look_up,
    "OneHot": _one_hot,
    "Pack": _pack,
    "ParseExampleV2": _parse_example,
    "Reshape": _reshape,
    "Squeeze": _squeeze,
    "StridedSlice": _index,
}
"""What each op makes of its inputs, given the node; raises `MayJoinError`."""
