"""TFRecord files: records of bytes, or parsed `tf.train.Example`s.

8 bytes length | 4 bytes CRC of the length | the record | 4 bytes CRC of the record
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from unisono.data.file_list import File, library
from unisono.data.pieces import Piece
from unisono.data.readers import stream, text
from unisono.data.readers.examples import ExampleParser
from unisono.data.readers.reader import Block, Reader, labelled
from unisono.errors import ConfigurationError, DataError

HEAD = struct.Struct("<QI")
CHECK = struct.Struct("<I")
OVERHEAD = HEAD.size + CHECK.size


@dataclass(frozen=True)
class TfrecordReader(Reader):
    """Records as `bytes` in arrays of objects, or columns of parsed examples.

    Args:
        features: dtype and shape of each feature to parse; None for the bytes of whole records.
        label: A feature that becomes the target.
        compression: "infer" (by the ending of the path), a name, or None.
    """

    features: Mapping[str, tuple[Any, tuple[int, ...]]] | None = None
    label: str | None = None
    compression: str | None = "infer"
    parser: ExampleParser | None = field(init=False, repr=False, compare=False)
    _begins: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict, init=False, repr=False, compare=False)
    noun = "TFRecord file"

    def __post_init__(self) -> None:
        if self.label is not None and self.label not in (self.features or {}):
            raise ConfigurationError(
                f"label={self.label!r} is not among the features, which are {list(self.features or {})}.",
                remedy=f'name it, e.g. features={{..., "{self.label}": ("int64", ())}}.',
            )
        object.__setattr__(self, "parser", None if self.features is None else ExampleParser.of(self.features))

    def uncuttable(self, files: Sequence[File]) -> str | None:
        """See `Reader`."""
        return text.uncuttable(files, self.compression) or super().uncuttable(files)

    def read(self, file: File, piece: Piece | None, facts: Any) -> Iterator[Block]:
        """See `Reader`."""
        with stream.opened(file, stream.compression_of(file, self.compression)) as opened:
            at, number = self._begin(opened, piece.start) if piece else (0, 0)
            for first, found in records(opened, at, number, piece.stop if piece else None):
                if self.parser is None:
                    rows = np.empty(len(found), object)
                    rows[:] = found
                    yield rows
                else:
                    yield labelled(self.parser.parse(found, file, first), self.label)

    def _begin(self, opened: stream.Stream, start: int) -> tuple[int, int]:
        """Returns position and number of the first record of a range.

        Only the lengths of the records before it are read, and only once.
        """
        key = (opened.file.path, start)
        if key not in self._begins:
            self._begins[key] = _first_from(opened, start)
        return self._begins[key]


def records(opened: stream.Stream, at: int, number: int, stop: int | None) -> Iterator[tuple[int, list[bytes]]]:
    """Yields the records of a range, many at once.

    Args:
        opened: The file.
        at: Where the first record begins.
        number: The number of that record.
        stop: Records that begin here or later are not read; None for the end of the file.

    Yields:
        The number of the first record of some, and these records.

    Raises:
        DataError: If a record is cut off, or does not fit its checksum.
    """
    data = b""
    while True:
        found: list[bytes] = []
        place = missing = 0
        while stop is None or at + place < stop:
            missing = HEAD.size - (len(data) - place)
            if missing > 0:
                break
            length = _length(opened, data, place, number + len(found))
            missing = OVERHEAD + length - (len(data) - place)
            if missing > 0:
                break
            begin = place + HEAD.size
            record = data[begin : begin + length]
            if _masked(record) != CHECK.unpack_from(data, begin + length)[0]:
                raise _broken(opened, number + len(found), "does not fit its checksum")
            found.append(record)
            place += OVERHEAD + length
        if found:
            yield number, found
            number += len(found)
        data, at = data[place:], at + place
        if missing <= 0:
            return
        more = _read(opened, at + len(data), missing)
        if len(more) < missing:
            if not data and not more:
                return
            raise _broken(opened, number, "is cut off by the end of the file")
        data += more


def _read(opened: stream.Stream, at: int, least: int) -> bytes:
    """Returns at least some bytes, fewer only at the end of the file."""
    parts: list[bytes] = []
    found = 0
    while found < least and (part := opened.read(at + found, max(stream.CHUNK, least - found))):
        parts.append(part)
        found += len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _first_from(opened: stream.Stream, start: int) -> tuple[int, int]:
    at = number = base = 0
    data = b""
    while at < start:
        if at + HEAD.size > base + len(data):
            base, data = at, opened.read(at, stream.TAIL)
            if len(data) < HEAD.size:
                raise _broken(opened, number, "is cut off by the end of the file")
        at += OVERHEAD + _length(opened, data, at - base, number)
        number += 1
    return at, number


def _length(opened: stream.Stream, data: bytes, place: int, number: int) -> int:
    length, check = HEAD.unpack_from(data, place)
    if _masked(data[place : place + 8]) != check:
        raise _broken(opened, number, "has a length that does not fit its checksum")
    return int(length)


def _masked(data: bytes) -> int:
    """Returns the checksum as TFRecord files hold it: turned, so that a CRC of data with CRCs inside is a good one."""
    crc = _crc32c()(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


@functools.cache
def _crc32c() -> Callable[[bytes], int]:
    return library("google_crc32c").value  # type: ignore[no-any-return]


def _broken(opened: stream.Stream, number: int, what: str) -> DataError:
    return DataError(
        f"{opened.file.path}: record {number:,} (counted from 0) {what}.",
        remedy='write or copy the file anew; if it is compressed, say so: compression="gzip".',
    )
