"""Loops of a user's own: what happens around `strategy.run` and where the script asks for sums.

In `fit` gradients are weighted by the worker's share of the batch. Here they are plain sums, as TensorFlow documents
it for its strategies: the script divides its loss by the size of the global batch.
"""

from __future__ import annotations

import contextvars
import functools
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras

from unisono import log
from unisono.backends.base import Backend, StepScope, change, changed
from unisono.backends.custom import Rows
from unisono.errors import ConfigurationError
from unisono.runtime.job import Runtime
from unisono.training import metric_hooks, optimizer, state
from unisono.training.adopt import Adoption, adoptions
from unisono.training.agreement import StepAgreement
from unisono.training.hooks import owner
from unisono.training.sharing import StateSharing

_running: contextvars.ContextVar[CustomLoops | None] = contextvars.ContextVar("unisono_running", default=None)
"""The loops whose step is traced or run by this thread."""

_lock = threading.Lock()
"""Held while Keras's classes are given functions of ours, which must happen once."""


class CustomLoops:
    """The user's own loops over the models of one strategy.

    Args:
        runtime: The running job.
        backend: The framework under Keras.
        agreement: With the other workers, on the main thread.
    """

    def __init__(self, runtime: Runtime, backend: Backend, agreement: StepAgreement) -> None:
        self._runtime = runtime
        self._backend = backend
        self.size = runtime.size
        self.rank = runtime.rank
        self.scope = StepScope(runtime.size, custom=True)
        self._rows = Rows.of(1)
        self._before: dict[int, Any] = {}
        self._trained: weakref.WeakSet[Any] = weakref.WeakSet()
        self._models: list[weakref.ref[Any]] = []
        self._sharing = StateSharing(runtime.agreement, agreement.names, backend, agreement.from_chief)

    def add_model(self, model: Any) -> None:
        """Takes note of a model that the strategy has charge of."""
        if self.size > 1:
            self._models = [*(ref for ref in self._models if ref() is not None), weakref.ref(model)]
            self._sharing.add(model)

    def add_optimizers(self, found: Sequence[Any]) -> None:
        """Lets optimizers sum gradients over the workers, those that do not yet."""
        for each in found:
            if self.size > 1 and not optimizer.is_hooked(each):
                optimizer.hook(each, self._backend, self._find)
                self._sharing.add(each)

    def add_metric(self, metric: Any) -> None:
        """Lets a metric give global results where no step and no loop of a model is running."""
        if self.size > 1:
            metric_hooks.hook(metric, self)

    def run(
        self, function: Callable[..., Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Calls a user's step as this worker's replica; see the strategy."""
        named = {} if kwargs is None else dict(kwargs)
        if self.size == 1 or self.scope.active:
            return function(*args, **named)
        rewritten = self._backend.rewritten(function)
        return self._backend.as_written(self._run)(rewritten, tuple(args), named)

    def _run(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        backend, scope = self._backend, self.scope
        with _lock:
            _watch()
        self._sharing.share(inside=backend.is_traced())
        self._rows = backend.rows(keras.tree.flatten((args, kwargs)))
        presence = self._rows.presence
        token = _running.set(self)
        try:
            with (
                scope.enter("custom", (presence, 1.0, presence, self._rows.count)),
                backend.replica(scope, self.rank),
            ):
                scope.applied = []
                self._before = {}
                self._remember_moving()
                outputs = function(*args, **kwargs)
                self._merge()
                return self._without_nan(outputs)
        except Exception as error:
            known, backend.raised = backend.raised, None
            if known is not None and known is not error:
                raise known from None
            raise
        finally:
            _running.reset(token)
            scope.applied, self._before = [], {}
            self._rows = Rows.of(1)

    @property
    def presence(self) -> Any:
        """1, or 0 in a step without examples: a float where that is known, else a scalar tensor."""
        rows = self._rows
        if isinstance(rows.presence, float):
            return rows.presence
        # A compiled function inside the step reads it each time it runs.
        return rows.presence if rows.known is None or self._backend.is_traced() else float(rows.known > 0)

    @property
    def reads_locally(self) -> bool:
        """Whether metrics tell this worker's state only: something else will make it global, or the job is over."""
        return self._runtime.closed or self.scope.active or any(adoption.in_loop for adoption in self._adoptions())

    def total(self, tensors: Sequence[Any]) -> list[Any]:
        """Sums tensors over all workers; a collective call, eagerly or inside compiled code.

        Args:
            tensors: The same shapes and dtypes on all workers; numbers.

        Returns:
            Tensors of the same shapes and dtypes. In a step without examples this worker adds zeros.
        """
        if self.size == 1 or not tensors:
            return list(tensors)
        scope = next((a.scope for a in self._adoptions() if a.in_step), self.scope)
        if not scope.custom:
            # A worker without data must run the whole step to join.
            scope.count_total()
        elif not self._backend.is_traced():
            for adoption in self._adoptions():
                if adoption.in_loop:
                    adoption.steps.settle()
        weight = 1.0 if scope.presence is None else scope.presence
        return self._backend.weighted_sum(list(tensors), weight, scope)

    def created(self, variable: Any) -> None:
        """Gives all workers the chief's value of a weight that a step has just made; a collective call."""
        self._sharing.created(variable)
        if not variable.trainable and self._backend.is_initialized(variable):
            self._before[id(variable)] = _value(variable)

    def concatenated(self, tensor: Any, axis: int) -> Any:
        """Concatenates the tensors of all workers; see `Backend.concatenated`."""
        return tensor if self.size == 1 else self._backend.concatenated(tensor, axis)

    def broadcast(self, tensors: Sequence[Any]) -> list[Any]:
        """Returns the chief's values of tensors; a collective call, not inside compiled code."""
        if self.size == 1:
            return list(tensors)
        if self._backend.is_traced():
            raise ConfigurationError(
                "broadcast cannot be called inside a compiled function.",
                remedy="call it once before training, outside of tf.function and jax.jit.",
            )
        self._sharing.share()
        return [self._backend.to_tensor(array) for array in self._sharing.broadcast(tensors)]

    def remember_sums(self, tensors: Sequence[Any]) -> None:
        """Notes what `all_reduce` has returned, so that an optimizer does not sum it again."""
        self._runtime.sums.update({id(tensor): tensor for tensor in tensors})

    def as_written(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Returns a function of ours that the framework leaves as it is."""
        return self._backend.as_written(function)

    def _find(self, gradients: Sequence[Any]) -> StepScope:
        for adoption in self._adoptions():
            if adoption.in_step:
                return adoption.scope
        if not self.scope.inner:
            if any(g is not None and self._runtime.sums.get(id(g)) is g for g in gradients):
                raise ConfigurationError(
                    "These gradients come from unisono.all_reduce, and this optimizer sums what it is given over the "
                    "workers itself: they would be summed twice.",
                    remedy="give the optimizer the gradients of this worker.",
                )
            self._sharing.share(inside=self.scope.active or self._backend.is_traced())
            if self.scope.active and self._backend.is_traced():
                # What a compiled function inside the step has made has its first value now.
                with self._backend.eagerly():
                    self._remember_moving()
            if not self.scope.active:
                log.once(
                    "sums outside",
                    "an optimizer of the strategy is called outside of fit and of strategy.run: it sums the gradients "
                    "of all workers. Divide the loss by the size of the global batch.",
                )
        return self.scope

    def _adoptions(self) -> Iterator[Adoption]:
        return (adoption for adoption in adoptions() if adoption.runtime is self._runtime)

    def _living(self) -> list[Any]:
        return [model for ref in self._models if (model := ref()) is not None and state.is_made(model)]

    def _remember_moving(self) -> None:
        """Keeps what moving statistics are before the step, as far as they have values."""
        for model in self._living():
            for variable in state.moving_variables(model):
                if id(variable) not in self._before and self._backend.is_initialized(variable):
                    self._before[id(variable)] = _value(variable)

    def _merge(self) -> None:
        """Averages, by examples, what the step has added to moving statistics of the models it has updated."""
        updated = {id(v) for _, variables in self.scope.applied for v in variables}
        models = self._living()
        now = [model for model in models if any(id(v) in updated for v in model.trainable_variables)]
        self._trained.update(now)
        # A function inside the step that is compiled already updates its models without a word.
        merged = now if self._backend.is_traced() else [model for model in models if model in self._trained]
        pairs = [
            (v, self._before[id(v)]) for model in merged for v in state.moving_variables(model) if id(v) in self._before
        ]
        if not pairs:
            return
        changes = [change(_value(variable), old) for variable, old in pairs]
        # The number of examples travels along in the same buffer.
        ones = keras.ops.ones((1,), "float32")
        count, *sums = self._backend.weighted_sum([ones, *changes], self._rows.count, self.scope)
        for (variable, old), total in zip(pairs, sums, strict=True):
            mean = keras.ops.divide_no_nan(total, keras.ops.cast(count[0], total.dtype))
            variable.assign(changed(old, mean))

    def _without_nan(self, outputs: Any) -> Any:
        """Replaces NaN in what a step returns that had no examples: a mean over nothing counts as nothing."""
        if self._rows.known:
            return outputs
        absent = keras.ops.equal(keras.ops.convert_to_tensor(self._rows.presence), 0.0)

        def clean(leaf: Any) -> Any:
            if not (keras.ops.is_tensor(leaf) and keras.backend.is_float_dtype(leaf.dtype)):
                return leaf
            return keras.ops.where(
                keras.ops.logical_and(absent, keras.ops.isnan(leaf)), keras.ops.zeros_like(leaf), leaf
            )

        return keras.tree.map_structure(clean, outputs)


def _value(variable: Any) -> Any:
    return keras.ops.copy(keras.ops.stop_gradient(variable.value))


@functools.cache
def _watch() -> None:
    """Has steps of the user's own notice, from now on, weights that they make and optimizers made elsewhere."""
    layer, kinds = keras.layers.Layer, (keras.optimizers.Optimizer, keras.optimizers.LossScaleOptimizer)
    add_weight = layer.add_weight

    @functools.wraps(add_weight)
    def made(self: Any, *args: Any, **kwargs: Any) -> Any:
        variable = add_weight(self, *args, **kwargs)
        loops = _running.get()
        if loops is not None:
            loops.created(variable)
        return variable

    layer.add_weight = made
    for each in {owner(kind, "apply") for kind in kinds}:
        each.apply = _exchanging(each.apply)


def _exchanging(apply: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(apply)
    def applied(self: Any, *args: Any, **kwargs: Any) -> Any:
        loops = _running.get()
        if loops is None or loops.scope.inner or optimizer.is_hooked(self):
            return apply(self, *args, **kwargs)
        # Law 6: in a replica every optimizer sums, wherever it was made.
        loops.add_optimizers([self])
        return self.apply(*args, **kwargs)

    return applied
