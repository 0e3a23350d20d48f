"""Text files: one example a line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unisono.data.file_list import File
from unisono.data.pieces import Piece
from unisono.data.readers import stream
from unisono.data.readers.reader import Block, Reader
from unisono.errors import ConfigurationError, DataError


@dataclass(frozen=True)
class TextReader(Reader):
    """Lines without their ends, as `str` or `bytes` in arrays of objects.

    Args:
        encoding: How characters are written, one in which a line feed is the byte 10; None for bytes.
        compression: "infer" (by the ending of the path), a name, or None.
    """

    encoding: str | None = "utf-8"
    compression: str | None = "infer"
    noun = "text file"

    def __post_init__(self) -> None:
        try:
            fits = self.encoding is None or "\n".encode(self.encoding) == b"\n"
        except LookupError:
            fits = False
        if not fits:
            raise ConfigurationError(
                f"encoding={self.encoding!r} cannot be read by line.",
                remedy='use "utf-8" (a byte order mark is left out), "latin-1" and the like, or None for bytes.',
            )

    def uncuttable(self, files: Sequence[File]) -> str | None:
        """See `Reader`."""
        return uncuttable(files, self.compression) or super().uncuttable(files)

    def read(self, file: File, piece: Piece | None, facts: Any) -> Iterator[Block]:
        """See `Reader`."""
        with stream.opened(file, stream.compression_of(file, self.compression)) as opened:
            start, stop = (piece.start, piece.stop) if piece else (0, None)
            for at, chunk in stream.line_chunks(opened, start, stop):
                yield self._rows(opened, at, chunk)

    def _rows(self, opened: stream.Stream, at: int, chunk: bytes) -> np.ndarray:
        lines: list[Any]
        if self.encoding is None:
            lines = chunk.removesuffix(b"\n").split(b"\n")
            if b"\r" in chunk:
                lines = [line.removesuffix(b"\r") for line in lines]
        else:
            text = self._decode(opened, at, chunk)
            lines = text.removesuffix("\n").split("\n")
            if "\r" in text:
                lines = [line.removesuffix("\r") for line in lines]
        rows = np.empty(len(lines), object)
        rows[:] = lines
        return rows

    def _decode(self, opened: stream.Stream, at: int, chunk: bytes) -> str:
        assert self.encoding is not None
        try:
            text = chunk.decode(self.encoding)
        except UnicodeDecodeError as error:
            line = stream.lines_before(opened, at) + chunk.count(b"\n", 0, error.start) + 1
            raise DataError(
                f"{opened.file.path}, line {line:,}: byte {chunk[error.start]:#04x} is not {self.encoding}.",
                remedy='name the encoding of the file, e.g. encoding="latin-1", or encoding=None for bytes.',
            ) from None
        return text.removeprefix("\ufeff") if at == 0 else text


def uncuttable(files: Sequence[File], compression: str | None) -> str | None:
    """Returns why files cannot be read in ranges if they are compressed, else None."""
    packed = [file.path for file in files if stream.compression_of(file, compression)]
    return f"compressed files such as {packed[0]} can only be read from their beginning" if packed else None
