"""Lines of text files."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from unisono.data import text_lines
from unisono.errors import ConfigurationError, DataError


def lines(path: Path, **options: str | None) -> list[str | bytes]:
    return [line for block in text_lines(path, **options) for line in block]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", []),
        (b"one", ["one"]),
        (b"one\n", ["one"]),
        (b"one\n\ntwo\n", ["one", "", "two"]),
        (b"one\r\ntwo\r\n", ["one", "two"]),
        (b"a\x0bb\xc2\x85c\n", ["a\x0bb\x85c"]),
        (b"\xef\xbb\xbfwith mark\n", ["with mark"]),
        ("grün\n".encode(), ["grün"]),
    ],
)
def test_lines(tmp_path: Path, data: bytes, expected: list[str]) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(data)
    assert lines(path) == expected
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(data))
    assert lines(tmp_path / "a.txt.gz") == expected


def test_bytes_and_other_encodings(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"gr\xfcn\r\nb\n")
    assert lines(path, encoding=None) == [b"gr\xfcn", b"b"]
    assert lines(path, encoding="latin-1") == ["grün", "b"]


def test_a_wrong_encoding_is_told_with_the_line(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"a\nb\ngr\xfcn\n")
    with pytest.raises(DataError, match=r"a\.txt, line 3: byte 0xfc is not utf-8"):
        lines(path)


@pytest.mark.parametrize("encoding", ["utf-16", "nosuch"])
def test_encodings_that_cannot_be_read_by_line(tmp_path: Path, encoding: str) -> None:
    with pytest.raises(ConfigurationError, match=f"encoding='{encoding}'"):
        text_lines(tmp_path, encoding=encoding)
