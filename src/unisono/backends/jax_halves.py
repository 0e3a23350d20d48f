"""Keras's own train step on JAX, cut at its update into two jitted halves.

The first half returns the gradients, the host exchanges them, the second half applies them. A host callback inside
one jitted step would do the same, but costs as much as a small step, and its threads fight for the interpreter lock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from unisono.backends import freed_memory
from unisono.backends.base import Backend, StepScope, Tensor, change, changed
from unisono.backends.jax_pack import lengths, pack, unpack
from unisono.backends.jax_private import computes_inline


class Halves:
    """A train step whose exchange lies between two compiled halves.

    Args:
        backend: Does the exchange.
        model: A model with Keras's own `train_step`.
        scope: Of its steps.
        moving: Positions of moving statistics among the non-trainable variables.
    """

    def __init__(self, backend: Backend, model: Any, scope: StepScope, moving: Sequence[int]) -> None:
        self._backend = backend
        self._model = model
        self._scope = scope
        self._moving = list(moving)
        self._has_run = False
        self._first = jax.jit(self._gradients, donate_argnums=3)
        self._dry = jax.jit(self._gradients)
        self._second = jax.jit(self._update, donate_argnums=(0, 2))

    def __call__(self, state: Any, data: Any, weights: np.ndarray) -> tuple[Any, Any]:
        """Runs one step; see `Backend`."""
        logs, flats, non_trainable, metrics = self._first(*state, data, weights)
        # Their old values are given away; if the exchange fails, the loop keeps what lies here.
        state[3][:] = metrics
        new = self._finish(state, flats, non_trainable, metrics, weights)
        if not self._has_run:
            self._has_run = True
            self._keep_memory(flats)
        return logs, new

    def _keep_memory(self, flats: list[Any]) -> None:
        # Not before the first step: what the compiler frees is not worth keeping. Nor with large gradients, whose
        # copies would share the room with what a half needs for itself, and leave holes there.
        if computes_inline() and all(flat.nbytes < freed_memory.LARGE for flat in flats):
            freed_memory.keep(room=freed_memory.ROOM)

    def idle(self, state: Any, data: Any, weights: np.ndarray) -> Any:
        """Joins one step without data; see `Backend`."""
        if self._scope.totals.get("train") == 0:
            flats: Any = [np.zeros(size, dtype) for size, dtype in lengths(self._like(state))]
            return self._finish(state, flats, list(state[1]), state[3], weights)
        _, flats, non_trainable, _ = self._dry(*state, data, weights)
        return self._finish(state, flats, non_trainable, state[3], weights)

    def _finish(self, state: Any, flats: Any, non_trainable: Any, metrics: Any, weights: np.ndarray) -> Any:
        summed = [self._backend.exchange(np.asarray(flat), float(weights[0])) for flat in flats]
        trainable, moved, optimizer = self._second(state[0], state[1], state[2], summed)
        for i, value in zip(self._moving, moved, strict=True):
            non_trainable[i] = value
        return trainable, non_trainable, optimizer, metrics

    def _like(self, state: Any) -> list[Any]:
        moving = [state[1][i] for i in self._moving]
        return [*state[0], *(jax.eval_shape(change, value, value) for value in moving)]

    def _gradients(
        self, trainable: Any, non_trainable: Any, optimizer: Any, metrics: Any, data: Any, weights: Tensor
    ) -> tuple[Any, Any, Any, Any]:
        scope = self._scope
        with scope.enter("train", weights):
            scope.captured = []
            try:
                # What the step does to weights and optimizer is not returned, so XLA leaves it out.
                logs, new = self._model.train_step((trainable, non_trainable, optimizer, metrics), data)
                gradients = scope.captured
            finally:
                scope.captured = None
        deltas = [change(new[1][i], non_trainable[i]) for i in self._moving]
        return logs, pack([*gradients, *deltas]), list(new[1]), new[3]

    def _update(self, trainable: Any, non_trainable: Any, optimizer: Any, flats: Any) -> tuple[Any, Any, Any]:
        summed = unpack(flats, self._like((trainable, non_trainable)))
        gradients, deltas = summed[: len(trainable)], summed[len(trainable) :]
        with self._scope.within_optimizer():
            trainable, optimizer = self._model.optimizer.stateless_apply(optimizer, gradients, trainable)
        moved = [changed(non_trainable[i], delta) for i, delta in zip(self._moving, deltas, strict=True)]
        return trainable, moved, optimizer
