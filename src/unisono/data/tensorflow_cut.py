"""Ranges of text and TFRecord files as `tf.data` pipelines, so that a worker reads no more than its own bytes."""

from __future__ import annotations

import contextlib
import functools
import mmap
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from unisono.data import pieces, record_bounds
from unisono.data.record_bounds import Read

_CHUNK = 1 << 20
_COLUMNS = 4
"""Numbers that say what to read of a file; what they mean depends on the reader."""

_as_it_is = tf.autograph.experimental.do_not_convert
_TEXT = "TextLineDataset"
_RECORDS = ("TFRecordDataset", "TFRecordDatasetV2")


def cuttable(reader: str, names: Sequence[str]) -> bool:
    """Returns whether files can be cut: text, and TFRecords of the local file system.

    To know how many TFRecords a range holds, their headers must be read, which is cheap in a local file only.

    Args:
        reader: Op that reads them, uncompressed.
        names: Names of the files.
    """
    return reader == _TEXT or (reader in _RECORDS and not any("://" in name for name in names))


def own_range(
    files: Any, names: Sequence[str], sizes: Sequence[int], reader: str, *, cycle: int, rank: int, size: int
) -> Any:
    """Returns a data set of this worker's records.

    Args:
        files: Data set of file names, in the order in which they shall be read.
        names: All of them, once each.
        sizes: Bytes of each.
        reader: One for which `cuttable` holds.
        cycle: How many files are read in turn.
        rank: This worker.
        size: Number of workers.
    """
    bounds = _text_bounds if reader == _TEXT else functools.partial(_record_bounds, rank)
    owned = [(names[p.file], bounds(names[p.file], p, sizes[p.file])) for p in pieces.ranges(sizes, rank, size)]
    owned = [(name, row) for name, row in owned if row is not None]
    name = tf.constant([name for name, _ in owned], tf.string)
    rows = tf.constant(np.array([row for _, row in owned], np.int64).reshape(len(owned), _COLUMNS))
    one = _lines if reader == _TEXT else _records

    @_as_it_is  # type: ignore[untyped-decorator]
    def mine(file: Any) -> Any:
        return tf.reduce_any(tf.equal(name, file))

    @_as_it_is  # type: ignore[untyped-decorator]
    def ranges(file: Any) -> Any:
        own = tf.gather(rows, tf.where(tf.equal(name, file))[:, 0])
        return tf.data.Dataset.from_tensor_slices((tf.fill([tf.shape(own)[0]], file), own))

    mine_in_order = files.filter(mine).flat_map(ranges)
    if cycle == 1:
        # The same, for less work per record.
        return mine_in_order.flat_map(_as_it_is(one))
    return mine_in_order.interleave(_as_it_is(one), cycle_length=cycle, block_length=1)


def _text_bounds(name: str, piece: pieces.Piece, size: int) -> tuple[int, ...] | None:
    """Returns the first byte, the byte after the last, whether a line feed is missing at the end, and 0.

    A whole file has no such range, and 1 in the end: TensorFlow's own reader of lines is faster.
    """
    if (piece.start, piece.stop) == (0, size):
        return (0, 0, 0, 1) if size else None
    with _file(name) as read:
        start, stop = (record_bounds.next_line(read, at, size) for at in (piece.start, piece.stop))
        unended = stop == size and read(size - 1, 1) != b"\n"
    return (start, stop, int(unended), 0) if start < stop else None


def _record_bounds(rank: int, name: str, piece: pieces.Piece, size: int) -> tuple[int, ...] | None:
    """Returns the first byte and the number of records."""
    with _mapped(name) as read:
        start, stop = (record_bounds.next_record(read, at, size) for at in (piece.start, piece.stop))
        count = record_bounds.count_records(read, start, stop, f"Worker {rank} cannot read its data: {name}")
    return (start, count, 0, 0) if count else None


@contextlib.contextmanager
def _file(name: str) -> Iterator[Read]:
    with contextlib.ExitStack() as stack:
        opener: Any = tf.io.gfile.GFile if "://" in name else open
        file = stack.enter_context(opener(name, "rb"))

        def read(at: int, count: int) -> bytes:
            file.seek(at)
            return bytes(file.read(count))

        yield read


@contextlib.contextmanager
def _mapped(name: str) -> Iterator[Read]:
    """Opens a local file of which many headers are looked at: a page is touched where a call would be made."""
    with open(name, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        yield lambda at, count: mapped[at : at + count]


def _records(file: Any, row: Any) -> Any:
    variant = tf.raw_ops.TFRecordDatasetV2(
        filenames=[file], compression_type="", buffer_size=_CHUNK >> 2, byte_offsets=[row[0]]
    )
    return tf.data.experimental.from_variant(variant, tf.TensorSpec([], tf.string)).take(row[1])


def _lines(file: Any, row: Any) -> Any:
    # One or the other: each line would pass through a data set that joins both.
    variant = tf.cond(
        row[3] > 0,
        # Not by `tf.data.TextLineDataset`, which is two data sets, one inside another.
        lambda: tf.raw_ops.TextLineDataset(filenames=[file], compression_type="", buffer_size=_CHUNK >> 2),
        lambda: tf.data.experimental.to_variant(_lines_of_range(file, row[0], row[1], row[2])),
    )
    return tf.data.experimental.from_variant(variant, tf.TensorSpec([], tf.string))


def _lines_of_range(file: Any, start: Any, stop: Any, unended: Any) -> Any:
    """Reads a range in chunks and cuts these into lines; what a chunk ends with goes before the next one."""
    end = tf.data.Dataset.from_tensors(tf.constant("\n")).take(unended)

    @_as_it_is  # type: ignore[untyped-decorator]
    def chunk(at: Any) -> Any:
        # TensorFlow's own readers of ranges read all that lies before one. A call of Python for each MB costs nothing.
        text = tf.numpy_function(_chunk, [file, at, tf.minimum(at + _CHUNK, stop)], tf.string)
        return tf.ensure_shape(text, [])

    @_as_it_is  # type: ignore[untyped-decorator]
    def split(before: Any, text: Any) -> Any:
        lines = tf.strings.split(before + text, "\n")
        return lines[-1], lines[:-1]

    chunks = tf.data.Dataset.range(start, stop, _CHUNK).map(chunk).concatenate(end)
    return chunks.scan(tf.constant(""), split).unbatch()


def _chunk(name: bytes, start: int, stop: int) -> bytes:
    with _file(name.decode()) as read:
        # As `TextLineDataset` does, wherever they are.
        return read(int(start), int(stop - start)).replace(b"\r", b"")
