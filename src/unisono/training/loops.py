"""What stands over `fit`, `evaluate`, `predict` and their kin: Keras's own loops, fed with this worker's part.

The loops themselves, with all their meaning of steps, epochs, validation and warnings, stay Keras's.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np

from unisono import env
from unisono.backends.base import is_stock_train_step
from unisono.data.arrays import validation_split
from unisono.data.base import Source
from unisono.data.select import make_source
from unisono.training import callbacks as roles
from unisono.training.adopt import Adoption
from unisono.training.batches import Feed
from unisono.training.census import Census
from unisono.training.hooks import base_method, over
from unisono.training.keras_private import flat_layers, initial_epoch, set_initial_epoch, takes_a_batch_to_build
from unisono.training.likeness import of_call, of_training
from unisono.training.state import refuse_rows_in_state


class Loops:
    """The functions set over the loops of one adopted model.

    Args:
        adoption: The model and what it needs.
    """

    def __init__(self, adoption: Adoption) -> None:
        self._adoption = adoption

    def functions(self) -> dict[str, Callable[..., Any]]:
        """Returns what stands over each method, by name; where a class has its own, below that."""
        loops = {
            "fit": self.fit,
            "evaluate": self.evaluate,
            "predict": self.predict,
            **{name: self._on_batch(name) for name in ("train_on_batch", "test_on_batch", "predict_on_batch")},
        }
        model = self._adoption.model
        return {name: over(keras.Model, model, name, loop) for name, loop in loops.items()}

    def fit(self, *args: Any, **kwargs: Any) -> Any:
        """Stands over `Model.fit`."""
        model, adoption = self._adoption.model, self._adoption
        call = _arguments("fit", args, kwargs)
        if not model.compiled:
            return _stock(model, "fit")(**call)
        with self._running("fit"):
            adoption.agreement.together("fit", {**of_call("fit", call), **of_training(model)})
            x, y, weights = call.pop("x", None), call.pop("y", None), call.pop("sample_weight", None)
            validation = call.pop("validation_data", None)
            fraction = call.pop("validation_split", 0.0)
            if fraction and validation is None:
                (x, y, weights), validation = validation_split(x, y, weights, fraction)
            source = self._source(
                "training data",
                x,
                y,
                weights,
                batch_size=call.get("batch_size"),
                shuffle=call.pop("shuffle", True),
                class_weight=call.pop("class_weight", None),
                steps=call.get("steps_per_epoch"),
            )
            adoption.describe(source, "training data")
            self._ensure_built(source)
            mine = roles.for_worker(roles.flat(call.pop("callbacks", None)), adoption.is_chief)
            together = roles.Together.after(
                mine, adoption.agreement, begin=self._begin_training, epoch=adoption.steps.begin
            )
            call["callbacks"] = [*mine, together]
            verbose = self._verbose(call)
            reading = _reading(mine, "train", verbose)
            if validation is not None:
                call["validation_data"] = self._validation(validation, call, _reading(mine, "test", verbose=0))
            # One that came too late for the loop before, or from `train_on_batch`, is not about this loop.
            adoption.steps.stop_wish = False
            adoption.steps.callbacks_agree = together.agrees_after_batch
            feed = self._feed(source, "fit", lambda: (reading(), self._stop_wish()))
            feed.may_stop = True
            if is_stock_train_step(model):
                # A step of the user's own may ask to stop, which must hold before the next.
                feed.rider = adoption.rider
            if env.read_flag("UNISONO_CHECK_DATA"):
                feed.census = Census(adoption.runtime.agreement)
            with self._quiet(mine):
                return _stock(model, "fit")(x=feed, verbose=verbose, shuffle=False, **call)

    def _validation(self, validation: Any, call: dict[str, Any], reading: roles.Reading) -> Feed:
        x, y, weights = keras.utils.unpack_x_y_sample_weight(validation)
        source = self._source(
            "validation data",
            x,
            y,
            weights,
            batch_size=call.get("validation_batch_size") or call.get("batch_size"),
            steps=call.get("validation_steps"),
        )
        self._adoption.describe(source, "validation data")
        return self._feed(source, "validation", lambda: (reading(), False))

    def _feed(self, source: Source, activity: str, wants: Callable[[], tuple[bool, bool]]) -> Feed:
        adoption = self._adoption
        return Feed(source, adoption.agreement, activity, wants, self._stop, adoption.steps.settle)

    def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        """Stands over `Model.evaluate`."""
        model, adoption = self._adoption.model, self._adoption
        call = _arguments("evaluate", args, kwargs)
        if not model.compiled or call.get("_use_cached_eval_dataset"):
            adoption.steps.begin()
            return _stock(model, "evaluate")(**call)
        with self._running("evaluate"):
            adoption.agreement.together("evaluate", of_call("evaluate", call))
            source = self._source(
                "data of evaluate",
                call.pop("x", None),
                call.pop("y", None),
                call.pop("sample_weight", None),
                batch_size=call.pop("batch_size", None),
                steps=call.get("steps"),
            )
            self._ensure_built(source)
            adoption.share_state()
            adoption.steps.begin()
            mine = roles.for_worker(roles.flat(call.pop("callbacks", None)), adoption.is_chief)
            verbose = self._verbose(call)
            together = roles.Together.after(mine, adoption.agreement)
            reading = _reading(mine, "test", verbose)
            feed = self._feed(source, "evaluate", lambda: (reading(), False))
            with self._quiet(mine):
                return _stock(model, "evaluate")(x=feed, verbose=verbose, callbacks=[*mine, together], **call)

    def predict(self, *args: Any, **kwargs: Any) -> Any:
        """Stands over `Model.predict`: the whole result, in input order, on every worker."""
        model, adoption = self._adoption.model, self._adoption
        call = _arguments("predict", args, kwargs)
        with self._running("predict"):
            adoption.agreement.together("predict", of_call("predict", call))
            source = self._source(
                "data of predict",
                call.pop("x", None),
                batch_size=call.pop("batch_size", None),
                steps=call.get("steps"),
                in_order=True,
            )
            self._build_for_predict(source.sample())
            mine = roles.for_worker(roles.flat(call.pop("callbacks", None)), adoption.is_chief)
            verbose = self._verbose(call)
            feed = self._feed(source, "predict", lambda: (False, False))
            together = roles.Together.after(mine, adoption.agreement)
            return _stock(model, "predict")(x=feed, verbose=verbose, callbacks=[*mine, together], **call)

    def _ensure_built(self, source: Source) -> None:
        takes = takes_a_batch_to_build(self._adoption.model)
        self._adoption.ensure_built(source.sample())
        if takes:
            # The iteration that Keras begins and leaves counts for data sets that bring another order in each.
            source.epoch()

    def _build_for_predict(self, sample: tuple[Any, ...]) -> None:
        model, adoption = self._adoption.model, self._adoption
        if not all(layer.built for layer in flat_layers(model)):
            with keras.StatelessScope():
                model(keras.tree.map_structure(keras.ops.convert_to_tensor, sample[0]))
        adoption.steps.build_predict()
        adoption.share_state()

    def _on_batch(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            model, adoption = self._adoption.model, self._adoption
            with self._running(name):
                given = _arguments(name, args, kwargs)
                sample = _tuple(given.get("x"), given.get("y"), given.get("sample_weight"))
                first = not adoption.steps.ready
                if name == "predict_on_batch":
                    self._build_for_predict(_first_rows(sample))
                else:
                    adoption.ensure_built(_first_rows(sample))
                    if first:
                        adoption.share_state()
                adoption.steps.begin()
                return _stock(model, name)(*args, **kwargs)

        return call

    def _source(self, what: str, x: Any, y: Any = None, sample_weight: Any = None, **options: Any) -> Source:
        runtime, agreement = self._adoption.runtime, self._adoption.agreement
        source = make_source(x, y, sample_weight, rank=runtime.rank, size=runtime.size, agreement=agreement, **options)
        glance = None if agreement.alone else source.glance()
        if glance is not None:
            agreement.same_data(what, glance)
        return source

    def _verbose(self, call: dict[str, Any]) -> Any:
        asked = call.pop("verbose", "auto")
        return asked if self._adoption.is_chief else 0

    def _stop_wish(self) -> bool:
        wish, self._adoption.steps.stop_wish = self._adoption.steps.stop_wish, False
        return wish

    def _stop(self) -> None:
        self._adoption.model.stop_training = True

    def _begin_training(self) -> None:
        adoption = self._adoption
        set_initial_epoch(adoption.model, adoption.agreement.from_chief(initial_epoch(adoption.model)))  # type: ignore[arg-type]
        adoption.share_state()

    @contextlib.contextmanager
    def _running(self, what: str) -> Iterator[None]:
        """Marks the extent of a loop; an error inside it is told to the other workers."""
        adoption = self._adoption
        adoption.runtime.report(adoption.steps.count, what)
        adoption.loops_running += 1
        try:
            refuse_rows_in_state(adoption.model, adoption.runtime.size)
            yield
        except BaseException as error:
            known = adoption.backend.raised
            if adoption.loops_running == 1:
                adoption.runtime.fail(known or error)
            if known is not None and known is not error:
                raise known from None
            raise
        finally:
            adoption.loops_running -= 1
            adoption.runtime.report(adoption.steps.count, f"after {what}")

    @contextlib.contextmanager
    def _quiet(self, callbacks: list[Any]) -> Iterator[None]:
        """Lets stock callbacks print on the chief only."""
        spoken = [
            (c, c.verbose)
            for c in callbacks
            if not self._adoption.is_chief and type(c).__module__.startswith("keras.") and hasattr(c, "verbose")
        ]
        for callback, _ in spoken:
            callback.verbose = 0
        try:
            yield
        finally:
            for callback, verbose in spoken:
                callback.verbose = verbose


def _reading(callbacks: list[Any], phase: str, verbose: Any) -> roles.Reading:
    progress = verbose in ("auto", 1) and keras.config.is_interactive_logging_enabled()
    return roles.Reading(roles.reads_batches(callbacks, phase), progress)


def _stock(model: Any, name: str) -> Callable[..., Any]:
    return base_method(keras.Model, model, name)


def _arguments(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Returns the arguments of a stock method by name."""
    names = [p for p in inspect.signature(getattr(keras.Model, name)).parameters if p != "self"]
    if len(args) > len(names):
        raise TypeError(f"{name}() takes at most {len(names)} arguments. Received: {len(args)}.")
    return {**dict(zip(names, args, strict=False)), **kwargs}


def _tuple(x: Any, y: Any, sample_weight: Any) -> tuple[Any, ...]:
    """Returns a batch as Keras's loops have it: without what is not given at its end."""
    if sample_weight is not None:
        return x, y, sample_weight
    return (x,) if y is None else (x, y)


def _first_rows(sample: tuple[Any, ...]) -> tuple[Any, ...]:
    return keras.tree.map_structure(  # type: ignore[no-any-return]
        lambda a: None if a is None else (a if hasattr(a, "shape") else np.asarray(a))[:1], sample
    )
