"""Parquet files, read by pyarrow one row group after the other."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unisono.data.file_list import File, library
from unisono.data.pieces import Piece, ranges
from unisono.data.readers import stream
from unisono.data.readers.reader import Block, Reader, known, labelled
from unisono.errors import DataError

BLOCK = 8192
"""Rows of a block."""


@dataclass(frozen=True)
class Schema:
    """What all Parquet files of a data set have in common.

    Args:
        types: Arrow's type of each column that is read, by name.
        origin: The file they were found in.
    """

    types: dict[str, str]
    origin: str


@dataclass(frozen=True)
class ParquetReader(Reader):
    """Columns of Parquet files.

    Args:
        columns: Those to read; None for all.
        label: A column that becomes the target.
    """

    columns: Sequence[str] | None = None
    label: str | None = None
    noun = "Parquet file"

    def uncuttable(self, files: Sequence[File]) -> str | None:
        """See `Reader`."""
        return None

    def facts(self, files: Sequence[File]) -> Schema | None:
        """Returns the columns of the first file that is not empty; None if there is none."""
        for file in files:
            if file.size != 0:
                with self._opened(file) as table:
                    asked = [*(self.columns or ()), *([] if self.label is None else [self.label])]
                    known(table.schema_arrow.names, asked, "columns or label", file)
                    return Schema(self._types(table), file.path)
        return None

    def counts(self, files: Sequence[File]) -> list[Any]:
        """Returns the numbers of rows of each file's row groups."""
        found: list[list[int]] = []
        for file in files:
            found.append([])
            if file.size != 0:
                with self._opened(file) as table:
                    groups = range(table.metadata.num_row_groups)
                    found[-1] = [table.metadata.row_group(group).num_rows for group in groups]
        return found

    def cut(self, counts: list[Any], rank: int, workers: int) -> list[Piece]:
        """Returns ranges of rows: whole row groups, unless there are fewer of them than workers."""
        if sum(map(len, counts)) < workers:
            return ranges([sum(groups) for groups in counts], rank, workers)
        return [
            Piece(piece.file, sum(groups[: piece.start]), sum(groups[: piece.stop]))
            for piece in ranges([len(groups) for groups in counts], rank, workers)
            for groups in [counts[piece.file]]
        ]

    def measure(self, file: File, piece: Piece | None) -> tuple[int | None, int | None]:
        """See `Reader`; ranges are of rows."""
        return (file.size, None) if piece is None else (None, piece.stop - piece.start)

    def read(self, file: File, piece: Piece | None, facts: Any) -> Iterator[Block]:
        """See `Reader`."""
        with self._opened(file) as table:
            types = self._types(table)
            if types != facts.types:
                raise DataError(
                    f"{file.path} has other columns than {facts.origin}: {_unlike(types, facts.types)}.",
                    remedy="name the columns that all files have: columns=[...], or read the others as another data "
                    "set.",
                )
            start, stop = (piece.start, piece.stop) if piece else (0, table.metadata.num_rows)
            first = 0
            for group in range(table.metadata.num_row_groups):
                number = table.metadata.row_group(group).num_rows
                if first < stop and first + number > start:
                    yield from self._group(table, file, group, first, max(start, first), min(stop, first + number))
                first += number

    def _group(self, table: Any, file: File, group: int, first: int, start: int, stop: int) -> Iterator[Block]:
        # Threads of Arrow would call Python's files from outside; a process per device has a core or two.
        found = table.iter_batches(BLOCK, row_groups=[group], columns=list(self._types(table)), use_threads=False)
        at = first
        while (batch := _next(found, file)) is not None:
            begin, end = max(start, at) - at, min(stop, at + batch.num_rows) - at
            if begin < end:
                part = batch.slice(begin, end - begin)
                columns = {
                    name: _array(part.column(k), name, file, at + begin) for k, name in enumerate(part.schema.names)
                }
                yield labelled(columns, self.label)
            at += batch.num_rows
            if at >= stop:
                return

    def _types(self, table: Any) -> dict[str, str]:
        schema = table.schema_arrow
        names = schema.names if self.columns is None else list(self.columns)
        if self.label is not None and self.label not in names:
            names = [*names, self.label]
        return {name: str(schema.field(name).type) for name in names if name in schema.names}

    @contextlib.contextmanager
    def _opened(self, file: File) -> Iterator[Any]:
        arrow, parquet = library("pyarrow"), library("pyarrow.parquet")
        file.check()
        system, path = file.system
        with stream.naming(file), system.open(path, "rb") as handle:
            try:
                table = parquet.ParquetFile(handle)
            except arrow.ArrowException as error:
                raise DataError(f"{file.path} is not a Parquet file: {_told(error)}.") from None
            with table:
                yield table


def _next(found: Iterator[Any], file: File) -> Any:
    try:
        return next(found, None)
    except library("pyarrow").ArrowException as error:
        raise DataError(f"{file.path} is broken: {_told(error)}.", remedy="write or copy the file anew.") from None


def _told(error: Exception) -> str:
    return str(error).rstrip(". ")


def _unlike(mine: dict[str, str], others: dict[str, str]) -> str:
    told = [f"no {name!r}" for name in others if name not in mine]
    told += [f"{name!r} in addition" for name in mine if name not in others]
    told += [f"{name!r} is {kind}, not {others[name]}" for name, kind in mine.items() if others.get(name, kind) != kind]
    return ", ".join(told) or "in another order"


def _array(column: Any, name: str, file: File, first: int) -> np.ndarray:
    """Turns a column into an array: lists of one length into a dimension, text and bytes into objects."""
    arrow, types = library("pyarrow"), library("pyarrow.types")
    kind = column.type
    if types.is_dictionary(kind):
        column, kind = column.dictionary_decode(), kind.value_type
    if types.is_decimal(kind):
        column, kind = column.cast(arrow.float64()), arrow.float64()
    if column.null_count and not types.is_floating(kind):
        row = first + column.is_null().index(True).as_py()
        raise DataError(
            f"{file.path}, row {row:,} (counted from 0): the column {name!r} has no value, and {kind} has none that "
            "says so.",
            remedy="leave the column out, or write it as float or with the missing values filled in.",
        )
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        lengths = np.diff(column.offsets) if not types.is_fixed_size_list(kind) else np.array([kind.list_size])
        if lengths.min() != lengths.max():
            row = first + int(np.flatnonzero(lengths != lengths[0])[0])
            raise DataError(
                f"{file.path}, row {row:,} (counted from 0): the column {name!r} has {lengths[row - first]} values, "
                f"row {first:,} has {lengths[0]}.",
                remedy="write lists of one length, or leave the column out.",
            )
        values = _array(column.flatten(), name, file, first)
        return values.reshape(len(column), int(lengths[0]), *values.shape[1:])
    return np.asarray(column.to_numpy(zero_copy_only=False))
