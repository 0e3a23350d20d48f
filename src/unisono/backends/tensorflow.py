"""TensorFlow under Keras: the exchange is a host function inside the step's graph."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from unisono import log
from unisono.backends.base import (
    WIRE_DTYPE,
    Backend,
    StepScope,
    Tensor,
    change,
    changed,
    flat_layers,
    group_by_dtype,
    is_stock_train_step,
)
from unisono.backends.rows import pack, unpack
from unisono.backends.tensorflow_custom import TensorFlowCustom
from unisono.backends.tensorflow_replica import WorkerContext


class TensorFlowBackend(TensorFlowCustom, Backend):
    """See `Backend`."""

    name = "tensorflow"
    has_text = True

    def weighted_sum(self, tensors: Sequence[Tensor], weight: Tensor, scope: StepScope) -> list[Tensor]:
        wire = [WIRE_DTYPE.get(t.dtype.name, t.dtype.name) for t in tensors]
        results: list[Tensor] = [None] * len(tensors)
        for dtype, positions in group_by_dtype(wire).items():
            parts = [tf.reshape(tf.cast(tensors[i], dtype), [-1]) for i in positions]
            flat = tf.concat(parts, 0) if len(parts) > 1 else parts[0]
            summed = tf.numpy_function(self._host_sum, [flat, weight], flat.dtype)
            summed.set_shape(flat.shape)
            sizes = [p.shape[0] if p.shape[0] is not None else tf.size(p) for p in parts]
            pieces = tf.split(summed, sizes) if len(parts) > 1 else [summed]
            for i, piece in zip(positions, pieces, strict=True):
                results[i] = tf.cast(tf.reshape(piece, tf.shape(tensors[i])), tensors[i].dtype)
                results[i].set_shape(tensors[i].shape)
        return results

    def _host_sum(self, flat: np.ndarray, weight: np.ndarray) -> np.ndarray:
        return self.exchange(flat, float(weight))

    def exchange_gradients(
        self, gradients: Sequence[Tensor | None], weight: Tensor, scope: StepScope
    ) -> list[Tensor | None]:
        results: list[Tensor | None] = list(gradients)
        dense = [i for i, g in enumerate(gradients) if g is not None and not isinstance(g, tf.IndexedSlices)]
        sparse = [i for i, g in enumerate(gradients) if isinstance(g, tf.IndexedSlices)]
        if sparse:
            for i, rows in zip(sparse, self._gather_slices([gradients[i] for i in sparse], weight), strict=True):
                results[i] = rows
        merged = [i for i, _ in enumerate(scope.moving)]
        deltas = [change(variable.value, before) for variable, before in scope.moving]
        summed = self.weighted_sum([*(results[i] for i in dense), *deltas], weight, scope)
        for i, tensor in zip(dense, summed, strict=False):
            results[i] = tensor
        for i in merged:
            variable, before = scope.moving[i]
            variable.assign(changed(before, summed[len(dense) + i]))
        scope.moving = []
        return results

    def _gather_slices(self, slices: Sequence[tf.IndexedSlices], weight: Tensor) -> list[tf.IndexedSlices]:
        # Rows that several examples have in common stay apart: optimizers of Keras square each of them by itself, and
        # a table to which they were added up would be trained in another way than in one process.
        log.once("sparse", "gradients of embedding tables travel as rows, not as whole tables")
        indices = [s.indices for s in slices]
        values = [tf.cast(s.values, WIRE_DTYPE.get(s.values.dtype.name, s.values.dtype)) for s in slices]
        operands = [*indices, *values]
        found = tf.numpy_function(self._host_rows, [weight, *operands], [t.dtype for t in operands])
        results = []
        for one, where, rows in zip(slices, found[: len(slices)], found[len(slices) :], strict=True):
            where.set_shape([None])
            rows.set_shape([None, *one.values.shape[1:]])
            results.append(tf.IndexedSlices(tf.cast(rows, one.values.dtype), where, one.dense_shape))
        return results

    def _host_rows(self, weight: np.ndarray, *arrays: np.ndarray) -> list[np.ndarray]:
        """Returns the rows of all workers, of indices and of their weighted values, in one exchange."""
        half = len(arrays) // 2
        # Without data nothing that lies in the buffer may count.
        mine = [array if weight else array[:0] for array in arrays]
        mine[half:] = [values * weight.astype(values.dtype) for values in mine[half:]]
        everyone = [unpack(buffer, mine) for buffer in self.gather(pack(mine))]
        return [np.concatenate(parts) for parts in zip(*everyone, strict=True)]

    def train(self, model: Any, scope: StepScope, moving: Sequence[Any]) -> Callable[..., tuple[Any, Any]]:
        stock = is_stock_train_step(model)

        def step(data: Any, weights: Tensor) -> Any:
            with scope.enter("train", weights):
                scope.applied = []
                before = [(v, tf.identity(v.value)) for v in moving]
                scope.moving = before if stock else []
                with self._replica_context(model, scope):
                    logs = model.train_step(data)
                if not stock:
                    scope.moving = before
                if scope.moving:
                    self.exchange_gradients([], scope.share, scope)
                return logs

        return self._stateful(step, model)

    def idle_train(
        self, model: Any, scope: StepScope, moving: Sequence[Any], train: Callable[..., Any]
    ) -> Callable[..., Any]:
        def run(state: None, data: Any, weights: np.ndarray) -> None:
            # The whole step, for two reasons. The forward pass may assign to weights, as that of SpectralNormalization.
            # And a graph without it rounds in another way: TensorFlow arranges the sum over all gradients that
            # `global_clipnorm` needs differently there, and the workers' weights would part by a last bit.
            _keeping_metrics(model, lambda: train(state, data, weights))

        return run

    def idle_test(self, model: Any, scope: StepScope, test: Callable[..., Any]) -> Callable[..., Any]:
        def run(state: None, data: Any, weights: np.ndarray) -> None:
            if scope.totals.get("test") != 0:
                _keeping_metrics(model, lambda: test(state, data, weights))

        return run

    def test(self, model: Any, scope: StepScope) -> Callable[..., tuple[Any, Any]]:
        def step(data: Any, weights: Tensor) -> Any:
            with scope.enter("test", weights):
                return model.test_step(data)

        return self._stateful(step, model)

    def predict(self, model: Any) -> Callable[..., tuple[Any, Any]]:
        if model.run_eagerly:
            return lambda state, data: (model.predict_step(_tensors(data)), state)
        step = tf.function(
            model.predict_step, reduce_retracing=True, jit_compile=bool(model.jit_compile), autograph=False
        )
        return lambda state, data: (step(data), state)

    def _replica_context(self, model: Any, scope: StepScope) -> contextlib.AbstractContextManager[Any]:
        synchronized = any(getattr(layer, "synchronized", False) for layer in flat_layers(model))
        return WorkerContext(self, scope) if synchronized and self.size > 1 else contextlib.nullcontext()

    def _stateful(self, step: Callable[..., Any], model: Any) -> _Stateful:
        if model.run_eagerly:
            return _Stateful(lambda data, weights: step(_tensors(data), weights))
        return _Stateful(tf.function(step, reduce_retracing=True, jit_compile=self._jit(model), autograph=False))

    def _jit(self, model: Any) -> bool:
        if not model.jit_compile or self.size == 1:
            return bool(model.jit_compile)
        log.once("jit", "jit_compile=True is switched off: XLA on TensorFlow cannot call the engine inside a step")
        return False

    def prepare(self, model: Any, train: Callable[..., Any], sample: tuple[Any, ...]) -> None:
        if isinstance(train, _Stateful) and hasattr(train.step, "get_concrete_function"):
            train.prepare(tf.nest.map_structure(_any_batch, sample))

    def function_for_keras(self, run: Callable[[Any, Iterator[Any]], tuple[Any, Any]]) -> Callable[..., Any]:
        return lambda iterator: run(None, iterator)[0]

    def predict_function_for_keras(self, run: Callable[[Any, Iterator[Any]], tuple[Any, Any]]) -> Callable[..., Any]:
        return lambda data: run(None, iter(data))[0]

    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return tf.function(function, autograph=False)  # type: ignore[no-any-return]

    def to_tensor(self, array: np.ndarray) -> Tensor:
        return tf.convert_to_tensor(array)


def _keeping_metrics(model: Any, run: Callable[[], Any]) -> None:
    values = [(v, tf.identity(v.value)) for v in model.metrics_variables]
    run()
    for variable, value in values:
        variable.assign(value)


class _Stateful:
    """Gives a step that keeps its state in variables the common signature."""

    def __init__(self, step: Callable[..., Any]) -> None:
        self.step = step
        self._traced: dict[Any, Callable[..., Any]] = {}

    def prepare(self, specs: Any) -> None:
        """Traces the step for data of a form, of any number of examples."""
        traced = self.step.get_concrete_function(  # type: ignore[attr-defined]
            specs, tf.TensorSpec([4], tf.float64)
        )
        self._traced[_form(specs)] = traced

    def __call__(self, state: None, data: Any, weights: np.ndarray) -> tuple[Any, None]:
        # To find the trace that fits takes `tf.function` as long as a small step itself.
        traced = None if tf.config.functions_run_eagerly() else self._traced.get(_form(data))
        return (traced or self.step)(data, tf.constant(weights)), None


def _tensors(data: Any) -> Any:
    return tf.nest.map_structure(lambda a: None if a is None else tf.convert_to_tensor(a), data)


def _form(data: Any) -> Any:
    """Returns a value that is equal for batches, and specs of batches, that differ in the number of examples only."""
    if type(data) is tuple:
        return tuple([_form(d) for d in data])
    if type(data) is dict:
        return tuple([(key, _form(d)) for key, d in data.items()])
    if isinstance(data, (np.ndarray, tf.Tensor, tf.TensorSpec)):
        return tf.as_dtype(data.dtype), tuple(data.shape[1:])
    # Nothing is equal to something of another kind.
    return None if data is None else object()


def _any_batch(leaf: Any) -> Any:
    if leaf is None:
        return None
    spec = tf.type_spec_from_value(leaf)
    if isinstance(spec, tf.TensorSpec) and spec.shape.rank:
        return tf.TensorSpec([None, *spec.shape[1:]], spec.dtype)
    return spec
