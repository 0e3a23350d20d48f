"""The files that `input.py` reads: lines of 33 columns, records of 1 kB, and examples of the MLP."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import google_crc32c
import models
import numpy as np

SIZE = 2_000_000_000
"""Bytes of text, and again of records."""
FILES = 64
COLUMNS = 33
RECORD = 1024
ARRAY_ROWS = 250_000
ARRAY_COLUMNS = 4096
STEPS = 400
BATCH = 1024
"""Examples of a global batch when data is only read."""


def write_text(folder: Path, size: int) -> int:
    """Writes `FILES` files of tab-separated numbers; returns their bytes."""
    rng = np.random.default_rng(0)
    rows = [b"\t".join(b"%.6f" % v for v in row) + b"\n" for row in rng.standard_normal((1000, COLUMNS))]
    block = b"".join(rows)
    blocks = max(1, size // FILES // len(block))
    for i in range(FILES):
        with open(folder / f"part-{i:03}.tsv", "wb") as file:
            for _ in range(blocks):
                file.write(block)
    return FILES * blocks * len(block)


def write_records(folder: Path, size: int) -> int:
    """Writes one TFRecord file of records of 1 kB; returns its bytes."""
    rng = np.random.default_rng(0)
    head = struct.pack("<Q", RECORD)
    framed = []
    for _ in range(1000):
        record = rng.bytes(RECORD)
        framed.append(head + _masked_crc(head) + record + _masked_crc(record))
    block = b"".join(framed)
    blocks = max(1, size // len(block))
    with open(folder / "all.tfrecord", "wb") as file:
        for _ in range(blocks):
            file.write(block)
    return blocks * len(block)


def _masked_crc(data: bytes) -> bytes:
    crc = google_crc32c.value(data)
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF)


def write_examples(folder: Path) -> None:
    """Writes the data of the MLP for two workers as `tf.train.Example`s, in 8 files."""
    import tensorflow as tf

    x, y = models.data("MLP", STEPS * 2 * models.BATCH)
    for i in range(8):
        with tf.io.TFRecordWriter(str(folder / f"examples-{i}.tfrecord")) as writer:
            for row, label in zip(x[i::8], y[i::8], strict=True):
                writer.write(_example(row, label))


def _example(row: np.ndarray, label: np.ndarray) -> bytes:
    import tensorflow as tf

    def floats(values: Any) -> Any:
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))

    features = tf.train.Features(feature={"x": floats(row), "y": floats(label)})
    return tf.train.Example(features=features).SerializeToString()
