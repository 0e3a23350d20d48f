"""Where lines and TFRecords begin, so that workers can read ranges of one file.

A range of bytes is cut where the next record begins at or after its ends, so neighbours agree without a word. A line
begins after a line feed. A TFRecord begins where 8 bytes of length are followed by their checksum (masked CRC-32C;
TensorFlow, "TFRecord and tf.train.Example", section "TFRecords format details"); the same must hold where it ends.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from unisono.errors import DataError

Read = Callable[[int, int], bytes]
"""Returns up to so many bytes of a file from a position on; fewer only at its end."""

_LINE_WINDOW = 1 << 12
_WINDOW = 1 << 16
HEADER = 12
"""Bytes before the data of a record: length, checksum of the length."""
FRAME = 16
"""Bytes of a record beside its data: the header, checksum of the data."""


def next_line(read: Read, at: int, size: int) -> int:
    """Returns where the first line begins at or after a position, or the size of the file.

    Args:
        read: Reads the file.
        at: Position, 0 or more.
        size: Bytes of the file.
    """
    if at <= 0:
        return 0
    at -= 1
    while at < size:
        window = read(at, min(_LINE_WINDOW, size - at))
        if not window:
            break
        found = window.find(b"\n")
        if found >= 0:
            return at + found + 1
        at += len(window)
    return size


def next_record(read: Read, at: int, size: int) -> int:
    """Returns where the first TFRecord begins at or after a position, or the size of the file; as `next_line`."""
    if at <= 0:
        return 0
    while at < size:
        window = read(at, min(_WINDOW + HEADER, size - at))
        for found in _candidates(window):
            if _chained(read, at + found, size):
                return at + found
        at += _WINDOW
    return size


def masked(crc: Any) -> Any:
    """Returns a checksum (an int, or an array of uint32) as TFRecord files hold it.

    It is turned, so that a CRC of data with CRCs inside is a good one.
    """
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def count_records(read: Read, start: int, stop: int, name: str) -> int:
    """Returns the number of TFRecords in a range, by their headers.

    Args:
        read: Reads the file.
        start: Where a record begins.
        stop: Where one begins, or the end of the file.
        name: What messages begin with, e.g. the name of the file.

    Raises:
        DataError: If a record does not end where the next should begin.
    """
    count, at = 0, start
    unpack = struct.Struct("<Q").unpack
    while at < stop:
        header = read(at, 8)
        if len(header) < 8:
            break
        at += unpack(header)[0] + FRAME
        count += 1
    if at != stop:
        raise DataError(
            f"{name}, record {count:,} after byte {start:,}: it ends at byte {at:,}, the data at byte {stop:,}; the "
            "file is truncated or damaged.",
            remedy="write the file again.",
        )
    return count


def _chained(read: Read, at: int, size: int) -> bool:
    """Returns whether a record begins here, and the next one, or the end of the file, where it ends."""
    for _ in range(2):
        header = read(at, HEADER)
        if len(header) < HEADER or 0 not in _candidates(header):
            return False
        at += int.from_bytes(header[:8], "little") + FRAME
        if at >= size:
            return at == size
    return True


def _candidates(window: bytes) -> list[int]:
    """Returns the positions in a window at which a length is followed by its checksum."""
    raw = np.frombuffer(window, np.uint8)
    count = len(raw) - HEADER + 1
    if count <= 0:
        return []
    table = _crc_table()
    crc = np.full(count, 0xFFFFFFFF, np.uint32)
    for i in range(8):
        crc = table[(crc ^ raw[i : i + count]) & 0xFF] ^ (crc >> np.uint32(8))
    crc ^= np.uint32(0xFFFFFFFF)
    stored = np.zeros(count, np.uint32)
    for i in range(4):
        stored |= raw[8 + i : 8 + i + count].astype(np.uint32) << np.uint32(8 * i)
    return [int(i) for i in np.flatnonzero(masked(crc) == stored)]


@functools.cache
def _crc_table() -> np.ndarray:
    """CRC-32C (Castagnoli), reflected polynomial."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> np.uint32(1)) ^ np.uint32(0x82F63B78), table >> np.uint32(1))
    return table.astype(np.uint32)
