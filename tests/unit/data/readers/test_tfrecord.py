"""TFRecord files and `tf.train.Example`s, as TensorFlow writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from unisono.data import tfrecord
from unisono.data.readers import stream
from unisono.errors import ConfigurationError, DataError

FEATURES = {"x": ("float32", (2, 2)), "y": ("int64", ()), "s": ("bytes", ())}


def write(path: Path, records: list[bytes], compression: str = "") -> Path:
    with tf.io.TFRecordWriter(str(path), options=compression) as writer:
        for record in records:
            writer.write(record)
    return path


def example(k: int, numbers: int = 4) -> bytes:
    feature = {
        "x": tf.train.Feature(float_list=tf.train.FloatList(value=[k + 0.25 * i for i in range(numbers)])),
        "y": tf.train.Feature(int64_list=tf.train.Int64List(value=[-k])),
        "s": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"%d" % k])),
    }
    return bytes(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())


def test_records_of_any_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "CHUNK", 100)
    records = [b"x" * k for k in (0, 1, 1000, 50, 50, 50, 99)]
    for name, compression in (("a", ""), ("a.gz", "GZIP")):
        path = write(tmp_path / name, records, compression)
        assert [record for block in tfrecord(path) for record in block] == records
    assert list(tfrecord(write(tmp_path / "none", []))) == []


def test_examples(tmp_path: Path) -> None:
    path = write(tmp_path / "a", [example(k) for k in range(5)])
    ((features, label),) = tfrecord(path, features=FEATURES, label="y").batch(5)
    assert features["x"].shape == (5, 2, 2) and features["x"].dtype == "float32"
    assert features["x"][3].reshape(-1).tolist() == [3, 3.25, 3.5, 3.75]
    assert features["s"].tolist() == [b"0", b"1", b"2", b"3", b"4"]
    assert label.tolist() == [0, -1, -2, -3, -4] and label.dtype == "int64"


def test_other_dtypes_are_converted(tmp_path: Path) -> None:
    path = write(tmp_path / "a", [example(1)])
    (block,) = tfrecord(path, features={"x": ("float16", (4,)), "y": ("int32", (1,))})
    assert block["x"].dtype == "float16" and block["y"].dtype == "int32" and block["y"].shape == (1, 1)


def test_floats_that_are_not_packed(tmp_path: Path) -> None:
    numbers = b"".join(b"\x0d" + np.float32(k).tobytes() for k in range(2))  # field 1, four bytes each
    value = b"\x12" + bytes([len(numbers)]) + numbers
    entry = b"\x0a\x01x\x12" + bytes([len(value)]) + value
    features = b"\x0a" + bytes([len(entry)]) + entry
    record = b"\x0a" + bytes([len(features)]) + features
    assert list(tf.train.Example.FromString(record).features.feature["x"].float_list.value) == [0, 1]
    (block,) = tfrecord(write(tmp_path / "a", [record]), features={"x": ("float32", (2,))})
    assert block["x"].tolist() == [[0, 1]]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: data[:-1], "record 2 .* is cut off"),
        (lambda data: data[:-40], "record 1 .* is cut off"),
        (lambda data: data + b"abc", "record 3 .* is cut off"),
        (lambda data: data[:-5] + b"?" + data[-4:], "record 2 .* does not fit its checksum"),
        (lambda data: b"?" + data[1:], "record 0 .* a length that does not fit"),
    ],
)
def test_broken_files_are_named_with_the_record(tmp_path: Path, change: Any, said: str) -> None:
    path = write(tmp_path / "a.tfrecord", [b"0" * 20, b"1" * 20, b"2" * 20])
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(DataError, match=rf"a\.tfrecord: {said}"):
        list(tfrecord(path))


@pytest.mark.parametrize(
    ("records", "features", "said"),
    [
        ([example(0), b"?"], FEATURES, "record 1 .* is not a tf.train.Example"),
        ([example(0)], {"z": ("int64", ())}, r"record 0 .* no feature 'z'. It has: 's', 'x', 'y'"),
        ([example(0), example(1, 3)], FEATURES, r"record 1 .* 'x' has 3 values, its shape \(2, 2\) has 4"),
        ([example(0)], {"x": ("int64", (4,))}, "'x' is a float_list, which does not fit the dtype int64"),
        ([example(0)], {"s": ("float32", ())}, "'s' is a bytes_list"),
    ],
)
def test_examples_that_do_not_fit(tmp_path: Path, records: list[bytes], features: Any, said: str) -> None:
    with pytest.raises(DataError, match=said):
        list(tfrecord(write(tmp_path / "a", records), features=features))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"features": {"x": "float32"}}, "'float32' for 'x'"),
        ({"features": {"x": ("float32", (-1,))}}, "for 'x'"),
        ({"features": {"x": ("float32", (None,))}}, "for 'x'"),
        ({"features": {"x": ("nosuch", ())}}, "for 'x'"),
        ({"features": {"x": ("float32", ())}, "label": "y"}, "label='y' is not among"),
        ({"label": "y"}, "label='y' is not among"),
    ],
)
def test_arguments_that_do_not_fit(tmp_path: Path, options: Any, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        tfrecord(write(tmp_path / "a", []), **options)
