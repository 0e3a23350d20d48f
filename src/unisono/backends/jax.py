"""JAX under Keras: the exchange is a host callback inside the jitted step."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from unisono.backends.base import WIRE_DTYPE, Backend, StepScope, Tensor, group_by_dtype, is_stock_train_step


class JaxBackend(Backend):
    """See `Backend`."""

    name = "jax"
    apply_method = "stateless_apply"

    def weighted_sum(self, tensors: Sequence[Tensor], weight: Tensor, scope: StepScope) -> list[Tensor]:
        wire = [WIRE_DTYPE.get(str(t.dtype), str(t.dtype)) for t in tensors]
        results: list[Tensor] = [None] * len(tensors)
        for dtype, positions in group_by_dtype(wire).items():
            parts = [jnp.reshape(tensors[i], -1).astype(dtype) for i in positions]
            summed = self._ordered_sum(parts, weight, scope)
            offset = 0
            for i in positions:
                size = math.prod(tensors[i].shape)
                piece = jax.lax.slice(summed, (offset,), (offset + size,))
                results[i] = piece.reshape(tensors[i].shape).astype(tensors[i].dtype)
                offset += size
        return results

    def _ordered_sum(self, parts: Sequence[Tensor], weight: Tensor, scope: StepScope) -> Tensor:
        # XLA may run independent callbacks in any order and at once, and workers that exchange in different
        # orders wait for each other for ever: each exchange takes a value that the one before has made.
        # Weight and that value travel in the buffer, as every operand of a callback costs a transfer.
        dtype = parts[0].dtype
        token = jnp.zeros((), dtype) if scope.token is None else scope.token
        tail = jnp.stack([jnp.asarray(weight, dtype), token.astype(dtype)])
        # A sum has no derivative here; JAX asks all the same where it stands inside a loss.
        flat = jax.lax.stop_gradient(jnp.concatenate([*parts, tail]))
        # "Pure" as far as XLA may know: a callback with effects makes each call of the step leave JAX's fast
        # dispatch, which costs more than a small step itself. Its result is used and its operand is new in each
        # step, so it is neither dropped nor merged with another.
        summed = jax.pure_callback(self._host_sum, jax.ShapeDtypeStruct(flat.shape, dtype), flat)
        scope.token = summed[-1]
        return summed

    def _host_sum(self, flat: Any) -> np.ndarray:
        buffer = np.asarray(flat)
        return self.exchange(buffer, float(buffer[-2]))

    def exchange_gradients(
        self, gradients: Sequence[Tensor | None], weight: Tensor, scope: StepScope
    ) -> list[Tensor | None]:
        present = [i for i, g in enumerate(gradients) if g is not None]
        results: list[Tensor | None] = list(gradients)
        summed = self.weighted_sum([gradients[i] for i in present], weight, scope)
        for i, tensor in zip(present, summed, strict=True):
            results[i] = tensor
        return results

    def train(self, model: Any, scope: StepScope, moving: Sequence[Any]) -> Callable[..., tuple[Any, Any]]:
        indices = _positions(model.non_trainable_variables, moving)

        def step(state: Any, data: Any, weights: Tensor) -> tuple[Any, Any]:
            with scope.enter(weights):
                logs, new = model.train_step(state, _tensors(data))
                return logs, self._merge_moving(state, new, indices, scope)

        if model.run_eagerly or not model.jit_compile:
            return step
        return jax.jit(step, donate_argnums=0)  # type: ignore[no-any-return]

    def _merge_moving(self, old: Any, new: Any, indices: Sequence[int], scope: StepScope) -> Any:
        if not indices:
            return new
        trainable, non_trainable, *rest = new
        deltas = [non_trainable[i] - old[1][i] for i in indices]
        summed = self.weighted_sum(deltas, scope.share, scope)
        non_trainable = list(non_trainable)
        for i, delta in zip(indices, summed, strict=True):
            non_trainable[i] = old[1][i] + delta
        return (trainable, non_trainable, *rest)

    def idle(self, model: Any, scope: StepScope, moving: Sequence[Any]) -> Callable[..., Any]:
        indices = _positions(model.non_trainable_variables, moving)
        stock = is_stock_train_step(model)

        def step(state: Any, data: Any, weights: Tensor) -> Any:
            with scope.enter(weights):
                if not stock:
                    # What updates a step of the user's own makes is known to nobody else: run it on the
                    # stand-in with weight 0, and keep the metrics.
                    _, new = model.train_step(state, data)
                    new = (*new[:-1], state[-1])
                    return self._merge_moving(state, new, indices, scope)
                trainable, non_trainable, optimizer, metrics = state
                nothing = [jnp.zeros(v.shape, v.dtype) for v in trainable]
                trainable, optimizer = model.optimizer.stateless_apply(optimizer, nothing, trainable)
                new = (trainable, non_trainable, optimizer, metrics)
                return self._merge_moving(state, new, indices, scope)

        if model.run_eagerly or not model.jit_compile:
            return step
        return jax.jit(step, donate_argnums=0)  # type: ignore[no-any-return]

    def test(self, model: Any, scope: StepScope) -> Callable[..., tuple[Any, Any]]:
        def step(state: Any, data: Any, weights: Tensor) -> tuple[Any, Any]:
            with scope.enter(weights):
                return model.test_step(state, _tensors(data))  # type: ignore[no-any-return]

        if model.run_eagerly or not model.jit_compile:
            return step
        return jax.jit(step, donate_argnums=0)  # type: ignore[no-any-return]

    def predict(self, model: Any) -> Callable[..., tuple[Any, Any]]:
        def step(state: Any, data: Any) -> tuple[Any, Any]:
            outputs, non_trainable = model.predict_step(state, _tensors(data))
            return outputs, (state[0], non_trainable)

        if model.run_eagerly or not model.jit_compile:
            return step
        return jax.jit(step, donate_argnums=0)  # type: ignore[no-any-return]

    def function_for_keras(self, run: Callable[[Any, Iterator[Any]], tuple[Any, Any]]) -> Callable[..., Any]:
        return lambda state, iterator: run(state, iter(iterator))

    predict_function_for_keras = function_for_keras

    def settle(self, state: Any) -> None:
        jax.block_until_ready(next((leaf for leaves in state for leaf in leaves), None))

    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return jax.jit(function)  # type: ignore[no-any-return]


def _tensors(data: Any) -> Any:
    return jax.tree.map(jnp.asarray, data)


def _positions(variables: Sequence[Any], wanted: Sequence[Any]) -> list[int]:
    ids = {id(v) for v in wanted}
    return [i for i, v in enumerate(variables) if id(v) in ids]
