"""Iterating a tf.data.Dataset by its ops gives what its own iterator gives."""

from __future__ import annotations

import collections
import gc
import weakref
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from unisono.data.tensorflow_iterate import elements

Point = collections.namedtuple("Point", "x y")


def dataset(build: Any) -> tf.data.Dataset:
    return tf.data.Dataset.range(5).map(build)


STRUCTURES = {
    "tensor": lambda i: i,
    "tuple": lambda i: (i, tf.cast(i, tf.float32)),
    "one": lambda i: (i,),
    "dict": lambda i: {"z": i, "a": tf.strings.as_string(i)},
    "nested": lambda i: ({"z": (i, i + 1), "a": i + 2}, (i + 3, {"k": i + 4})),
    "named": lambda i: Point(i, i + 1),
    "ragged": lambda i: (i, tf.RaggedTensor.from_row_lengths(tf.range(3), [1, 2])),
    "sparse": lambda i: tf.sparse.from_dense([[i, 0]]),
    "optional": lambda i: tf.experimental.Optional.from_value(i),
}


@pytest.mark.parametrize("name", STRUCTURES)
def test_elements_are_those_of_the_data_sets_own_iterator(name: str) -> None:
    data = dataset(STRUCTURES[name])
    ours, theirs = list(elements(data)), list(data)
    assert len(ours) == 5
    for one, other in zip(ours, theirs, strict=True):
        tf.nest.assert_same_structure(one, other)
        assert type(one) is type(other)
        for a, b in zip(
            tf.nest.flatten(one, expand_composites=name != "optional"),
            tf.nest.flatten(other, expand_composites=name != "optional"),
            strict=True,
        ):
            a, b = (v.get_value() if name == "optional" else v for v in (a, b))
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_each_pass_is_one_of_its_own() -> None:
    data = tf.data.Dataset.range(4).shuffle(4, seed=1)
    passes = [[int(v) for v in elements(data)] for _ in range(3)]
    assert all(sorted(each) == [0, 1, 2, 3] for each in passes)
    assert len({tuple(each) for each in passes}) > 1


def test_errors_are_those_of_the_pipeline() -> None:
    def fails(i: Any) -> Any:
        with tf.control_dependencies([tf.debugging.assert_less(i, tf.constant(3, tf.int64), message="too large")]):
            return tf.identity(i)

    data = dataset(fails)
    with pytest.raises(tf.errors.InvalidArgumentError, match="too large"):
        list(elements(data))
    assert [int(v) for v in elements(data.ignore_errors())] == [0, 1, 2]


def test_python_behind_the_pipeline_lives_as_long_as_it_is_iterated() -> None:
    def count() -> Any:
        yield from range(3)

    iterator = elements(tf.data.Dataset.from_generator(count, output_signature=tf.TensorSpec([], tf.int64)))
    first = next(iterator)
    gc.collect()
    assert [int(first), *(int(v) for v in iterator)] == [0, 1, 2]


def test_a_pass_that_is_left_frees_its_data_set() -> None:
    data = tf.data.Dataset.range(10).prefetch(2)
    iterator, alive = elements(data), weakref.ref(data)
    next(iterator)
    del data
    iterator.close()
    gc.collect()
    assert alive() is None
