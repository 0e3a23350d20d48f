"""Iterates a `tf.data.Dataset`, one element at a time, with a quarter of the Python that its own iterator needs.

A worker that takes small batches from a pipeline pays for each; the ops called here are public (`tf.raw_ops`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

_Build = Callable[[Iterator[Any]], Any]
"""Takes the tensors of one element, in the order of `tf.nest.flatten`, and returns the element."""


def elements(dataset: Any) -> Iterator[Any]:
    """Begins to iterate a data set, which is when its shuffles take their order, and yields its elements.

    Args:
        dataset: Of any structure; where it holds more than tuples and dicts of dense tensors, its own iterator is used.

    Raises:
        tf.errors.OpError: As the pipeline does.
    """
    build = _builder(dataset.element_spec)
    if build is None:
        return iter(dataset)
    specs = tf.nest.flatten(dataset.element_spec)
    form = {"output_types": [s.dtype for s in specs], "output_shapes": [s.shape for s in specs]}
    with tf.device("CPU:0"):
        iterator = tf.raw_ops.AnonymousIteratorV3(**form)
        tf.raw_ops.MakeIterator(dataset=tf.data.experimental.to_variant(dataset), iterator=iterator)
    return _rest(iterator, form, build)


def _rest(iterator: Any, form: dict[str, Any], build: _Build) -> Iterator[Any]:
    while True:
        try:
            tensors = tf.raw_ops.IteratorGetNext(iterator=iterator, **form)
        except tf.errors.OutOfRangeError:
            return
        yield build(iter(tensors))


def _builder(spec: Any) -> _Build | None:
    """Returns what puts an element together; None where there is more to it than its tensors."""
    kind = type(spec)
    if kind is tf.TensorSpec:
        return next
    if kind is tuple:
        parts = [_builder(s) for s in spec]
        return None if None in parts else lambda tensors: tuple([part(tensors) for part in parts if part])
    if kind is dict:
        fields = [(key, _builder(spec[key])) for key in sorted(spec)]
        if any(part is None for _, part in fields):
            return None
        return lambda tensors: {key: part(tensors) for key, part in fields if part}
    return None
