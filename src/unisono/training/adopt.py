"""Takes charge of one model: sets the hooks that make its training distributed, and takes them back."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from unisono import log
from unisono.backends.base import Backend, StepScope
from unisono.data.base import Source
from unisono.runtime.job import Runtime
from unisono.training import losses, optimizer, saving, state
from unisono.training.agreement import StepAgreement
from unisono.training.aliases import STEPS, only_results
from unisono.training.hooks import Hooks, method, over
from unisono.training.keras_private import (
    ASSIGN,
    BUILD,
    activity_losses_are_sums,
    assign_untracked,
    build,
    flat_layers,
    loss_trackers,
    wrap_losses,
)
from unisono.training.rider import Rider
from unisono.training.steps import Steps

_ATTRIBUTE = "_unisono_adoption"

_models: weakref.WeakSet[Any] = weakref.WeakSet()
"""The models in charge of the active strategy, for as long as they live."""


class Adoption:
    """One model in the strategy's charge.

    The model stays the user's Keras model. What is set over its methods lies in its own dictionary and in that of
    its optimizer; saved files know nothing of it.

    Args:
        model: A Keras model, compiled or not, built or not.
        runtime: The running job.
        backend: The framework under Keras.
        agreement: With the other workers, on the main thread.
        rider: Travels with the exchanges of this backend.
    """

    def __init__(self, model: Any, runtime: Runtime, backend: Backend, agreement: StepAgreement, rider: Rider) -> None:
        self._model = weakref.ref(model)
        self.runtime = runtime
        self.backend = backend
        self.rider = rider
        self.scope = StepScope(runtime.size)
        self.agreement = agreement
        self.loops_running = 0
        """How many of the model's loops run now, one inside another."""
        self._steps: Steps | None = None
        self._is_built = False
        self._optimizer_hooks: list[Hooks] = []
        self._hooks = Hooks(model)

    @property
    def model(self) -> Any:
        """The model; it outlives its adoption."""
        model = self._model()
        assert model is not None
        return model

    @property
    def is_chief(self) -> bool:
        """Whether this worker writes and prints."""
        return self.runtime.rank == 0

    @property
    def steps(self) -> Steps:
        """Step functions of the model as it is compiled now."""
        if self._steps is None:
            self._steps = Steps(
                self.model, self.backend, self.scope, self.runtime.agreement, self.agreement, self.runtime.report
            )
        return self._steps

    @property
    def in_loop(self) -> bool:
        """Whether a loop of the model runs, or a step is traced or run."""
        return self.loops_running > 0 or self.in_step

    @property
    def in_step(self) -> bool:
        """Whether a step of the model is traced or run."""
        return self.scope.active or self.scope.inner

    def install(self, functions: dict[str, Any]) -> None:
        """Sets hooks over the model's methods.

        Args:
            functions: What stands over each method, by the method's name.
        """
        self._hooks.set("compile", self._compile)
        self._hooks.set("get_metrics_result", lambda: self.steps.metrics_result())
        for kind in ("train", "test", "predict"):
            name = f"make_{kind}_function"
            self._hooks.set(name, over(keras.Model, self.model, name, self._maker(kind)))
        # A model whose own code never uses the loss it is compiled with counts as not built for ever.
        self._hooks.set(BUILD, self._build_for_keras)
        if self.backend.name == "jax":
            self._hooks.set(ASSIGN, assign_untracked(self.model))
        if not only_results(type(self.model)):
            for name in STEPS:
                self._hooks.set(name, functools.partial(self._step, name))
        for name, function in functions.items():
            self._hooks.set(name, function)
        saving.hook(self.model, self._hooks, self.is_chief)
        if getattr(self.model, "compiled", False):
            self.compiled()

    def remove(self) -> None:
        """Gives the model and its optimizer their own methods back."""
        self._hooks.remove()
        self._unhook_optimizers()
        self.model.__dict__.pop(_ATTRIBUTE, None)
        _models.discard(self.model)

    def _compile(self, *args: Any, **kwargs: Any) -> None:
        method(self.model, "compile")(*args, **kwargs)
        self.compiled()

    def compiled(self) -> None:
        """Follows a call of the model's `compile`: another optimizer, other losses."""
        self._unhook_optimizers()
        self._steps = None
        self._is_built = False

    def _step(self, name: str, *args: Any, **kwargs: Any) -> Any:
        return self.steps.aliases.run(name, *args, **kwargs)

    def _hook_optimizers(self) -> None:
        self._unhook_optimizers()
        if self.runtime.size > 1:
            found = state.optimizers(self.model)
            # One that was made in the scope finds this model's steps by itself.
            self._optimizer_hooks = [
                optimizer.hook(each, self.backend, lambda _: self.scope)
                for each in found
                if not optimizer.is_hooked(each)
            ]

    def _unhook_optimizers(self) -> None:
        for hooks in self._optimizer_hooks:
            hooks.remove()
        self._optimizer_hooks = []

    def _maker(self, kind: str) -> Any:
        def make(force: bool = False) -> None:
            name = f"{kind}_function"
            if force or getattr(self.model, name, None) is None:
                convert = (
                    self.backend.predict_function_for_keras if kind == "predict" else self.backend.function_for_keras
                )
                setattr(self.model, name, convert(getattr(self.steps, kind)))

        return make

    def ensure_built(self, sample: Any) -> None:
        """Creates what is not there yet: variables, losses, step functions.

        Args:
            sample: A batch of the data with at least one example, as a tuple.
        """
        if self.steps.ready:
            return
        model = self.model
        if getattr(model, "compiled", False):
            self._hook_optimizers()
            self._build(sample)
            trackers = loss_trackers(model)
            for tracker in trackers:
                losses.weigh_by_examples(tracker, self.scope)
            for metric in model.metrics if self.runtime.size > 1 else ():
                if type(metric).update_state is keras.metrics.Mean.update_state and metric not in trackers:
                    losses.weigh_by_share(metric, self.scope)
            if self.runtime.size > 1:
                wrap_losses(model, self._global_loss)
                self._scale_activity_losses()
        self.steps.build(state.moving_variables(model) if self.runtime.size > 1 else [])
        if getattr(model, "compiled", False) and model.optimizer is not None:
            self.steps.prepare(sample)

    def _build(self, sample: Any) -> None:
        self.steps.building = True
        try:
            # Keras knows the type of strings by that of their tensors only.
            build(self.model, keras.tree.map_structure(self._text_as_tensor, sample))
            self._is_built = True
        except RuntimeError as problem:
            # Keras on TensorFlow builds such a model in its first step; so do we.
            log.logger.debug("the model is built in its first step: %s", problem)
            if self.model.run_eagerly:
                self._build_by_running(sample)
            else:
                self.steps.build([])
                self.steps.prepare(sample)
        finally:
            self.steps.building = False

    def _text_as_tensor(self, leaf: Any) -> Any:
        is_text = isinstance(leaf, np.ndarray) and leaf.dtype.kind in "OSU"
        return self.backend.to_tensor(leaf) if is_text and self.backend.has_text else leaf

    def _build_for_keras(self, *args: Any, **kwargs: Any) -> None:
        if not self._is_built:
            method(self.model, BUILD)(*args, **kwargs)

    def _build_by_running(self, sample: Any) -> None:
        """Creates variables where only real values will do, so that they can be shared before the first step."""
        model = self.model
        tensors = keras.tree.map_structure(lambda a: None if a is None else keras.ops.convert_to_tensor(a), sample)
        x, y, weights = keras.utils.unpack_x_y_sample_weight(tensors)
        outputs = model(x)
        model.compute_loss(x, y, outputs, weights)
        model.compute_metrics(x, y, outputs, sample_weight=weights)
        model.reset_metrics()
        if model.optimizer is not None and not model.optimizer.built:
            model.optimizer.build(model.trainable_variables)

    def _scale_activity_losses(self) -> None:
        layers = [
            layer for layer in flat_layers(self.model) if getattr(layer, "activity_regularizer", None) is not None
        ]
        if layers and activity_losses_are_sums():
            self.scope.around = functools.partial(losses.summed_activity, layers, self.scope)

    def _global_loss(self, loss: Any) -> Any:
        if isinstance(loss, losses.GlobalLoss):
            return loss
        return losses.GlobalLoss(loss, self.scope, self._total)

    def _total(self, value: Any) -> Any:
        self.scope.count_total()
        return self.backend.weighted_sum([value], self.scope.presence, self.scope)[0]

    def share_state(self) -> None:
        """Gives all workers the chief's weights and optimizer state; a collective call."""
        state.broadcast_state(self.model, self.runtime.agreement, self.agreement.names)
        if self.runtime.size > 1:
            state.spread_global_seed(self.runtime.rank, self.agreement.from_chief)
            self.backend.spread_randomness(self.runtime.rank, self.agreement.from_chief)

    def describe(self, source: Source, what: str) -> None:
        """Says once how the workers share the data."""
        if self.is_chief and self.runtime.size > 1:
            log.on_change(f"{what} {id(self.model)}", f"{what}: {source.describe()}")


def adopted(model: Any) -> Adoption | None:
    """Returns the adoption of a model, or None."""
    adoption: Adoption | None = vars(model).get(_ATTRIBUTE)
    return adoption


def register(model: Any, adoption: Adoption) -> None:
    """Remembers, in the model itself, that it is in charge of a strategy."""
    model.__dict__[_ATTRIBUTE] = adoption
    _models.add(model)


def adoptions() -> Sequence[Adoption]:
    """Returns the adoptions of all living models."""
    return [adoption for adoption in map(adopted, list(_models)) if adoption is not None]
