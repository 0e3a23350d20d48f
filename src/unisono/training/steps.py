"""Runs the steps that Keras's loops ask for, and answers with global logs when somebody reads them."""

from __future__ import annotations

import functools
import itertools
import logging
import operator
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np

from unisono import log
from unisono.backends.base import Backend, StepScope
from unisono.collectives.base import Collectives
from unisono.collectives.objects import all_gather_object
from unisono.data.base import Part
from unisono.data.batches import fingerprint, to_host
from unisono.data.shard import slice_of
from unisono.training.agreement import Statement, StepAgreement
from unisono.training.aliases import Aliases, only_results
from unisono.training.batches import LocalBatch
from unisono.training.hooks import method
from unisono.training.metrics import MetricReader, flat, plain

Report = Callable[[int, str], None]
"""Tells the control plane the number of the step and what is going on in it."""


class Steps:
    """The step functions of one compiled model.

    Args:
        model: The model, built.
        backend: Builds the step functions.
        scope: Of the model's steps.
        channel: For agreements and small reductions on the main thread.
        agreement: Over the same channel.
        report: Where progress is reported.
    """

    def __init__(
        self,
        model: Any,
        backend: Backend,
        scope: StepScope,
        channel: Collectives,
        agreement: StepAgreement,
        report: Report,
    ) -> None:
        self.model = model
        self.backend = backend
        self.scope = scope
        self.channel = channel
        self.agreement = agreement
        self.report = report
        self.reader = MetricReader(model, channel, backend.compile)
        self.aliases = Aliases(model)
        self.logs: dict[str, Any] = {}
        self.count = 0
        self.building = False
        """Whether Keras runs the model symbolically, to create its variables."""
        self.stop_wish = False
        """Whether something but a callback asked to stop; the next agreement makes it everybody's wish."""
        self.callbacks_agree: Callable[[], bool] = lambda: False
        """Tells whether the workers agree on stopping right after the step that runs."""
        self._last: Any = {}
        self._last_share = 0.0
        self._pending: Any = None
        self._names: list[str] | None = None
        self._metric_names: set[str] = set()
        self._built: dict[str, Callable[..., Any]] = {}

    def build(self, moving: list[Any]) -> None:
        """Makes new step functions, for the model as it is compiled now."""
        backend, model, scope = self.backend, self.model, self.scope
        scope.forget()
        self._names = None
        train, test = backend.train(model, scope, moving), backend.test(model, scope)
        self._built = {
            "train": train,
            "idle train": backend.idle_train(model, scope, moving, train),
            "test": test,
            "idle test": backend.idle_test(model, scope, test),
            "predict": backend.predict(model),
        }

    def build_predict(self) -> None:
        """Makes only the predict step function, where nothing is known yet of targets."""
        self._built.setdefault("predict", self.backend.predict(self.model))

    @property
    def ready(self) -> bool:
        """Whether all step functions are there."""
        return "train" in self._built

    def prepare(self, sample: tuple[Any, ...]) -> None:
        """Traces the train step ahead of its first use, where the backend can."""
        self.backend.prepare(self.model, self._built["train"], sample)

    def begin(self) -> None:
        """Forgets the logs of the loop before."""
        self.logs = {}
        self._last, self._last_share = {}, 0.0

    def train(self, state: Any, batches: Iterator[Any]) -> tuple[dict[str, Any], Any]:
        """Runs up to `steps_per_execution` training steps; see `Backend.function_for_keras`.

        Raises:
            StopIteration: If there is no data for even one.
        """

        def one(batch: LocalBatch) -> None:
            nonlocal state
            weights = batch.verdict.weights
            self.report(self.count, "training step")
            if batch.verdict.local:
                self._last, state = self._built["train"](state, batch.data, weights)
            else:
                state = self._built["idle train"](state, batch.data, weights)
            self._after(batch, weights, state)

        self._each(batches, one, lambda: state)
        if not self.scope.exchanged and self.channel.size > 1 and self.model.trainable_variables:
            log.once(
                f"no exchange {id(self.model)}",
                f"the train_step of model {self.model.name!r} updates weights without a Keras optimizer that is an "
                "attribute of the model: NOTHING is exchanged, each worker trains alone. Update through "
                "`self.optimizer.apply` (or `stateless_apply` on JAX).",
                logging.WARNING,
            )
        if self.model.stop_training and not self.callbacks_agree():
            # Keras's loop would leave alone.
            self.model.stop_training, self.stop_wish = False, True
        return self.logs, state

    def test(self, state: Any, batches: Iterator[Any]) -> tuple[dict[str, Any], Any]:
        """Runs up to `steps_per_execution` evaluation steps; raises as `train`."""

        def one(batch: LocalBatch) -> None:
            nonlocal state
            weights = batch.verdict.weights
            self.report(self.count, "evaluation step")
            if batch.verdict.local:
                self._last, state = self._built["test"](state, batch.data, weights)
            else:
                state = self._built["idle test"](state, batch.data, weights)
            self._after(batch, weights, state)

        self._each(batches, one, lambda: state)
        return self.logs, state

    def predict(self, state: Any, batches: Iterator[Any]) -> tuple[Any, Any]:
        """Runs up to `steps_per_execution` prediction steps; returns the outputs for the global batches."""
        results: list[Any] = []

        def one(batch: LocalBatch) -> None:
            nonlocal state
            self.report(self.count, "prediction step")
            outputs, state = self._built["predict"](state, batch.data)
            local = batch.verdict.local
            results.append(keras.tree.map_structure(lambda t: self._gather(t, local), outputs))
            self.count += 1

        self._each(batches, one, lambda: state)
        whole = results[0] if len(results) == 1 else keras.tree.map_structure(_concatenate, *results)
        return keras.tree.map_structure(self.backend.to_tensor, whole), state

    def _each(self, batches: Iterator[Any], run: Callable[[LocalBatch], None], state: Callable[[], Any]) -> None:
        many = getattr(self.model, "steps_per_execution", 1) or 1
        found = False
        try:
            for batch in itertools.islice(batches, many):
                found = True
                run(batch if isinstance(batch, LocalBatch) else self._localize(batch))
        except BaseException:
            # When a worker is lost, the others' models keep what they have learnt.
            self.backend.keep(self.model, state())
            raise
        if not found:
            raise StopIteration

    def _localize(self, batch: Any) -> LocalBatch:
        """Takes this worker's part of a global batch that the user passed to `train_on_batch` and the like."""
        batch = keras.tree.map_structure(lambda a: a if a is None or hasattr(a, "shape") else np.asarray(a), batch)
        total = int(next(a for a in keras.tree.flatten(batch) if a is not None).shape[0])
        rows = slice_of(total, self.channel.rank, self.channel.size)
        local = rows.stop - rows.start
        mine = keras.tree.map_structure(lambda a: None if a is None else a[rows if local else slice(0, 1)], batch)
        mark = fingerprint(to_host(batch, "the script")) if self.channel.size > 1 else 0
        part = Part(mine if local else None, local, total, mark)
        return LocalBatch.of(mine, self.agreement.step(Statement(part, f"one batch, step {self.count}", True)))

    def settle(self) -> None:
        """Waits until the step before has ended; the agreement on the next one follows."""
        if self._pending is not None:
            self.backend.settle(self._pending)
            self._pending = None
        self.report(self.count, "agreement on the step")

    def _after(self, batch: LocalBatch, weights: np.ndarray, state: Any) -> None:
        self.count += 1
        self._last_share = float(weights[0])
        self._pending = state
        if batch.verdict.want_logs:
            self.logs.update(self.global_logs(None if state is None else state[-1], often=True))

    def metrics_result(self) -> dict[str, Any]:
        """Stands in for the model's `get_metrics_result`.

        Inside a step nobody reads what it returns unless the user's own code does, so results are not computed
        there; after the last step of a loop it makes them global.
        """
        original = method(self.model, "get_metrics_result")
        if self.building:
            return original()  # type: ignore[no-any-return]
        if not self.scope.active:
            self.logs.update(self.global_logs())
            return {name: value for name, value in self.logs.items() if name in self._metric_names}
        if not only_results(type(self.model)):
            return original()  # type: ignore[no-any-return]
        if self._names is None:
            self._names = list(original())
        return dict.fromkeys(self._names, 0.0)

    def global_logs(self, tensors: Any = None, *, often: bool = False) -> dict[str, Any]:
        """Returns what one process would log now; a collective call.

        Args:
            tensors: Values of the metric variables where they are not in the variables (JAX).
            often: Whether this happens every few steps.
        """
        metrics = self.reader.read(tensors, often=often, also=self.aliases.found)
        named = {name: metrics.pop(name) for name in self.aliases.found if name in metrics}
        self._metric_names = set(metrics)
        mine = flat(self._last) if isinstance(self._last, dict) else {}
        # Keras's own steps return nothing but metrics.
        if only_results(type(self.model)) or not self.agreement.any(bool(mine) and set(mine) != self._metric_names):
            return metrics
        others = [k for k in mine if k not in named and (k not in metrics or k in self.aliases.foreign)]
        own = {k: plain(mine[k]) * self._last_share for k in others} if self._last_share else {}
        # A worker that has run no step yet does not know which names those of metrics are.
        said: Any = self.agreement.gather((list(mine), own, named))
        keys: list[str] = next((keys for keys, _, _ in said if keys), [])
        known = functools.reduce(operator.or_, [metrics, *(named for _, _, named in said)])
        return {
            k: sum(values.get(k, 0.0) for _, values, _ in said)
            if k not in known or any(k in values for _, values, _ in said)
            else known[k]
            for k in keys
        }

    def _gather(self, tensor: Any, local: int) -> np.ndarray:
        # A stand-in's rows are nobody's. Otherwise all count, also where a model makes more of them than it is given.
        array = np.ascontiguousarray(keras.ops.convert_to_numpy(tensor))[: None if local else 0]
        if self.channel.size == 1:
            return array
        if array.dtype.hasobject:
            return np.concatenate([each for each in all_gather_object(self.channel, array) if len(each)] or [array])
        flat = array.view(np.uint8).reshape(len(array), -1) if len(array) else np.zeros((0, 0), np.uint8)
        parts = [p for p in self.channel.all_gather(np.ascontiguousarray(flat)) if p.size]
        rows = np.concatenate(parts) if parts else flat
        return rows.reshape(-1).view(array.dtype).reshape(len(rows), *array.shape[1:])


def _concatenate(*arrays: np.ndarray) -> np.ndarray:
    return np.concatenate(arrays)
