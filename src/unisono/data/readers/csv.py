"""CSV and TSV files, parsed by pyarrow."""

from __future__ import annotations

import csv
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from unisono.data.file_list import File, library
from unisono.data.pieces import Piece
from unisono.data.readers import stream, text
from unisono.data.readers.reader import Block, Reader, known, labelled
from unisono.errors import ConfigurationError, DataError

TEXT = "str"
"""The dtype of columns of text, in arrays of objects."""


@dataclass(frozen=True)
class Columns:
    """What all CSV files of a data set have in common.

    Args:
        names: Of the columns, in the order of the files.
        dtypes: Of each, e.g. "float32", or "str".
        origin: The file they were found in.
    """

    names: tuple[str, ...]
    dtypes: tuple[str, ...]
    origin: str


@dataclass(frozen=True)
class CsvReader(Reader):
    """Columns of files with separated values; the arguments are those of `unisono.data.csv`."""

    separator: str = ","
    header: bool = True
    column_names: Sequence[str] | None = None
    columns: Sequence[str] | None = None
    label: str | None = None
    dtypes: Mapping[str, Any] = field(default_factory=dict)
    skip_rows: int = 0
    na_values: Sequence[str] | None = None
    newlines_in_values: bool = False
    compression: str | None = "infer"
    noun = "CSV file"

    def __post_init__(self) -> None:
        if len(self.separator) != 1 or ord(self.separator) > 127:
            raise ConfigurationError(f"separator={self.separator!r} is not one ASCII character.")
        if not self.header and self.column_names is None:
            raise ConfigurationError(
                "header=False, and nothing says what the columns are called.", remedy='give column_names=["a", ...].'
            )
        for name, dtype in self.dtypes.items():
            try:
                _dtype(dtype)
            except TypeError:
                raise ConfigurationError(
                    f"dtypes names {dtype!r} for the column {name!r}, which is no dtype.",
                    remedy='use names such as "float32", "int64", "bool" or "str".',
                ) from None

    def uncuttable(self, files: Sequence[File]) -> str | None:
        """See `Reader`."""
        if self.newlines_in_values:
            return "newlines_in_values=True, so that a line end may lie within a value"
        return text.uncuttable(files, self.compression) or super().uncuttable(files)

    def facts(self, files: Sequence[File]) -> Columns | None:
        """Returns names and dtypes: of the first file with a row; None if all files are empty."""
        found = None
        for file in files:
            if file.size == 0:
                continue
            with stream.opened(file, stream.compression_of(file, self.compression)) as opened:
                names, at = self._header(opened)
                if names is None:
                    continue
                known(names, [*self._selected(()), *self.dtypes], "columns, label or dtypes", file)
                at, chunk = next(self._chunks(opened, at, None), (at, b""))
                found = Columns(tuple(names), tuple(self._dtypes(opened, names, at, chunk)), file.path)
            if chunk.strip():
                break
        return found

    def read(self, file: File, piece: Piece | None, facts: Any) -> Iterator[Block]:
        """See `Reader`."""
        with stream.opened(file, stream.compression_of(file, self.compression)) as opened:
            names, begin = self._header(opened)
            if names is None:
                return
            if tuple(names) != facts.names:
                raise DataError(
                    f"{file.path} has other columns than {facts.origin}: {', '.join(names)} instead of "
                    f"{', '.join(facts.names)}.",
                    remedy="read files with other columns as a data set of their own.",
                )
            start, stop = (piece.start, piece.stop) if piece else (0, None)
            if stop is not None and stop <= begin:
                return
            for at, chunk in self._chunks(opened, max(start, begin), stop):
                if chunk.strip(b"\r\n"):
                    yield labelled(self._parse(opened, at, chunk, facts), self.label)

    def _chunks(self, opened: stream.Stream, at: int, stop: int | None) -> Iterator[tuple[int, bytes]]:
        if opened.size is not None and not self.newlines_in_values:
            yield from stream.line_chunks(opened, at, stop)
            return
        # Read from the beginning, where quotation marks can be counted; what is before the first row is cut off.
        for begin, chunk in stream.line_chunks(opened, quote=b'"' if self.newlines_in_values else None):
            if begin + len(chunk) > at:
                yield max(begin, at), chunk[max(0, at - begin) :]

    def _header(self, opened: stream.Stream) -> tuple[list[str] | None, int]:
        """Returns the names of the columns, None if the file is empty, and the position of the first row."""
        lines = self.skip_rows + self.header
        head = b""
        while head.count(b"\n") < max(lines, 1):
            more = opened.read(len(head), stream.TAIL)
            if not more:
                break
            head += more
        opened.unread(head)
        if not head.strip():
            return None, 0
        rows = head.split(b"\n", lines)
        at = min(sum(len(row) + 1 for row in rows[:lines]), len(head))
        if not self.header:
            return list(self.column_names or ()), at
        line = b"".join(rows[lines - 1 : lines]).decode("utf-8-sig" if lines == 1 else "utf-8", "replace").rstrip("\r")
        if len(rows) < lines or not line:
            return None, 0
        names = next(csv.reader([line], delimiter=self.separator))
        if self.column_names is not None and len(names) != len(self.column_names):
            raise DataError(f"{opened.file.path} has {len(names)} columns, column_names has {len(self.column_names)}.")
        if len(set(names)) < len(names):
            raise DataError(
                f"{opened.file.path}, line {lines}: a column name comes twice: {', '.join(names)}.",
                remedy="give column_names, or header=False if the file has no line of names.",
            )
        return list(self.column_names or names), at

    def _selected(self, names: Sequence[str]) -> list[str]:
        chosen = list(names if self.columns is None else self.columns)
        return chosen if self.label is None or self.label in chosen else [*chosen, self.label]

    def _dtypes(self, opened: stream.Stream, names: list[str], at: int, chunk: bytes) -> Iterator[str]:
        """Guesses from the first rows what was not said."""
        found: dict[str, str] = {}
        if chunk.strip(b"\r\n"):
            arrow, types = library("pyarrow"), library("pyarrow.types")
            try:
                table = self._table(chunk, names, None)
            except arrow.ArrowInvalid as error:
                raise self._broken(opened, at, chunk, names, str(error)) from None
            for name, column in zip(table.column_names, table.columns, strict=True):
                if types.is_integer(column.type) and not column.null_count:
                    found[name] = "int64"
                elif types.is_boolean(column.type) and not column.null_count:
                    found[name] = "bool"
                elif types.is_integer(column.type) or types.is_floating(column.type) or types.is_null(column.type):
                    found[name] = "float32"
        for name in names:
            yield _dtype(self.dtypes[name]) if name in self.dtypes else found.get(name, TEXT)

    def _table(self, chunk: bytes, names: Sequence[str], dtypes: Mapping[str, str] | None) -> Any:
        arrow, parser = library("pyarrow"), library("pyarrow.csv")
        types = {n: arrow.string() if t == TEXT else arrow.from_numpy_dtype(t) for n, t in (dtypes or {}).items()}
        nulls = {} if self.na_values is None else {"null_values": list(self.na_values)}
        return parser.read_csv(
            arrow.BufferReader(chunk),
            # Threads would say no row numbers in errors; a process per device has a core or two.
            parser.ReadOptions(use_threads=False, column_names=list(names), block_size=len(chunk) + 1),
            parser.ParseOptions(delimiter=self.separator, newlines_in_values=self.newlines_in_values),
            parser.ConvertOptions(column_types=types, include_columns=self._selected(names), **nulls),
        )

    def _parse(self, opened: stream.Stream, at: int, chunk: bytes, facts: Columns) -> dict[str, np.ndarray]:
        arrow = library("pyarrow")
        dtypes = dict(zip(facts.names, facts.dtypes, strict=True))
        try:
            table = self._table(chunk, facts.names, dtypes)
        except arrow.ArrowInvalid as error:
            raise self._broken(opened, at, chunk, facts.names, str(error)) from None
        found = {}
        for name, column in zip(table.column_names, table.columns, strict=True):
            if column.null_count and dtypes[name] != TEXT and np.dtype(dtypes[name]).kind != "f":
                row = column.is_null().index(True).as_py()
                raise DataError(
                    f"{self._place(opened, at, chunk, row)}: the column {name!r} has no value, and {dtypes[name]} has "
                    "none that says so.",
                    remedy=f'use dtypes={{"{name}": "float32"}}: what is missing is NaN then.',
                )
            found[name] = column.to_numpy()
        return found

    def _broken(self, opened: stream.Stream, at: int, chunk: bytes, names: Sequence[str], message: str) -> DataError:
        """Returns the error for what pyarrow cannot parse."""
        row = re.search(r"Row #(\d+)", message)
        place = self._place(opened, at, chunk, int(row[1]) - 1) if row else f"{opened.file.path}, after byte {at:,}"
        column = re.search(r"In CSV column #(\d+)", message)
        told = re.sub(r"(In CSV column #\d+: )|(Row #\d+: )|(CSV (parse|conversion) error:? ?)", "", message).strip()
        if column is None:
            return DataError(f"{place}: {told}", remedy="mend the file, or check separator and skip_rows.")
        name = names[int(column[1])]
        return DataError(
            f"{place}, column {name!r}: {told}",
            remedy=f'name a fitting dtype, e.g. dtypes={{"{name}": "float32"}} or "str", or what stands for a missing '
            "value: na_values.",
        )

    def _place(self, opened: stream.Stream, at: int, chunk: bytes, row: int) -> str:
        """Returns where a row of a chunk is, in words; rows are counted from 0."""
        if opened.size is None or self.newlines_in_values:
            return f"{opened.file.path}, row {row + 1:,} after byte {at:,}"
        # Blank lines are no rows.
        filled = (k for k, line in enumerate(chunk.split(b"\n")) if line.strip(b"\r"))
        line = next(itertools.islice(filled, row, None), row)
        return f"{opened.file.path}, line {stream.lines_before(opened, at) + line + 1:,}"


def _dtype(given: Any) -> str:
    if given is str or given in ("str", "string", "object"):
        return TEXT
    return str(np.dtype(given))
