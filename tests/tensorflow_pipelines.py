"""What tests of `tf.data` pipelines share: files to read, and what each of several workers gets of them."""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from minutes import Worker, in_turn
from unisono.data.select import make_source

Policy = tf.data.experimental.AutoShardPolicy
Pipeline = Callable[[], tf.data.Dataset]


def with_policy(dataset: tf.data.Dataset, policy: Policy) -> tf.data.Dataset:
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = policy
    return dataset.with_options(options)


def read(
    build: Pipeline, size: int = 2, epochs: int = 1, broken: int | None = None, **options: Any
) -> tuple[list[list[list[Any]]], list[Any]]:
    """Returns, by worker, the local batches of all epochs as lists, and the sources.

    `broken` is the number of steps of an epoch that was broken off before.
    """

    def work(rank: int, size: int, agreement: Worker) -> tuple[list[list[Any]], Any]:
        source = make_source(build(), rank=rank, size=size, agreement=agreement, **options)
        if broken is not None:
            with contextlib.closing(source.epoch()) as begun:
                list(itertools.islice(begun, broken))
        parts = [p for _ in range(epochs) for p in source.epoch()]
        return [np.asarray(p.data[0]).tolist() for p in parts if p.data], source

    workers = in_turn(size, work)
    return [batches for batches, _ in workers], [source for _, source in workers]


def flat(batches: list[list[Any]]) -> list[Any]:
    return [v for batch in batches for v in batch]


def everything(workers: list[list[list[Any]]]) -> Counter[Any]:
    return Counter(v for batches in workers for v in flat(batches))


def write_lines(folder: Path, counts: list[int], end: str = "\n") -> list[str]:
    """Writes files of lines whose numbers are all different; returns their names."""
    names, number = [], 0
    for i, count in enumerate(counts):
        lines = [f"{number + j:04}" for j in range(count)]
        number += count
        path = folder / f"part-{i:03}.txt"
        path.write_text(end.join(lines) + (end if lines and i % 2 else ""), newline="")
        names.append(str(path))
    return names


def write_columns(folder: Path, counts: list[int]) -> list[str]:
    """Writes lines of two columns; returns the names of the files."""
    names, number = [], 0
    for i, count in enumerate(counts):
        path = folder / f"part-{i:03}.tsv"
        path.write_text("".join(f"{number + j}\t0\n" for j in range(count)))
        number += count
        names.append(str(path))
    return names


def write_records(folder: Path, counts: list[int], width: int = 5) -> list[str]:
    names, number = [], 0
    for i, count in enumerate(counts):
        path = str(folder / f"part-{i:03}.tfrecord")
        with tf.io.TFRecordWriter(path) as writer:
            for j in range(count):
                writer.write(str(number + j).encode() + b" " * (j % width))
        number += count
        names.append(path)
    return names


def numbers(dataset: tf.data.Dataset) -> tf.data.Dataset:
    return dataset.map(lambda line: tf.strings.to_number(tf.strings.strip(line), tf.int64))
