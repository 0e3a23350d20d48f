"""Parquet files: columns as arrays, and what is wrong with a file."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unisono.data import parquet
from unisono.data.pieces import Piece
from unisono.data.readers.parquet import ParquetReader
from unisono.errors import ConfigurationError, DataError


def write(path: Path, columns: dict[str, Any], group: int | None = None) -> Path:
    pq.write_table(pa.table(columns), path, row_group_size=group)
    return path


def test_columns_of_any_kind(tmp_path: Path) -> None:
    columns = {
        "f": pa.array([1.0, None], pa.float32()),
        "i": pa.array([1, 2], pa.int32()),
        "b": [True, False],
        "s": ["x", "y"],
        "raw": [b"1", b"2"],
        "d": pa.array(["p", "p"]).dictionary_encode(),
        "l": [[1, 2, 3], [4, 5, 6]],
        "ll": [[[1.0], [2.0]], [[3.0], [4.0]]],
        "fixed": pa.array([[1, 2], [3, 4]], pa.list_(pa.int8(), 2)),
        "t": pa.array([0, 1], pa.timestamp("ms")),
        "m": [Decimal("1.5"), Decimal("2.5")],
    }
    (block,) = parquet(write(tmp_path / "a.parquet", columns))
    assert {name: (str(c.dtype), c.shape[1:]) for name, c in block.items()} == {
        "f": ("float32", ()), "i": ("int32", ()), "b": ("bool", ()), "s": ("object", ()), "raw": ("object", ()),
        "d": ("object", ()), "l": ("int64", (3,)), "ll": ("float64", (2, 1)), "fixed": ("int8", (2,)),
        "t": ("datetime64[ms]", ()), "m": ("float64", ()),
    }  # fmt: skip
    assert np.isnan(block["f"][1]) and block["l"].tolist() == [[1, 2, 3], [4, 5, 6]]
    assert block["raw"].tolist() == [b"1", b"2"] and block["m"].tolist() == [1.5, 2.5]


def test_chosen_columns_and_a_label(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", {"a": [1], "b": [2], "c": [3]})
    ((features, label),) = parquet(path, columns=["c"], label="a")
    assert list(features) == ["c"] and label.tolist() == [1]
    with pytest.raises(ConfigurationError, match="'z', which"):
        list(parquet(path, columns=["z"]))


def test_empty_files_are_no_error(tmp_path: Path) -> None:
    write(tmp_path / "b.parquet", {"a": pa.array([], pa.int64())})
    write(tmp_path / "c.parquet", {"a": [1, 2]})
    (tmp_path / "a.parquet").touch()
    assert [block["a"].tolist() for block in parquet(tmp_path / "*.parquet")] == [[1, 2]]


def test_ranges_of_rows(tmp_path: Path) -> None:
    from unisono.data.file_list import expand

    (file,) = expand(write(tmp_path / "a.parquet", {"a": list(range(10))}, group=3))
    reader = ParquetReader()
    facts, counts = reader.facts([file]), reader.counts([file])
    assert counts == [[3, 3, 3, 1]]
    assert reader.cut(counts, 1, 3) == [Piece(0, 3, 6)]
    assert reader.cut(counts, 4, 5) == [Piece(0, 8, 10)]
    for workers in (1, 2, 3, 4, 5, 7):
        pieces = [piece for rank in range(workers) for piece in reader.cut(counts, rank, workers)]
        rows = [row for piece in pieces for block in reader.read(file, piece, facts) for row in block["a"].tolist()]
        assert rows == list(range(10))


@pytest.mark.parametrize(
    ("second", "said"),
    [
        ({"a": [1]}, r"b\.parquet has other columns than .*a\.parquet: no 'b'"),
        ({"a": [1], "b": [1], "c": [1]}, "'c' in addition"),
        ({"a": [1.5], "b": [1]}, "'a' is double, not int64"),
        ({"a": [1], "b": [None]}, "'b' is null, not int64"),
        ({"a": [1, 2], "b": pa.array([1, None], pa.int64())}, r"b\.parquet, row 1 .* 'b' has no value, and int64"),
    ],
)
def test_files_that_do_not_fit_are_named(tmp_path: Path, second: Any, said: str) -> None:
    write(tmp_path / "a.parquet", {"a": [1], "b": [1]})
    write(tmp_path / "b.parquet", second)
    with pytest.raises(DataError, match=said):
        list(parquet(tmp_path / "*.parquet"))


def test_lists_of_several_lengths(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", {"a": [[1, 2], [3, 4], [5]]})
    with pytest.raises(DataError, match=r"row 2 .* 'a' has 1 values, row 0 has 2"):
        list(parquet(path))


def test_what_is_no_parquet_file(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", {"a": list(range(1000))})
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(DataError, match=r"a\.parquet is not a Parquet file"):
        list(parquet(path))
