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
from unisono.data.record_bounds import FRAME, HEADER, count_records, masked, next_record
from unisono.errors import ConfigurationError, DataError

_HEAD = struct.Struct("<QI")

Broken = Callable[..., DataError]
"""Makes the error for the record of a number that is wrong in some way, and perhaps with a remedy of its own."""

_ALIKE, _FEW = 256, 8
"""Records that are looked at together for whether they have one length; so few of them that it did not pay."""


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
            start, stop = 0, None
            if piece is not None and file.size is not None:
                start, stop = (next_record(opened.read, at, file.size) for at in (piece.start, piece.stop))
                # Of the end of the file other things can be said than of a place where the next record begins.
                stop = None if stop == file.size else stop
            for first, found in records(opened, start, stop):
                if self.parser is None:
                    rows = np.empty(len(found), object)
                    rows[:] = found
                    yield rows
                else:
                    name = functools.partial(_name, opened, start, first)
                    yield labelled(self.parser.parse(found, name), self.label)


def records(opened: stream.Stream, start: int, stop: int | None) -> Iterator[tuple[int, list[bytes]]]:
    """Yields the records of a range, many at once.

    Args:
        opened: The file.
        start: Where the first record begins.
        stop: Where the first one behind the range begins; None for the end of the file.

    Yields:
        The number of the first record of some, counted in the range, and these records.

    Raises:
        DataError: If a record is cut off, or does not fit its checksum.
    """
    data, at, number = b"", start, 0
    broken = functools.partial(_broken, opened, start)
    while True:
        begins, ends, place = _places(data, len(data) if stop is None else min(len(data), stop - at), number, broken)
        found = [data[begin:end] for begin, end in zip(begins, ends, strict=True)]
        if found:
            _check(data, ends, found, number, broken)
            yield number, found
            number += len(found)
        data, at = data[place:], at + place
        if at == stop:
            return
        missing = HEADER - len(data)
        if missing <= 0:
            missing = FRAME + _length(data, 0, number, broken) - len(data)
        behind = at + len(data)
        if stop is not None and behind + missing > stop:
            raise broken(
                number,
                f"does not end before byte {stop:,}, where another seems to begin",
                'if records of this file hold TFRecords, share whole files: .with_options("FILE"); else write it anew.',
            )
        more = _read(opened, behind, missing, stream.CHUNK if stop is None else min(stream.CHUNK, stop - behind))
        if len(more) < missing:
            if not data and not more:
                return
            raise broken(number, "is cut off by the end of the file")
        data += more


def _places(data: bytes, size: int, number: int, broken: Broken) -> tuple[list[int], list[int], int]:
    """Returns begins and ends of the records that are whole within the first bytes of some data, and what is behind."""
    begins: list[int] = []
    ends: list[int] = []
    lengths: dict[bytes, int] = {}
    last = size - FRAME
    place = alone = 0
    while place <= last:
        head = data[place : place + HEADER]
        length = lengths.get(head)
        if length is None:
            length = lengths[head] = _length(data, place, number + len(begins), broken)
        if place + length > last:
            break
        begin, frame = place + HEADER, FRAME + length
        if alone:
            alone -= 1
            begins.append(begin)
            ends.append(begin + length)
            place += frame
            continue
        count = _alike(data, place, frame, min((last - length - place) // frame + 1, _ALIKE))
        alone = 0 if count > _FEW else _ALIKE
        place += count * frame
        begins += range(begin, place, frame)
        ends += range(begin + length, place, frame)
    return begins, ends, place


def _alike(data: bytes, place: int, frame: int, most: int) -> int:
    """Returns how many of some records, if all were of one length, have the head of the first; at least 1."""
    frames = np.frombuffer(data, np.uint8, most * frame, place).reshape(most, frame)
    same = (frames[:, :HEADER] == frames[0, :HEADER]).all(1)
    return most if same.all() else int(same.argmin())


def _check(data: bytes, ends: Sequence[int], found: Sequence[bytes], number: int, broken: Broken) -> None:
    """Compares the records with the checksums that follow them."""
    places = np.array(ends)[:, None] + np.arange(FRAME - HEADER)
    written = np.frombuffer(data, np.uint8)[places].view("<u4")[:, 0]
    checksums = np.fromiter(map(_crc32c(), found), np.uint32, len(found))
    wrong = np.flatnonzero(masked(checksums) != written)
    if len(wrong):
        raise broken(number + int(wrong[0]), "does not fit its checksum")


def _read(opened: stream.Stream, at: int, least: int, usual: int) -> bytes:
    """Returns at least some bytes, fewer only at the end of the file."""
    parts: list[bytes] = []
    found = 0
    while found < least and (part := opened.read(at + found, max(usual, least) - found)):
        parts.append(part)
        found += len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _length(data: bytes, place: int, number: int, broken: Broken) -> int:
    length, check = _HEAD.unpack_from(data, place)
    if masked(_crc32c()(data[place : place + 8])) != check:
        raise broken(number, "has a length that does not fit its checksum")
    return int(length)


@functools.cache
def _crc32c() -> Callable[[bytes], int]:
    return library("google_crc32c").value  # type: ignore[no-any-return]


def _name(opened: stream.Stream, start: int, *numbers: int) -> str:
    """Returns what a record is called in messages.

    Args:
        opened: The file.
        start: Where the range begins; only now the records before it are counted.
        numbers: Their sum is the number of the record in the range.
    """
    number = sum(numbers) + count_records(opened.read, 0, start, opened.file.path)
    return f"{opened.file.path}: record {number:,} (counted from 0)"


def _broken(opened: stream.Stream, start: int, number: int, what: str, remedy: str | None = None) -> DataError:
    usual = 'write or copy the file anew; if it is compressed, say so: compression="gzip".'
    return DataError(f"{_name(opened, start, number)} {what}.", remedy=remedy or usual)
