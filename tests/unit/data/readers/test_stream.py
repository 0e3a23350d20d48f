"""Bytes and whole lines of a file."""

from __future__ import annotations

import bz2
import gzip
import io
import itertools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unisono.data.file_list import File, expand
from unisono.data.readers import stream
from unisono.errors import ConfigurationError, DataError


class Shared(io.BytesIO):
    """A file whose position others may move, with short reads."""

    def read(self, count: int | None = -1) -> bytes:
        return super().read(min(count or 0, 7))


def opened(data: bytes, sized: bool = True) -> stream.Stream:
    return stream.Stream(File("f", len(data)), Shared(data), len(data) if sized else None)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from([b"", b"a", b"bc", b"d" * 30, b"\r"])), st.booleans(), st.data())
def test_each_line_lies_in_one_range(lines: list[bytes], ended: bool, data: st.DataObject) -> None:
    text = b"\n".join(lines) + (b"\n" if ended else b"")
    cuts = data.draw(st.lists(st.integers(0, len(text)), max_size=5).map(sorted))
    ends = [0, *cuts, len(text)]
    found = []
    for start, stop in itertools.pairwise(ends):
        if start == stop:
            continue
        for at, chunk in stream.line_chunks(opened(text), start, stop):
            assert text[at : at + len(chunk)] == chunk
            assert at == 0 or text[at - 1 : at] == b"\n"
            assert start <= at
            found.append(chunk)
    assert b"".join(found) == text


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=100))
def test_streams_of_unknown_length_are_read_to_the_end(data: bytes) -> None:
    assert b"".join(chunk for _, chunk in stream.line_chunks(opened(data, sized=False))) == data


def test_quoted_line_ends_end_no_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "CHUNK", 4)
    text = b'a,"x\ny"\nb,"""\n\n"\nc,d\n'
    chunks = [chunk for _, chunk in stream.line_chunks(opened(text), quote=b'"')]
    assert b"".join(chunks) == text and len(chunks) > 1
    assert all(chunk.count(b'"') % 2 == 0 for chunk in chunks)


def test_lines_before_a_position() -> None:
    assert [stream.lines_before(opened(b"a\nb\nc"), at) for at in (0, 1, 2, 4)] == [0, 0, 1, 2]


def test_a_file_that_ends_early_is_named(tmp_path: Path) -> None:
    short = stream.Stream(File("short.txt", 10), io.BytesIO(b"abc"), 10)
    with pytest.raises(DataError, match=r"short\.txt ends at byte 3; it had 10 bytes"):
        list(stream.line_chunks(short))


@pytest.mark.parametrize(("ending", "compress"), [(".gz", gzip.compress), (".bz2", bz2.compress), ("", bytes)])
def test_compression_is_inferred(tmp_path: Path, ending: str, compress: Any) -> None:
    path = tmp_path / f"a.txt{ending}"
    path.write_bytes(compress(b"hello\n"))
    (file,) = expand(path)
    with stream.opened(file, stream.compression_of(file, "infer")) as found:
        assert found.read(0, 100) == b"hello\n"


def test_compression_by_name(tmp_path: Path) -> None:
    assert stream.compression_of(File("a.gz", 1), None) is None
    assert stream.compression_of(File("a", 1), "GZIP") == "gzip"
    with pytest.raises(ConfigurationError, match="'nosuch' of a cannot be read"):
        stream.compression_of(File("a", 1), "nosuch")


def test_broken_compression_is_named(tmp_path: Path) -> None:
    for data in (gzip.compress(b"hello" * 100)[:-10], b"no gzip at all"):
        path = tmp_path / "a.gz"
        path.write_bytes(data)
        (file,) = expand(path)
        with pytest.raises(DataError, match=r"a\.gz cannot be read"), stream.opened(file, "gzip") as found:
            list(stream.line_chunks(found))


def test_bytes_can_be_given_back() -> None:
    found = opened(b"abcdef", sized=False)
    head = found.read(0, 4)
    found.unread(head)
    assert found.read(0, 3) + found.read(3, 3) + found.read(4, 5) == b"abcdef"
