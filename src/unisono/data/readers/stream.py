"""The bytes of one file, checked and decompressed, and the whole lines in a range of them."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Iterator
from typing import Any

from unisono.data.file_list import File, library
from unisono.errors import ConfigurationError, DataError

CHUNK = 1 << 20
"""Bytes read at once."""

TAIL = 1 << 13
"""Bytes read at once behind the end of a range, to find the end of its last line."""


class Stream:
    """Bytes of an open file.

    Args:
        file: Which.
        handle: The open file; what it yields is decompressed.
        size: Bytes it must have; None if compressed or not known.
    """

    def __init__(self, file: File, handle: Any, size: int | None) -> None:
        self.file = file
        self.size = size
        self._handle = handle
        self._back = b""

    def read(self, at: int, count: int) -> bytes:
        """Returns up to `count` bytes from a position on; none only at the end of the file.

        Args:
            at: The position; where the last read ended if `size` is None.
            count: How many, 1 or more.

        Raises:
            DataError: If the file ends before its size.
        """
        if self.size is None:
            found, self._back = self._back[:count], self._back[count:]
            return found or bytes(self._handle.read(count))
        count = min(count, self.size - at)
        if count <= 0:
            return b""
        # Positions are always said: some file systems share one position among all who have a file open.
        self._handle.seek(at)
        found = bytes(self._handle.read(count))
        if not found:
            raise DataError(
                f"{self.file.path} ends at byte {at:,}; it had {self.size:,} bytes when the data set was made.",
                remedy="leave the files alone while they are read; make the data set anew after changing them.",
            )
        return found

    def unread(self, data: bytes) -> None:
        """Gives back what was read last, for streams in which one cannot go back."""
        if self.size is None:
            self._back = data + self._back


def compression_of(file: File, asked: str | None) -> str | None:
    """Returns the name that fsspec has for the compression of a file.

    Args:
        file: The file.
        asked: What the user says: "infer" (by the ending), a name, or None.

    Raises:
        ConfigurationError: If that compression is not known, or what it needs is not installed.
    """
    if asked is None:
        return None
    name = library("fsspec.utils").infer_compression(file.path) if asked == "infer" else asked.lower()
    known = library("fsspec.compression").compr
    if name is not None and name not in known:
        raise ConfigurationError(
            f"The compression {name!r} of {file.path} cannot be read here.",
            remedy=f"install what it needs (zstd: zstandard; lz4: lz4; snappy: python-snappy), or use one of: "
            f"{', '.join(sorted(filter(None, known)))}.",
        )
    return name


@contextlib.contextmanager
def opened(file: File, compression: str | None = None) -> Iterator[Stream]:
    """Opens a file and names it in errors of reading.

    Args:
        file: Which.
        compression: fsspec's name of its compression, or None.

    Raises:
        DataError: If the file has vanished, changed its size, cannot be read or cannot be decompressed.
    """
    file.check()
    system, path = file.system
    with naming(file), contextlib.ExitStack() as stack:
        handle = stack.enter_context(system.open(path, "rb"))
        if compression is not None:
            handle = stack.enter_context(library("fsspec.compression").compr[compression](handle, mode="rb"))
        yield Stream(file, handle, file.size if compression is None else None)


@contextlib.contextmanager
def naming(file: File) -> Iterator[None]:
    """Turns errors of reading into ones that name the file."""
    import lzma

    try:
        yield
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        told = str(error).rstrip(".") or type(error).__name__
        raise DataError(f"{file.path} cannot be read: {told}.") from error


def line_chunks(
    stream: Stream, start: int = 0, stop: int | None = None, quote: bytes | None = None
) -> Iterator[tuple[int, bytes]]:
    r"""Yields the lines of a range, many at once.

    A line belongs to the range that holds its first byte. Lines end with "\n"; the last one of a file need not.

    Args:
        stream: The file.
        start: First byte of the range.
        stop: The byte after its last; None for the end of the file.
        quote: A quotation mark within which "\n" ends no line; the range must then be the whole file.

    Yields:
        The position of the first line of a chunk, and the chunk: whole lines.
    """
    end = stream.size if stop is None else stop
    # The byte before the range tells whether a line begins with the range.
    at = start - 1 if start else 0
    rest = b""
    inside = start == 0
    while True:
        data = stream.read(at, CHUNK if end is None else min(CHUNK, end - at) if at < end else TAIL)
        at += len(data)
        last = not data
        if not inside:
            cut = data.find(b"\n")
            first = at - len(data) + cut + 1
            if cut < 0 and not last and (end is None or at < end):
                continue
            if cut < 0 or (end is not None and first >= end):
                return
            data, inside = data[cut + 1 :], True
        if end is not None and at >= end:
            rest += data
            # Look for the end of the line that holds the last byte of the range.
            cut = rest.find(b"\n", max(0, len(rest) - (at - end) - 1)) + 1
            if cut or last:
                if rest:
                    yield at - len(rest), rest[: cut or len(rest)]
                return
            continue
        if last:
            if rest:
                yield at - len(rest), rest
            return
        rest += data
        cut = _last_end(rest, quote)
        if cut:
            yield at - len(rest), rest[:cut]
            rest = rest[cut:]


def _last_end(lines: bytes, quote: bytes | None) -> int:
    """Returns the position after the last line that has ended; 0 if there is none."""
    cut = lines.rfind(b"\n") + 1
    while quote and cut and lines.count(quote, 0, cut) % 2:
        cut = lines.rfind(b"\n", 0, cut - 1) + 1
    return cut


def lines_before(stream: Stream, position: int) -> int:
    """Returns how many lines end before a position; reads the file up to there, so it is for messages only."""
    found = at = 0
    while at < position and (data := stream.read(at, min(CHUNK, position - at))):
        found += data.count(b"\n")
        at += len(data)
    return found
