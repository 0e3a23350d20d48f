"""Callbacks: who writes, who prints, and how a wish to stop becomes everybody's."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import keras

from unisono.training.agreement import StepAgreement

CHIEF_ONLY = ("TensorBoard", "CSVLogger", "RemoteMonitor", "OrbaxCheckpoint")
"""Stock callbacks that only write; on other workers they are left out."""

QUIET = ("History", "ProgbarLogger", "EarlyStopping", "ReduceLROnPlateau", "LearningRateScheduler", "CSVLogger")
"""Stock callbacks that read no logs of single batches."""

PROGRESS_SECONDS = 0.1
"""How often a progress bar gets fresh global logs: more often than the eye reads, cheap enough not to count."""


class RestoreOnly(keras.callbacks.Callback):  # type: ignore[misc]
    """`BackupAndRestore` on a worker that is not the chief: it restores, but neither writes nor deletes.

    Args:
        inner: The user's callback.
    """

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self._inner = inner

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """See `Callback`."""
        self._inner.set_params(self.params)
        self._inner.set_model(self._model)
        self._inner.on_train_begin(logs)


STOP_FLAGS = {"train": "stop_training", "test": "stop_evaluating", "predict": "stop_predicting"}
"""The attribute of a model that ends the loop of each phase."""


class Together(keras.callbacks.Callback):  # type: ignore[misc]
    """Runs after all other callbacks of a worker and makes of its wishes those of all.

    As its class has methods for the end of a batch, Keras calls all callbacks in the thread of the loop. Else it hands
    each batch's logs to another thread, so as not to wait for their numbers; here the numbers are there, and two
    switches of a core cost a tenth of a small step.

    Args:
        agreement: Over all workers.
        phases: Those in which a callback of any worker acts on single batches.
        begin: Called when training begins, after the user's callbacks have changed or restored what they wanted.
        epoch: Called when an epoch begins.
    """

    @classmethod
    def after(cls, callbacks: Sequence[Any], agreement: StepAgreement, **called: Callable[[], None]) -> Together:
        """Returns one that agrees as often as the callbacks of any worker can wish something; a collective call.

        Args:
            callbacks: This worker's.
            agreement: Over all workers.
            **called: See `Together`.
        """
        wanted = agreement.any_of([acts_on_batches(callbacks, phase) for phase in STOP_FLAGS])
        phases = frozenset(phase for phase, wish in zip(STOP_FLAGS, wanted, strict=True) if wish)
        return cls(agreement, phases, **called)

    def __init__(
        self,
        agreement: StepAgreement,
        phases: frozenset[str],
        begin: Callable[[], None] = lambda: None,
        epoch: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__()
        self.phases = phases
        self._agreement = agreement
        self._begin = begin
        self._epoch = epoch
        self._is_first = False
        self._fitted: Any = None

    def set_model(self, model: Any) -> None:
        """See `Callback`; its property `model` would bring the state of a running loop into the model, on JAX."""
        super().set_model(model)
        self._fitted = model

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """See `Callback`."""
        self._begin()

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """See `Callback`."""
        self._is_first = True
        self._epoch()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """See `Callback`."""
        self.stop_together("train")

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """See `Callback`."""
        self._end_batch("train")

    def on_test_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """See `Callback`."""
        self._end_batch("test")

    def on_predict_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """See `Callback`."""
        self._end_batch("predict")

    def agrees_after_batch(self) -> bool:
        """Returns whether a wish to stop training is agreed on right after the batch that is trained on.

        It is so after the first batch of each epoch, where Keras heeds a wish from before the epoch.
        """
        return self._is_first or "train" in self.phases

    def _end_batch(self, phase: str) -> None:
        agrees = self.agrees_after_batch() if phase == "train" else phase in self.phases
        if phase == "train":
            self._is_first = False
        if agrees:
            self.stop_together(phase)

    def stop_together(self, phase: str) -> None:
        """Stops a loop on all workers if any of them wants to."""
        flag = STOP_FLAGS[phase]
        setattr(self._fitted, flag, self._agreement.any(bool(getattr(self._fitted, flag))))


class Reading:
    """Says before each step whether this worker reads logs after it.

    Args:
        always: Whether a callback reads the logs of every batch.
        progress: Whether a progress bar is shown.
        clock: Returns seconds.
    """

    def __init__(self, always: bool, progress: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._always = always
        self._progress = progress
        self._clock = clock
        self._next = clock()

    def __call__(self) -> bool:
        """Returns whether logs are read after the step that comes."""
        if self._always or not self._progress:
            return self._always
        now = self._clock()
        if now < self._next:
            return False
        self._next = now + PROGRESS_SECONDS
        return True


def flat(callbacks: Any) -> list[Any]:
    """Returns the callbacks given to `fit`: one, a nested list, a `CallbackList` or None."""
    if callbacks is None:
        return []
    if isinstance(callbacks, keras.callbacks.CallbackList):
        return list(callbacks.callbacks)
    return [c for c in keras.tree.flatten(callbacks) if c is not None]


def for_worker(callbacks: Iterable[Any], is_chief: bool) -> list[Any]:
    """Returns the callbacks that one worker runs: all on the chief, no stock writers on the others."""
    if is_chief:
        return list(callbacks)
    mine = []
    for callback in callbacks:
        if isinstance(callback, keras.callbacks.BackupAndRestore):
            mine.append(RestoreOnly(callback))
        elif not isinstance(callback, _stock(CHIEF_ONLY)):
            mine.append(callback)
    return mine


def reads_batches(callbacks: Sequence[Any], phase: str) -> bool:
    """Returns whether a callback is shown the logs of single batches; before a batch there are none.

    Args:
        callbacks: The worker's callbacks.
        phase: "train", "test" or "predict".
    """
    return any(_has_method(callback, phase, "end") for callback in callbacks)


def acts_on_batches(callbacks: Sequence[Any], phase: str) -> bool:
    """Returns whether a callback is called before or after single batches, when it may want to stop.

    Args:
        callbacks: The worker's callbacks.
        phase: "train", "test" or "predict".
    """
    return any(_has_method(callback, phase, when) for callback in callbacks for when in ("begin", "end"))


def _has_method(callback: Any, phase: str, when: str) -> bool:
    if isinstance(callback, keras.callbacks.TensorBoard):
        return bool(callback.update_freq != "epoch")
    if isinstance(callback, keras.callbacks.ModelCheckpoint):
        return bool(callback.save_freq != "epoch")
    if isinstance(callback, keras.callbacks.BackupAndRestore) or type(callback) in _stock(QUIET):
        return False
    names = [f"on_{phase}_batch_{when}"]
    if phase == "train":
        names.append(f"on_batch_{when}")
    return any(
        name in vars(callback) or getattr(type(callback), name) is not getattr(keras.callbacks.Callback, name)
        for name in names
    )


def _stock(names: Sequence[str]) -> tuple[type, ...]:
    return tuple(getattr(keras.callbacks, name) for name in names if hasattr(keras.callbacks, name))
