"""TensorFlow in loops of the user's own: graphs of open shape, AutoGraph, and what a replica knows."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from unisono.backends.base import WIRE_DTYPE, Backend, Tensor
from unisono.backends.custom import Rows, concatenate, first_rows, has_rows
from unisono.backends.tensorflow_replica import ReplicaStrategy, WorkerContext


class TensorFlowCustom(Backend):
    """See `CustomBackend`."""

    _last_rows: tuple[tf.Variable, tf.Variable] | None = None
    _default: Any = None

    def is_traced(self) -> bool:
        return not tf.executing_eagerly()

    def eagerly(self) -> contextlib.AbstractContextManager[Any]:
        return tf.init_scope()  # type: ignore[no-any-return]

    def is_initialized(self, variable: Any) -> bool:
        with tf.init_scope():
            return not tf.executing_eagerly() or bool(variable.value.is_initialized())

    def rewritten(self, function: Callable[..., Any]) -> Callable[..., Any]:
        # What AutoGraph would have done to a function called from a `tf.function`; TensorFlow's own strategies do it
        # in this way.
        autograph = tf.__internal__.autograph
        return autograph.tf_convert(function, autograph.control_status_ctx(), convert_by_default=False)  # type: ignore[no-any-return]

    def as_written(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return tf.autograph.experimental.do_not_convert(function)  # type: ignore[no-any-return]

    def rows(self, leaves: Sequence[Any]) -> Rows:
        arrays = [leaf for leaf in leaves if isinstance(leaf, tf.Tensor | np.ndarray) and _ranked(leaf)]
        lengths = [leaf.shape[0] for leaf in arrays]
        if tf.executing_eagerly():
            return self._remembered(first_rows(lengths))
        if None not in lengths:
            return Rows.of(first_rows(lengths))
        each = tf.stack([tf.shape(leaf)[0] for leaf in arrays])
        presence = tf.cast(tf.reduce_min(each) > 0, tf.float32)
        return Rows(None, tf.cast(each[0], tf.float32) * presence, presence)

    def _remembered(self, number: int) -> Rows:
        # A `tf.function` inside the step is traced once for batches of several lengths, so it reads a variable.
        if self._last_rows is None:
            self._last_rows = (tf.Variable(1.0, trainable=False), tf.Variable(1.0, trainable=False))
        count, presence = self._last_rows
        count.assign(number)
        presence.assign(float(number > 0))
        return Rows(float(number), count, presence)

    def replica(self, scope: Any, rank: int) -> contextlib.AbstractContextManager[Any]:
        self._default = tf.distribute.get_strategy()
        return WorkerContext(self, scope, ReplicaStrategy(self.size), rank)

    def updating(self, scope: Any) -> contextlib.AbstractContextManager[Any]:
        # Keras updates variables in the scope of the strategy it has found, which TensorFlow refuses inside another.
        inside = scope.custom and scope.active
        return WorkerContext(self, scope, self._default) if inside else contextlib.nullcontext()

    def concatenated(self, tensor: Tensor, axis: int) -> Tensor:
        wire = WIRE_DTYPE.get(tensor.dtype.name, tensor.dtype.name)

        def host(array: np.ndarray) -> np.ndarray:
            return concatenate(self.gather(np.ascontiguousarray(array)), axis)

        joined = tf.numpy_function(host, [tf.cast(tensor, wire)], wire)
        if tensor.shape.rank is not None:
            shape = tensor.shape.as_list()
            joined.set_shape([*shape[:axis], None, *shape[axis + 1 :]])
        return tf.cast(joined, tensor.dtype)


def _ranked(leaf: Any) -> bool:
    return leaf.shape.rank is not None and has_rows(leaf) if isinstance(leaf, tf.Tensor) else has_rows(leaf)
