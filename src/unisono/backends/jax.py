"""JAX under Keras: the exchange lies between the two jitted halves of a step.

Keras's own `train_step` is cut where it calls the optimizer: the first half returns the gradients, the host
exchanges them, the second half applies them. A `train_step` of the user's own cannot be cut, since what follows
the update may depend on it; there the exchange is a host callback inside the one jitted step, which costs more.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from unisono import env, log
from unisono.backends.base import Backend, Exchange, Gather, StepScope, Tensor, change, changed, is_stock_train_step
from unisono.backends.jax_custom import JaxCustom
from unisono.backends.jax_halves import Halves
from unisono.backends.jax_pack import pack, unpack
from unisono.backends.jax_private import put_back, run_inline


class JaxBackend(JaxCustom, Backend):
    """See `Backend`."""

    name = "jax"
    apply_method = "stateless_apply"

    def __init__(self, exchange: Exchange, size: int, gather: Gather) -> None:
        super().__init__(exchange, size, gather)
        # Each half of a step is waited for: on one core, to hand it to another thread only costs two switches.
        if size > 1 and _has_one_core() and run_inline():
            log.once(
                "inline",
                "JAX computes in the thread that asks for it (jax_cpu_enable_async_dispatch=False), as this worker "
                "has one core, or OMP_NUM_THREADS=1",
            )

    def weighted_sum(self, tensors: Sequence[Tensor], weight: Tensor, scope: StepScope) -> list[Tensor]:
        total = self.custom_sum if scope.custom else self._ordered_sum
        return unpack([total(flat, weight, scope) for flat in pack(tensors)], tensors)

    def _ordered_sum(self, flat: Tensor, weight: Tensor, scope: StepScope) -> Tensor:
        # XLA may run independent callbacks in any order and at once, and workers that exchange in different
        # orders wait for each other for ever: each exchange takes a value that the one before has made.
        # Weight and that value travel in the buffer, as every operand of a callback costs a transfer.
        dtype = flat.dtype
        token = jnp.zeros((), dtype) if scope.token is None else scope.token
        tail = jnp.stack([jnp.asarray(weight, dtype), token.astype(dtype)])
        # A sum has no derivative here; JAX asks all the same where it stands inside a loss.
        flat = jax.lax.stop_gradient(jnp.concatenate([flat, tail]))
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
        if scope.captured is not None:
            scope.captured.extend(gradients)
            return list(gradients)
        present = [i for i, g in enumerate(gradients) if g is not None]
        results: list[Tensor | None] = list(gradients)
        summed = self.weighted_sum([gradients[i] for i in present], weight, scope)
        for i, tensor in zip(present, summed, strict=True):
            results[i] = tensor
        return results

    def train(self, model: Any, scope: StepScope, moving: Sequence[Any]) -> Callable[..., tuple[Any, Any]]:
        step = self._whole(model, scope, moving)
        if not _compiles(model):
            return step
        if self.size > 1 and is_stock_train_step(model):
            return Halves(self, model, scope, _positions(model.non_trainable_variables, moving))
        # What is given away to a step is lost if an exchange inside it fails.
        return jax.jit(step, donate_argnums=() if self.size > 1 else 0)  # type: ignore[no-any-return]

    def _whole(self, model: Any, scope: StepScope, moving: Sequence[Any]) -> Callable[..., tuple[Any, Any]]:
        indices = _positions(model.non_trainable_variables, moving)

        def step(state: Any, data: Any, weights: Tensor) -> tuple[Any, Any]:
            with scope.enter("train", weights):
                logs, new = model.train_step(state, _tensors(data))
                return logs, self._merge_moving(state, new, indices, scope)

        return step

    def _merge_moving(self, old: Any, new: Any, indices: Sequence[int], scope: StepScope) -> Any:
        if not indices:
            return new
        trainable, non_trainable, *rest = new
        deltas = [change(non_trainable[i], old[1][i]) for i in indices]
        summed = self.weighted_sum(deltas, scope.share, scope)
        non_trainable = list(non_trainable)
        for i, delta in zip(indices, summed, strict=True):
            non_trainable[i] = changed(old[1][i], delta)
        return (trainable, non_trainable, *rest)

    def idle_train(
        self, model: Any, scope: StepScope, moving: Sequence[Any], train: Callable[..., Any]
    ) -> Callable[..., Any]:
        if isinstance(train, Halves):
            return train.idle
        # What updates a step of the user's own makes is known to nobody else: the whole step runs.
        step = self._whole(model, scope, moving)
        whole = jax.jit(step) if _compiles(model) else step

        def run(state: Any, data: Any, weights: np.ndarray) -> Any:
            _, new = whole(state, data, weights)
            return (*new[:-1], state[-1])

        return run

    def test(self, model: Any, scope: StepScope) -> Callable[..., tuple[Any, Any]]:
        step = self._test(model, scope)
        return jax.jit(step, donate_argnums=0) if _compiles(model) else step

    def _test(self, model: Any, scope: StepScope) -> Callable[..., tuple[Any, Any]]:
        def step(state: Any, data: Any, weights: Tensor) -> tuple[Any, Any]:
            with scope.enter("test", weights):
                return model.test_step(state, _tensors(data))  # type: ignore[no-any-return]

        return step

    def idle_test(self, model: Any, scope: StepScope, test: Callable[..., Any]) -> Callable[..., Any]:
        step = self._test(model, scope)
        whole = jax.jit(step) if _compiles(model) else step

        def run(state: Any, data: Any, weights: np.ndarray) -> Any:
            if scope.totals.get("test") != 0:
                jax.block_until_ready(whole(state, data, weights))
            return state

        return run

    def predict(self, model: Any) -> Callable[..., tuple[Any, Any]]:
        def step(state: Any, data: Any) -> tuple[Any, Any]:
            outputs, non_trainable = model.predict_step(state, _tensors(data))
            return outputs, (state[0], non_trainable)

        return jax.jit(step, donate_argnums=0) if _compiles(model) else step

    def function_for_keras(self, run: Callable[[Any, Iterator[Any]], tuple[Any, Any]]) -> Callable[..., Any]:
        return lambda state, iterator: run(state, iter(iterator))

    predict_function_for_keras = function_for_keras

    def settle(self, state: Any) -> None:
        jax.block_until_ready(next((leaf for leaves in state for leaf in leaves), None))

    def keep(self, model: Any, state: Any) -> None:
        if not any(leaf.is_deleted() for leaves in state for leaf in leaves):
            put_back(model, state)

    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return jax.jit(function)  # type: ignore[no-any-return]


def _has_one_core() -> bool:
    # `unisono run` leaves, say, three workers on both of two cores, but with one thread each.
    return len(os.sched_getaffinity(0)) == 1 or env.read("OMP_NUM_THREADS") == "1"


def _compiles(model: Any) -> bool:
    return bool(model.jit_compile) and not model.run_eagerly


def _tensors(data: Any) -> Any:
    return jax.tree.map(jnp.asarray, data)


def _positions(variables: Sequence[Any], wanted: Sequence[Any]) -> list[int]:
    ids = {id(v) for v in wanted}
    return [i for i, v in enumerate(variables) if id(v) in ids]
