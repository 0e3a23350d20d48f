"""Data sets that lie in files, read without TensorFlow, for `fit` on any backend.

    rows = unisono.data.csv("s3://bucket/part-*.csv", label="price")
    model.fit(rows.shuffle(10_000).batch(256).prefetch(2), epochs=5)

Readers give blocks of some thousand rows: arrays, one row per example. Each method returns a new data set.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from unisono.data.file_list import File, Patterns, expand
from unisono.data.pieces import Piece
from unisono.data.policy import AutoShardPolicy
from unisono.data.readers.csv import CsvReader
from unisono.data.readers.parquet import ParquetReader
from unisono.data.readers.reader import Reader
from unisono.data.readers.text import TextReader
from unisono.data.readers.tfrecord import TfrecordReader
from unisono.data.stages import Batch, Lap, Map, Prefetch, Repeat, Shuffle, Stage, Start
from unisono.errors import ConfigurationError


@dataclass(frozen=True, eq=False)
class FileDataset:
    """Rows of files on their way to `fit`; immutable. Made by `text_lines`, `csv`, `tfrecord` and `parquet`.

    Args:
        reader: How to read a file.
        listed: The files.
        stages: What happens to their rows, in order.
        policy: How workers share the files.
    """

    reader: Reader
    listed: tuple[File, ...]
    stages: tuple[Stage, ...] = ()
    policy: AutoShardPolicy = AutoShardPolicy.AUTO
    _epochs: Iterator[int] = field(default_factory=itertools.count, repr=False)

    @property
    def files(self) -> list[str]:
        """The paths of the files, in the order in which they are read without a shuffle."""
        return [file.path for file in self.listed]

    @property
    def batch_size(self) -> int | None:
        """Examples of a global batch; None before `batch`."""
        return next((stage.size for stage in self.stages if isinstance(stage, Batch)), None)

    def shuffle(self, buffer_size: int, seed: int | None = None) -> FileDataset:
        """Shuffles the order of the files, and draws rows at random out of a buffer.

        Args:
            buffer_size: Rows of the buffer, on each worker.
            seed: 0 or more: the same orders in each run, another one for each epoch. None: a seed that the workers
                agree on.

        Raises:
            ConfigurationError: If `batch` came before.
        """
        _positive("shuffle", "buffer_size", buffer_size)
        if seed is not None and seed < 0:
            raise ConfigurationError(f"shuffle(seed={seed}) is negative.", remedy="use 0 or more.")
        if self.batch_size is not None:
            raise ConfigurationError("shuffle() comes after batch().", remedy="call shuffle() first: it shuffles rows.")
        return self._then(Shuffle(buffer_size, seed, place=len(self.stages) + 1))

    def map(self, fn: Callable[[Any], Any], workers: int = 1) -> FileDataset:
        """Calls a function with whole blocks of rows, or with whole batches if `batch` comes before.

        The function is vectorized: it gets arrays of many rows and returns arrays, in dicts or tuples if you like,
        with one row per example. Before `batch` the number of rows is any, and the function may return fewer of them.

        Args:
            fn: Takes what the data set gives so far: an array or a dict of arrays; `(features, label)` comes as two
                arguments, as in `tf.data`.
            workers: Threads that call it at the same time; the order is kept. They help where the function leaves
                Python's lock, as decoders of images and NumPy do.
        """
        _positive("map", "workers", workers)
        return self._then(Map(fn, workers))

    def batch(self, n: int, drop_remainder: bool = False) -> FileDataset:
        """Joins rows to batches.

        Args:
            n: Examples of a global batch, over all workers.
            drop_remainder: Whether to leave out rows at the end that fill no batch; where workers read files of
                their own, each leaves out its own.

        Raises:
            ConfigurationError: If `batch` came before.
        """
        _positive("batch", "n", n)
        if self.batch_size is not None:
            raise ConfigurationError("batch() was called twice.", remedy="call it once.")
        return self._then(Batch(n, drop_remainder))

    def repeat(self, count: int | None = None) -> FileDataset:
        """Reads everything several times in an epoch, each time in another order if it is shuffled.

        Args:
            count: How many times; None for no end, with `steps_per_epoch` in `fit`.
        """
        if count is not None:
            _positive("repeat", "count", count)
        return self._then(Repeat(count))

    def prefetch(self, n: int) -> FileDataset:
        """Lets a thread read and prepare ahead what comes before, while the model computes.

        Args:
            n: Batches (or blocks) to have ready.
        """
        _positive("prefetch", "n", n)
        return self._then(Prefetch(n))

    def with_options(self, policy: AutoShardPolicy | str | int) -> FileDataset:
        """Says how workers share the files.

        Args:
            policy: A policy of `unisono.data.AutoShardPolicy`, or its name.

        Raises:
            ConfigurationError: If there is no such policy, or it is HINT, which only `tf.data` pipelines can follow.
        """
        asked = AutoShardPolicy.of(policy)
        if asked is AutoShardPolicy.HINT:
            raise ConfigurationError(
                "AutoShardPolicy.HINT is about tf.data's shard(), which this data set does not have.",
                remedy="use AUTO, FILE, DATA or OFF.",
            )
        return replace(self, policy=asked)

    def __iter__(self) -> Iterator[Any]:
        """Yields the batches of all files in this process, or blocks of rows without `batch`."""
        facts = self.reader.facts(self.listed)

        def read(file: File) -> Iterator[Any]:
            return self.blocks(file, None, facts)

        lap = Lap(secrets.randbits(63), (0, next(self._epochs)), lambda n: n)
        return self.stream(self.listed, read, lap)

    def blocks(self, file: File, piece: Piece | None, facts: Any) -> Iterator[Any]:
        """Yields the rows of a file or a range of it, before any stage; see `Reader.read`. An empty file has none."""
        return iter(()) if file.size == 0 else self.reader.read(file, piece, facts)

    def stream(self, parts: Sequence[Any], read: Callable[[Any], Iterator[Any]], lap: Lap) -> Iterator[Any]:
        """Yields what the stages make of some parts of the files.

        Args:
            parts: Files, or pieces of files.
            read: Yields the blocks of one part.
            lap: The pass.
        """
        shuffle = next((stage for stage in self.stages if isinstance(stage, Shuffle)), None)

        def rows(lap: Lap) -> Iterator[Any]:
            order = range(len(parts))
            for k in order if shuffle is None else lap.random(shuffle.seed, 0).permutation(len(parts)).tolist():
                yield from read(parts[k])

        start: Start = rows
        for stage in self.stages:
            start = _bound(stage, start)
        return start(lap)

    def in_line(self) -> FileDataset:
        """Returns the data set for a look at one example: no shuffle, no threads, batches of one."""
        stages: list[Stage] = []
        for stage in self.stages:
            if isinstance(stage, Map):
                stages.append(replace(stage, workers=1))
            elif isinstance(stage, Batch):
                stages.append(Batch(1, drop_remainder=False))
        return replace(self, stages=tuple(stages))

    def _then(self, stage: Stage) -> FileDataset:
        return replace(self, stages=(*self.stages, stage), _epochs=itertools.count())


def _bound(stage: Stage, before: Start) -> Start:
    return lambda lap: stage.run(before, lap)


def _positive(method: str, argument: str, value: Any) -> None:
    if isinstance(value, bool) or not hasattr(value, "__index__") or value < 1:
        raise ConfigurationError(f"{method}({argument}={value!r}) is not a positive number.")


def text_lines(files: Patterns, *, encoding: str | None = "utf-8", compression: str | None = "infer") -> FileDataset:
    r"""Lines of text files, as an array of `str` objects without line ends ("\n" or "\r\n").

    Args:
        files: A path or glob pattern, or several; local or of any file system that fsspec knows (s3://, gs://,
            hdfs://, memory:// ...).
        encoding: How characters are written; None gives `bytes`.
        compression: "infer" goes by the ending (.gz, .bz2, .xz, .zst ...); a name such as "gzip"; None for none.

    Raises:
        ConfigurationError: If no file matches a pattern.
    """
    return FileDataset(TextReader(encoding, compression), expand(files))


def csv(
    files: Patterns,
    *,
    separator: str = ",",
    header: bool = True,
    column_names: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    label: str | None = None,
    dtypes: Mapping[str, Any] | None = None,
    skip_rows: int = 0,
    na_values: Sequence[str] | None = None,
    newlines_in_values: bool = False,
    compression: str | None = "infer",
) -> FileDataset:
    r"""Columns of CSV or TSV files, as a dict of arrays; all files have the same columns.

    Args:
        files: A path or glob pattern, or several; local or of any file system that fsspec knows.
        separator: Between values; "\t" for TSV.
        header: Whether each file has a line of column names.
        column_names: Names of all columns, in place of those of the header.
        columns: Names of the columns to read; None for all.
        label: A column that becomes the target: the data set then gives `(features, label)`.
        dtypes: Of columns, e.g. {"age": "float32", "town": "str"}. The others are found out from the first rows:
            int64, float32 (also if a number is missing: NaN), bool, or text in arrays of objects.
        skip_rows: Lines at the beginning of each file to leave out, before the header.
        na_values: What stands for a missing value; None for the empty string, "NA", "NaN", "null" and the like.
        newlines_in_values: Whether quoted values may contain line ends; files are not cut then.
        compression: As in `text_lines`.

    Raises:
        ConfigurationError: If no file matches a pattern, or arguments do not go together.
    """
    reader = CsvReader(
        separator,
        header,
        column_names and tuple(column_names),
        columns and tuple(columns),
        label,
        dict(dtypes or {}),
        skip_rows,
        na_values and tuple(na_values),
        newlines_in_values,
        compression,
    )
    return FileDataset(reader, expand(files))


def tfrecord(
    files: Patterns,
    *,
    features: Mapping[str, tuple[Any, tuple[int, ...]]] | None = None,
    label: str | None = None,
    compression: str | None = "infer",
) -> FileDataset:
    """Records of TFRecord files: `bytes` in an array of objects, or the features of `tf.train.Example`s as a dict.

    Args:
        files: A path or glob pattern, or several; local or of any file system that fsspec knows.
        features: dtype and shape of each feature to parse, e.g. {"x": ("float32", (32,)), "y": ("int64", ())};
            ("bytes", ()) for bytes. None for the records as they are.
        label: A feature that becomes the target: the data set then gives `(features, label)`.
        compression: As in `text_lines`.

    Raises:
        ConfigurationError: If no file matches a pattern, or features cannot be understood.
    """
    return FileDataset(TfrecordReader(features, label, compression), expand(files))


def parquet(files: Patterns, *, columns: Sequence[str] | None = None, label: str | None = None) -> FileDataset:
    """Columns of Parquet files, as a dict of arrays; all files have the same columns.

    Text and bytes come in arrays of objects, lists of one length as a further dimension.

    Args:
        files: A path or glob pattern, or several; local or of any file system that fsspec knows.
        columns: Names of the columns to read; None for all.
        label: A column that becomes the target: the data set then gives `(features, label)`.

    Raises:
        ConfigurationError: If no file matches a pattern.
    """
    return FileDataset(ParquetReader(columns and tuple(columns), label), expand(files))
