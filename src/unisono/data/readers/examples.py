"""`tf.train.Example`s to columns, by protobuf, with descriptors made here: neither TensorFlow nor generated code."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unisono.data.file_list import library
from unisono.data.readers.layouts import Layout
from unisono.errors import ConfigurationError, DataError

KINDS = {"f": "float_list", "i": "int64_list", "u": "int64_list", "b": "int64_list", "O": "bytes_list"}
"""The list of `tf.train.Feature` that holds values of a kind of dtype."""

_LAYOUTS = 8
"""How many layouts are looked for among some thousand records."""

_WORTH_IT = 16
"""Records for which looking for a layout costs less than reading them one by one."""


@dataclass(frozen=True)
class Feature:
    """One feature to parse.

    Args:
        name: Its key.
        dtype: Of the column; object for bytes.
        shape: Of one example.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def kind(self) -> str:
        """The field of `tf.train.Feature`."""
        return KINDS[self.dtype.kind]

    @property
    def length(self) -> int:
        """Number of values of one example."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class ExampleParser:
    """Parses records.

    Args:
        features: What is in them.
    """

    features: tuple[Feature, ...]

    @classmethod
    def of(cls, features: Mapping[str, tuple[Any, Sequence[int]]]) -> ExampleParser:
        """Reads what a user says, e.g. `{"x": ("float32", (32,)), "y": ("int64", ())}`.

        Raises:
            ConfigurationError: If it cannot be understood.
        """
        return cls(tuple(_feature(name, said) for name, said in features.items()))

    def parse(self, records: Sequence[bytes], name: Callable[[int], str]) -> dict[str, np.ndarray]:
        """Returns a column for each feature.

        Args:
            records: Serialized examples.
            name: Says, for messages, what and where the record of an index is.

        Raises:
            DataError: If a record is no example, or lacks a feature, or has another number of its values.
        """
        columns = {f.name: np.empty((len(records), *f.shape), f.dtype) for f in self.features}
        left: np.ndarray = np.arange(len(records))
        lengths = np.fromiter(map(len, records), np.int64, len(records))
        for _ in range(_LAYOUTS):
            before = len(left)
            if before < _WORTH_IT:
                break
            left = self._take_alike(records, left, lengths, columns)
            if len(left) == before:
                break
        if len(left):
            rest = self._one_by_one([records[k] for k in left], left.tolist(), name)
            for key, column in rest.items():
                columns[key][left] = column
        return columns

    def _take_alike(
        self, records: Sequence[bytes], left: np.ndarray, lengths: np.ndarray, columns: dict[str, np.ndarray]
    ) -> np.ndarray:
        """Fills in what is laid out like the first of the records that are left; returns which are left then."""
        record = records[int(left[0])]
        try:
            layout = Layout.of(record, _message(quick=True).FromString(record))
        except library("google.protobuf.message").DecodeError:
            return left
        if layout is None or not all(self._has(layout, feature) for feature in self.features):
            return left
        fits = lengths[left] == len(record)
        joined = b"".join(records if len(left) == len(records) and fits.all() else [records[k] for k in left[fits]])
        rows = np.frombuffer(joined, np.uint8).reshape(-1, len(record))
        same = layout.fits(rows)
        if not same.all():
            rows = rows[same]
            fits[fits] = same
        alike = left[fits]
        read = {"float_list": layout.floats, "int64_list": layout.integers, "bytes_list": layout.texts}
        for feature in self.features:
            values = read[feature.kind](rows, layout.features[feature.name])
            columns[feature.name][alike] = values.reshape(len(alike), *feature.shape)
        rest: np.ndarray = left[~fits]
        return rest

    def _has(self, layout: Layout, feature: Feature) -> bool:
        values = layout.features.get(feature.name)
        return (
            values is not None and (values.kind, values.count) == (feature.kind, feature.length) and feature.length > 0
        )

    def _one_by_one(
        self, records: Sequence[bytes], indices: Sequence[int], name: Callable[[int], str]
    ) -> dict[str, np.ndarray]:
        """Returns the columns of records of any layout; arguments as for `parse`, with the index of each record."""
        parse, wrong = _message(quick=True).FromString, library("google.protobuf.message").DecodeError
        found: list[Any] = []
        for index, record in zip(indices, records, strict=True):
            try:
                found.append(parse(record).features.feature)
            except wrong:
                raise DataError(
                    f"{name(index)} is not a tf.train.Example.",
                    remedy="leave out features= to get the bytes of the records.",
                ) from None
        return {feature.name: self._column(feature, found, records, indices, name) for feature in self.features}

    def _column(
        self,
        feature: Feature,
        found: Sequence[Any],
        records: Sequence[bytes],
        indices: Sequence[int],
        name: Callable[[int], str],
    ) -> np.ndarray:
        key, kind, length = feature.name, feature.kind, feature.length
        floats = kind == "float_list"
        expected = 4 * length if floats else length
        values: list[Any] = []
        for k, example in enumerate(found):
            value = getattr(example[key], kind).value if key in example else b""
            if len(value) != expected:
                value = self._exact(feature, records[k], name(indices[k]))
            if floats:
                values.append(value)
            else:
                values.extend(value)
        if floats:
            column = np.frombuffer(b"".join(values), "<f4")
        elif kind == "bytes_list":
            column = np.empty(len(values), object)
            column[:] = values
        else:
            column = np.array(values, np.int64)
        return column.reshape(len(found), *feature.shape).astype(feature.dtype, copy=False)

    def _exact(self, feature: Feature, record: bytes, place: str) -> Any:
        """Reads one feature however it is written, or says what is wrong with it."""
        example = _message(quick=False).FromString(record).features.feature
        name = feature.name
        if name not in example:
            there = ", ".join(map(repr, sorted(example))) or "none"
            raise DataError(f"{place} has no feature {name!r}. It has: {there}.")
        kind = example[name].WhichOneof("kind")
        if kind != feature.kind and (kind is not None or feature.length):
            raise DataError(
                f"{place}: the feature {name!r} is {'empty' if kind is None else f'a {kind}'}, "
                f"which does not fit the dtype {feature.dtype}.",
                remedy='float_list goes with "float32", int64_list with "int64", bytes_list with "bytes".',
            )
        values = getattr(example[name], feature.kind).value
        if len(values) != feature.length:
            raise DataError(
                f"{place}: the feature {name!r} has {len(values):,} values, its shape {feature.shape} has "
                f"{feature.length:,}.",
                remedy="name the shape of one example; for lists of any length leave out features= and use map().",
            )
        return np.asarray(values, "<f4").tobytes() if feature.kind == "float_list" else values


def _feature(name: str, said: Any) -> Feature:
    try:
        dtype, shape = said
        lengths = tuple(int(length) for length in shape)
        kind = np.dtype(object) if dtype in ("bytes", "string", bytes) else np.dtype(dtype)
    except (TypeError, ValueError):
        kind, lengths = np.dtype("V"), (-1,)
    if kind.kind not in KINDS or min(lengths, default=0) < 0:
        raise ConfigurationError(
            f"features names {said!r} for {name!r}.",
            remedy='give dtype and shape of one example, e.g. ("float32", (32,)), ("int64", ()) or ("bytes", ()).',
        )
    return Feature(name, kind, lengths)


@functools.cache
def _message(*, quick: bool) -> Any:
    """Returns the class of `tf.train.Example`.

    Args:
        quick: Whether lists of floats come as the bytes they are in a file, which has the same form in protobuf if
            they are packed, as TensorFlow writes them; it saves making a Python object of each number.
    """
    descriptors, pools = library("google.protobuf.descriptor_pb2"), library("google.protobuf.descriptor_pool")
    field = descriptors.FieldDescriptorProto
    one, many = field.LABEL_OPTIONAL, field.LABEL_REPEATED
    # A pool of its own: TensorFlow may be loaded beside it, with messages of the same names.
    proto = descriptors.FileDescriptorProto(name="example.proto", package="unisono", syntax="proto3")

    def add(parent: Any, name: str, *fields: tuple[str, Any, Any, str | None]) -> Any:
        message = parent.add(name=name)
        for number, (called, label, kind, of) in enumerate(fields, 1):
            message.field.add(
                name=called, number=number, label=label, type=kind, type_name=None if of is None else f".unisono.{of}"
            )
        return message

    top = proto.message_type
    add(top, "BytesList", ("value", many, field.TYPE_BYTES, None))
    add(top, "FloatList", ("value", one, field.TYPE_BYTES, None) if quick else ("value", many, field.TYPE_FLOAT, None))
    add(top, "Int64List", ("value", many, field.TYPE_INT64, None))
    feature = add(
        top,
        "Feature",
        ("bytes_list", one, field.TYPE_MESSAGE, "BytesList"),
        ("float_list", one, field.TYPE_MESSAGE, "FloatList"),
        ("int64_list", one, field.TYPE_MESSAGE, "Int64List"),
    )
    feature.oneof_decl.add(name="kind")
    for each in feature.field:
        each.oneof_index = 0
    features = add(top, "Features", ("feature", many, field.TYPE_MESSAGE, "Features.FeatureEntry"))
    entry = add(
        features.nested_type,
        "FeatureEntry",
        ("key", one, field.TYPE_STRING, None),
        ("value", one, field.TYPE_MESSAGE, "Feature"),
    )
    entry.options.map_entry = True
    add(top, "Example", ("features", one, field.TYPE_MESSAGE, "Features"))
    pool = pools.DescriptorPool()
    pool.AddSerializedFile(proto.SerializeToString())
    example = pool.FindMessageTypeByName("unisono.Example")
    return library("google.protobuf.message_factory").GetMessageClass(example)
