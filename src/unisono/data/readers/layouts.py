"""Many examples at once: those whose bytes differ from one that protobuf has read in nothing but their values.

Writers give the examples of a file the same features, with equally many values, so most records have one layout: the
same names, tags and lengths at the same places. Once protobuf has taken one of them apart, the values of the others
are columns of a matrix of bytes. (Encoding: protobuf.dev, "Encoding": packed repeated fields, base 128 varints.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

_MORE = 0x80
"""The bit of a byte of a varint which says that another byte follows."""


@dataclass(frozen=True)
class Values:
    """Where the values of one feature are.

    Args:
        kind: The field of `tf.train.Feature`.
        spans: First byte and the byte after the last: of each value for bytes, of all together for numbers.
        count: How many values.
    """

    kind: str
    spans: tuple[tuple[int, int], ...]
    count: int


class Layout:
    """Where what is in a record.

    Args:
        record: One of its examples.
        features: What is where, by name.
    """

    def __init__(self, record: bytes, features: dict[str, Values]) -> None:
        self.features = features
        self._record = np.frombuffer(record, np.uint8)
        self._fixed: list[tuple[int, int]] = []
        at = 0
        for start, stop in sorted(span for values in features.values() for span in values.spans):
            self._fixed.append((at, start))
            at = stop
        self._fixed.append((at, len(record)))

    @classmethod
    def of(cls, record: bytes, example: Any) -> Layout | None:
        """Returns the layout of one record, or None if it is not written as protobuf itself would.

        Args:
            record: Its bytes.
            example: What protobuf reads there, a list of floats as the bytes in which they are packed.
        """
        features = {}
        size = 0
        for name, feature in example.features.feature.items():
            alone = type(example)()
            alone.features.feature[name].CopyFrom(feature)
            entry = alone.features.SerializeToString()
            kind = feature.WhichOneof("kind")
            stop = record.find(entry) + len(entry)
            if kind is None or stop < len(entry) or record.count(entry) != 1:
                return None
            size += len(entry)
            values, count = _values(kind, getattr(feature, kind))
            spans = []
            for value in reversed(values):
                spans.append((stop - len(value), stop))
                if record[stop - len(value) : stop] != value:
                    return None
                # Before a value are its tag and its length.
                stop -= len(value) + 1 + _varint_size(len(value))
            features[name] = Values(kind, tuple(reversed(spans)), count)
        # So there is nothing else in it, and no name twice.
        return cls(record, features) if len(record) == size + 1 + _varint_size(size) else None

    def fits(self, rows: np.ndarray) -> np.ndarray:
        """Tells which records have this layout.

        Args:
            rows: (records, bytes), uint8: records as long as this one.

        Returns:
            A bool for each.
        """
        same = np.ones(len(rows), np.bool_)
        for start, stop in self._fixed:
            same &= (rows[:, start:stop] == self._record[start:stop]).all(1)
        for values in self.features.values():
            for start, stop in values.spans if values.kind == "int64_list" else ():
                same &= ((rows[:, start:stop] ^ self._record[start:stop]) < _MORE).all(1)
        return same

    def floats(self, rows: np.ndarray, values: Values) -> np.ndarray:
        """Returns values of float_list: (records, count), float32."""
        ((start, stop),) = values.spans
        return np.ascontiguousarray(rows[:, start:stop]).view("<f4")

    def integers(self, rows: np.ndarray, values: Values) -> np.ndarray:
        """Returns values of int64_list: (records, count), int64."""
        ((start, stop),) = values.spans
        last = self._record[start:stop] < _MORE
        begins = np.flatnonzero(np.concatenate([[True], last[:-1]]))
        digits = np.arange(stop - start) - np.repeat(begins, np.diff([*begins, stop - start]))
        parts = (rows[:, start:stop] & (_MORE - 1)).astype(np.uint64) << (7 * digits).astype(np.uint64)
        return np.bitwise_or.reduceat(parts, begins, axis=1).view(np.int64)

    def texts(self, rows: np.ndarray, values: Values) -> np.ndarray:
        """Returns values of bytes_list: (records, count), objects."""
        found = np.empty((len(rows), values.count), object)
        for k, (start, stop) in enumerate(values.spans):
            found[:, k] = [row.tobytes() for row in rows[:, start:stop]]
        return found


def _values(kind: str, written: Any) -> tuple[list[bytes], int]:
    """Returns the pieces of bytes that hold the values of a feature, and how many values these are."""
    if kind == "bytes_list":
        return list(written.value), len(written.value)
    if kind == "float_list":
        return [written.value], len(written.value) // 4
    whole = written.SerializeToString()
    # Before the numbers are a tag and their length, if there are any.
    sizes = (len(whole) - 1 - length for length in range(1, len(whole)))
    size = next((n for n in sizes if n + 1 + _varint_size(n) == len(whole)), 0)
    return [whole[len(whole) - size :]], len(written.value)


def _varint_size(number: int) -> int:
    return max(1, (number.bit_length() + 6) // 7)
