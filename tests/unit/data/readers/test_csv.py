"""CSV files: columns, their dtypes, and what is wrong with a file."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from unisono.data import csv
from unisono.data.readers import stream
from unisono.errors import ConfigurationError, DataError


def read(folder: Path, *texts: str, **options: Any) -> dict[str, list[Any]]:
    """Returns the columns of some files."""
    paths = []
    for k, text in enumerate(texts):
        paths.append(folder / f"{k}.csv")
        paths[-1].write_bytes(text.encode())
    blocks = list(csv(paths, **options))
    return {name: np.concatenate([block[name] for block in blocks]).tolist() for name in (blocks[0] if blocks else ())}


def test_dtypes_are_found_out(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("i,f,n,b,s,d\n1,1.5,1,true,x,2020-01-01\n2,2,,false,,2020-01-02\n")
    (block,) = csv(tmp_path / "a.csv")
    assert {name: str(column.dtype) for name, column in block.items()} == {
        "i": "int64", "f": "float32", "n": "float32", "b": "bool", "s": "object", "d": "object",
    }  # fmt: skip
    assert block["s"].tolist() == ["x", ""] and block["d"][0] == "2020-01-01"
    assert block["n"][0] == 1 and np.isnan(block["n"][1])


def test_dtypes_are_those_of_the_first_rows_everywhere(tmp_path: Path) -> None:
    assert read(tmp_path, "a\n", "", "a\n1.5\n", "a\n2\n") == {"a": [1.5, 2.0]}


def test_dtypes_by_the_user(tmp_path: Path) -> None:
    found = read(tmp_path, "a,b\n1,2\n", dtypes={"a": "str", "b": np.float64})
    assert found == {"a": ["1"], "b": [2.0]}


def test_a_label_and_chosen_columns(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b,c\n1,2,3\n")
    ((features, label),) = csv(tmp_path / "a.csv", label="b", columns=["c"])
    assert list(features) == ["c"] and label.tolist() == [2]


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        ("a\tb\r\n1\t2\r\n", {"separator": "\t"}, {"a": [1], "b": [2]}),
        ("1,2\n", {"header": False, "column_names": ["p", "q"]}, {"p": [1], "q": [2]}),
        ("a,b\n1,2\n", {"column_names": ["p", "q"]}, {"p": [1], "q": [2]}),
        ("# made\n# today\na,b\n1,2\n", {"skip_rows": 2}, {"a": [1], "b": [2]}),
        ("# made\n1,2\n", {"skip_rows": 1, "header": False, "column_names": ["p", "q"]}, {"p": [1], "q": [2]}),
        ("\ufeffa,b\n1,2", {}, {"a": [1], "b": [2]}),
        ('"a ""x""",b\n"1,5",2\n', {}, {'a "x"': ["1,5"], "b": [2]}),
        ('a,b\n"x\ny",2\n"""\n""",3\n', {"newlines_in_values": True}, {"a": ["x\ny", '"\n"'], "b": [2, 3]}),
        ("a,b\n-,2\n", {"na_values": ["-"], "dtypes": {"a": "float32"}}, {"a": [np.nan], "b": [2]}),
        ("a,b\n", {}, {}),
        ("# made\n", {"skip_rows": 1}, {}),
        ("# made", {"skip_rows": 2}, {}),
        ("# made", {"skip_rows": 1, "header": False, "column_names": ["p"]}, {}),
        ("", {}, {}),
        ("\n", {}, {}),
        ("a\n1\n\n2\n\n\n", {}, {"a": [1, 2]}),
    ],
)
def test_forms(tmp_path: Path, text: str, options: Any, expected: Any) -> None:
    np.testing.assert_equal(read(tmp_path, text, **options), expected)
    packed = tmp_path / "a.csv.gz"
    packed.write_bytes(gzip.compress(text.encode()))
    blocks = list(csv(packed, **options))
    np.testing.assert_equal({name: c.tolist() for block in blocks for name, c in block.items()}, expected)


def test_many_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "CHUNK", 64)
    text = "a,b\n" + "".join(f"{k},x{k}\n" for k in range(500))
    for options in ({}, {"newlines_in_values": True}):
        assert read(tmp_path, text, **options) == {"a": list(range(500)), "b": [f"x{k}" for k in range(500)]}


@pytest.mark.parametrize(
    ("texts", "options", "said"),
    [
        (["a,b\n1,2\n\n3\n"], {}, r"0\.csv, line 4: Expected 2 columns, got 1"),
        (["a,b\n1,2\n", "a,b\n1,2\n1,2,3\n"], {}, r"1\.csv, line 3: Expected 2 columns, got 3"),
        (["a,b\n1,2\n\n", "a,b\n1,2\n3,x\n"], {}, r"1\.csv, line 3, column 'b': .*'x'(.|\n)*dtypes=\{\"b\""),
        (["a,b\n1,2\n\n", "a,b\n1,2\n3,\n"], {}, r"1\.csv, line 3: the column 'b' has no value, and int64"),
        (["a,b\n1,2\n", "a,c\n1,2\n"], {}, r"1\.csv has other columns than .*0\.csv: a, c instead of a, b"),
        (["a,b\n1,2\n", "b,a\n1,2\n"], {}, r"1\.csv has other columns"),
        (["a,a\n1,2\n"], {}, r"0\.csv, line 1: a column name comes twice"),
        (["a,b\n1,2\n"], {"column_names": ["p"]}, r"0\.csv has 2 columns, column_names has 1"),
    ],
)
def test_broken_files_are_named_with_the_place(tmp_path: Path, texts: list[str], options: Any, said: str) -> None:
    with pytest.raises(DataError, match=said):
        read(tmp_path, *texts, **options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"label": "c"}, "'c', which .* does not have"),
        ({"columns": ["a", "c"]}, "'c', which .* does not have"),
        ({"dtypes": {"c": "int64"}}, "'c', which .* does not have"),
        ({"dtypes": {"a": "nosuch"}}, "'nosuch' for the column 'a'"),
        ({"separator": "::"}, "'::' is not one ASCII"),
        ({"header": False}, "header=False"),
    ],
)
def test_arguments_that_do_not_fit(tmp_path: Path, options: Any, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        read(tmp_path, "a,b\n1,2\n", **options)
