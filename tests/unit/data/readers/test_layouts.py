"""Examples that are read many at once, against the same read one by one, and against what TensorFlow reads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from unisono.data import tfrecord
from unisono.data.readers import examples
from unisono.data.readers.examples import ExampleParser
from unisono.data.readers.layouts import Layout
from unisono.errors import DataError

FEATURES = {"x": ("float32", (3,)), "n": ("int64", (2,)), "s": ("bytes", (2,))}
INTEGERS = st.one_of(st.integers(-(1 << 63), (1 << 63) - 1), st.integers(0, 300))


def example(**features: list[Any]) -> bytes:
    def feature(values: list[Any]) -> Any:
        if values and isinstance(values[0], float):
            return tf.train.Feature(float_list=tf.train.FloatList(value=values))
        if values and isinstance(values[0], bytes):
            return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))

    made = tf.train.Features(feature={name: feature(values) for name, values in features.items()})
    return bytes(tf.train.Example(features=made).SerializeToString())


def both_ways(records: list[bytes], features: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    parser = ExampleParser.of(features)
    monkeypatch.setattr(examples, "_LAYOUTS", 8)
    monkeypatch.setattr(examples, "_WORTH_IT", 1)
    quick = parser.parse(records, str)
    monkeypatch.setattr(examples, "_LAYOUTS", 0)
    return quick, parser.parse(records, str)


@settings(deadline=None, max_examples=100)
@given(
    rows=st.lists(
        st.tuples(
            st.lists(st.floats(width=32, allow_nan=False), min_size=3, max_size=3),
            st.lists(INTEGERS, min_size=2, max_size=2),
            st.lists(st.binary(max_size=3), min_size=2, max_size=2),
            st.one_of(st.none(), st.lists(INTEGERS, max_size=3)),
        ),
        min_size=1,
        max_size=30,
    )
)
def test_values_are_those_of_the_examples(rows: list[Any]) -> None:
    records = [example(x=x, n=n, s=s, **({} if more is None else {"more": more})) for x, n, s, more in rows]
    with pytest.MonkeyPatch.context() as patch:
        quick, slow = both_ways(records, FEATURES, patch)
    assert quick["n"].tolist() == slow["n"].tolist() == [n for _, n, _, _ in rows]
    assert quick["s"].tolist() == slow["s"].tolist() == [s for _, _, s, _ in rows]
    assert quick["x"].tolist() == slow["x"].tolist() == [x for x, _, _, _ in rows]
    assert [quick[name].dtype for name in FEATURES] == [slow[name].dtype for name in FEATURES]


def count_slow(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    counts = []
    one_by_one = ExampleParser._one_by_one

    def counting(self: Any, records: Any, *rest: Any) -> Any:
        counts.append(len(records))
        return one_by_one(self, records, *rest)

    monkeypatch.setattr(ExampleParser, "_one_by_one", counting)
    return counts


def test_records_of_few_layouts_are_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = count_slow(monkeypatch)
    wide = [k % 300 for k in range(1000)]
    records = [example(x=[float(k)], n=[n, 5], other=[b"abc" * (k % 2)]) for k, n in enumerate(wide)]
    found = ExampleParser.of({"x": ("float64", ()), "n": ("int16", (2,))}).parse(records, str)
    assert counts == []
    assert found["n"][:, 0].tolist() == wide and found["n"].dtype == np.int16
    assert found["x"].tolist() == list(range(1000)) and found["x"].dtype == np.float64


def test_only_the_records_of_odd_layout_are_read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = count_slow(monkeypatch)
    records = [example(x=[float(k)], s=[b"." * (k if k % 10 == 0 else 1)]) for k in range(1000)]
    found = ExampleParser.of({"x": ("float32", ()), "s": ("bytes", ())}).parse(records, str)
    assert found["s"].tolist() == [b"." * (k if k % 10 == 0 else 1) for k in range(1000)]
    assert found["x"].tolist() == list(range(1000))
    assert counts and counts[0] < 110


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (lambda: example(x=[1.0], n=[1]), r"record 7: .* 'x' has 1 values"),
        (lambda: example(x=[1.0, 2.0]), r"record 7 has no feature 'n'"),
        (lambda: example(x=[1, 2], n=[1]), r"record 7: .* 'x' is a int64_list"),
        (lambda: b"\xff" * len(example(x=[1.0, 2.0], n=[1])), r"record 7 is not a tf.train.Example"),
    ],
)
def test_one_that_does_not_fit_among_many(bad: Callable[[], bytes], said: str) -> None:
    records = [example(x=[1.0, 2.0], n=[1])] * 100
    records[7] = bad()
    with pytest.raises(DataError, match=said):
        ExampleParser.of({"x": ("float32", (2,)), "n": ("int64", ())}).parse(records, "record {}".format)


def read(record: bytes) -> Layout | None:
    return Layout.of(record, examples._message(quick=True).FromString(record))


def test_what_protobuf_would_write_otherwise_has_no_layout() -> None:
    usual = example(x=[1.0])
    assert read(usual) is not None
    twice = tf.train.Example.FromString(usual).SerializeToString()
    assert read(twice + twice) is None
    # A field that no Example has: 15, a varint.
    assert read(usual + b"\x78\x01") is None


def unpacked(packed: bytes = b"") -> bytes:
    value = packed + b"\x0d" + np.float32(1).tobytes()
    some = b"\x12" + bytes([len(value)]) + value
    entry = b"\x0a\x01x\x12" + bytes([len(some)]) + some
    features = b"\x0a" + bytes([len(entry)]) + entry
    return b"\x0a" + bytes([len(features)]) + features


def test_floats_that_are_not_packed_are_read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(tf.train.Example.FromString(unpacked()).features.feature["x"].float_list.value) == [1]
    quick, slow = both_ways([unpacked()] * 3, {"x": ("float32", (1,))}, monkeypatch)
    assert quick["x"].tolist() == slow["x"].tolist() == [[1], [1], [1]]
    assert read(unpacked(b"\x0a\x04" + np.float32(2).tobytes())) is None


def test_long_runs_of_one_length_and_others_between(tmp_path: Path) -> None:
    lengths = [40] * 700 + [3, 41, 40] + [40] * 20 + list(range(90)) + [0] * 300 + [2000] * 600
    records = [bytes([k % 251]) * length for k, length in enumerate(lengths)]
    path = tmp_path / "a.tfrecord"
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in records:
            writer.write(record)
    assert [record for block in tfrecord(path) for record in block] == records
    data = bytearray(path.read_bytes())
    data[56 * 650 + 20] ^= 1
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"a\.tfrecord: record 650 .* does not fit its checksum"):
        list(tfrecord(path))
