"""Functions behind `batch()`: which treat each example by itself, and that a part of a batch gives them the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from unisono.data import tensorflow_graph
from unisono.data.tensorflow_rows import row_by_row

BATCH = 8
rng = np.random.default_rng(0)
IMAGES = rng.integers(0, 256, (BATCH, 6, 4, 3)).astype("uint8")
LABELS = rng.integers(0, 5, (BATCH,)).astype("int32")
RECORDS = [
    tf.train.Example(
        features=tf.train.Features(
            feature={
                "x": tf.train.Feature(float_list=tf.train.FloatList(value=[i, i + 0.5])),
                "names": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"n"] * (i % 3))),
            }
        )
    ).SerializeToString()
    for i in range(BATCH)
]
LINES = [f"{i},{i / 2}" for i in range(BATCH)]
MEAN = np.asarray([0.5, 0.25, 0.125], "float32")
TABLE = tf.constant(rng.normal(size=(5, 2)).astype("float32"))


@tf.function
def called(x: Any) -> Any:
    return tf.cast(x, tf.float32) / 255.0


def normalization() -> Any:
    layer = keras.layers.Normalization(mean=MEAN, variance=MEAN)
    layer.build((None, 6, 4, 3))
    return lambda x, y: (layer(tf.cast(x, tf.float32)), y)


def words() -> Any:
    keys = tf.constant([b"0", b"1", b"2"])
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, tf.constant([7, 8, 9])), -1)
    return lambda x, y: (x, table.lookup(tf.strings.as_string(y)))


APART: dict[str, Callable[..., Any]] = {
    "scaled": lambda x, y: (tf.cast(x, tf.float32) / 255.0, y),
    "a function of its own": lambda x, y: (called(x), y),
    "by channel": lambda x, y: ((tf.cast(x, tf.float32) - MEAN) / (MEAN + 1.0), y),
    "Rescaling": lambda x, y: (keras.layers.Rescaling(1 / 127.5, offset=-1)(x), y),
    "Normalization": normalization(),
    "Resizing": lambda x, y: (keras.layers.Resizing(3, 2)(x), y),
    "one_hot": lambda x, y: (x, tf.one_hot(y, 5)),
    "to_categorical": lambda x, y: (x, keras.utils.to_categorical(y, 5)),
    "flat": lambda x, y: (tf.reshape(x, [-1, 72]), tf.reshape(y, [-1, 1])),
    "resized": lambda x, y: (tf.image.resize(x, [3, 2]), y[:, None]),
    "cut": lambda x, y: (x[:, 1:-1, ..., 0], y),
    "a channel more": lambda x, y: (x[..., None], y[..., tf.newaxis]),
    "joined channels": lambda x, y: (tf.concat([x, x[..., :1]], -1), tf.stack([y, y + 1], axis=-1)),
    "grey": lambda x, y: (tf.reduce_mean(tf.cast(x, tf.float32), axis=-1, keepdims=True), y),
    "brightness": lambda x, y: (tf.reduce_mean(tf.cast(x, tf.float32), axis=[1, 2]), y),
    "clipped": lambda x, y: (tf.clip_by_value(tf.cast(x, tf.int32), 10, 200), tf.where(y > 2, y, 0)),
    "from a table of numbers": lambda x, y: (tf.gather(TABLE, y), y),
    "from a table of words": words(),
    "a dict": lambda x, y: ({"a": x, "b": tf.squeeze(y[:, None], [1])}, y),
}
JOINED: dict[str, Callable[..., Any]] = {
    "less the mean": lambda x, y: (tf.cast(x, tf.float32) - tf.reduce_mean(tf.cast(x, tf.float32), axis=0), y),
    "less the mean of all": lambda x, y: (tf.cast(x, tf.float32) - tf.reduce_mean(tf.cast(x, tf.float32)), y),
    "turned round": lambda x, y: (tf.reverse(x, [0]), y),
    "the next one": lambda x, y: (x, tf.roll(y, 1, 0)),
    "every second": lambda x, y: (x[::2], y[::2]),
    "all but the first": lambda x, y: (x[1:], y[1:]),
    "the first": lambda x, y: (x, y - y[0]),
    "each with each": lambda x, y: (x, tf.cast(y[:, None] == y, tf.int32)),
    "other axes": lambda x, y: (tf.transpose(x, [1, 0, 2, 3]), y),
    "two in a row": lambda x, y: (tf.reshape(x, [-1, 144]), y[::2]),
    "a weight by place": lambda x, y: (x, y, tf.linspace(0.0, 1.0, BATCH)),
    "a factor by place": lambda x, y: (x, tf.cast(y, tf.float32) * tf.constant(rng.normal(size=BATCH), tf.float32)),
    "sorted": lambda x, y: (x, tf.sort(y)),
    "counted": lambda x, y: (x, tf.fill(tf.shape(y), tf.shape(y)[0])),
    "Python": lambda x, y: (x, tf.numpy_function(lambda a: a - a.min(), [y], tf.int32)),
    "axis 0 of a new one": lambda x, y: (x, tf.squeeze(tf.concat([y[None], y[None]], 0)[:1], [0])),
    "a number": lambda x, y: (x, tf.constant(1.0)),
}


def judged(data: Any, *functions: Callable[..., Any]) -> bool:
    """What is said of functions behind a batch."""
    data = data.map(lambda *element: element).batch(BATCH)
    (batched,) = (n.name for n in tensorflow_graph.serialize(data).graph.node if "Batch" in n.op)
    for function in functions:
        data = data.map(function).prefetch(1)
    graph = tensorflow_graph.serialize(data)
    (batched,) = (n.name for n in graph.graph.node if "Batch" in n.op)
    return row_by_row(graph.graph, batched, graph.result)


def pictures() -> Any:
    return tf.data.Dataset.from_tensor_slices((IMAGES, LABELS))


def same(data: Any, function: Callable[..., Any]) -> bool:
    """Whether parts of a batch really give a function what the whole gives it."""
    whole, *parts = ([*data.batch(n).map(function).as_numpy_iterator()] for n in (BATCH, BATCH // 2, 3))
    joined = [keras.tree.map_structure(lambda *a: np.concatenate(a), *part) for part in parts]
    flat = [keras.tree.flatten(each) for each in (whole[0], *joined)]
    return all(np.array_equal(a, b) for other in flat[1:] for a, b in zip(flat[0], other, strict=True))


@pytest.mark.parametrize("name", APART)
def test_each_example_by_itself(name: str) -> None:
    assert judged(pictures(), APART[name])
    assert same(pictures(), APART[name])


@pytest.mark.parametrize("name", JOINED)
def test_examples_together(name: str) -> None:
    assert not judged(pictures(), JOINED[name])


def test_one_function_after_another() -> None:
    flat, apart, joined = APART["flat"], APART["a function of its own"], JOINED["turned round"]
    assert judged(pictures(), flat, apart)
    assert not judged(pictures(), flat, joined)
    assert not judged(pictures(), joined, flat)


def test_records_are_parsed_one_by_one_if_they_have_one_length() -> None:
    records = tf.data.Dataset.from_tensor_slices(RECORDS)
    numbers = {"x": tf.io.FixedLenFeature([2], tf.float32)}
    lists = {"names": tf.io.VarLenFeature(tf.string)}
    assert judged(records, lambda r: tf.io.parse_example(r, numbers))
    assert same(records, lambda r: tf.io.parse_example(r, numbers))
    assert not judged(records, lambda r: tf.sparse.to_dense(tf.io.parse_example(r, lists)["names"]))
    lines = tf.data.Dataset.from_tensor_slices(LINES)
    assert judged(lines, lambda line: tf.io.decode_csv(line, [[0], [0.0]]))
    assert same(lines, lambda line: tuple(tf.io.decode_csv(line, [[0], [0.0]])))


def test_random_values_are_a_workers_own() -> None:
    layer = keras.layers.RandomFlip()
    assert judged(pictures(), lambda x, y: (layer(x, training=True), y))
    assert judged(pictures(), lambda x, y: (tf.cast(x, tf.float32) + tf.random.uniform([]), y), APART["flat"])
