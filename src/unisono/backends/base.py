"""The contract of a backend: how a step of a Keras model reaches the engine.

A backend turns the methods Keras documents for overriding (`train_step`, `test_step`, `predict_step`) into step
functions that the training layer calls, and offers one collective inside them: the weighted sum over all
workers. It knows its framework and nothing of clusters, sockets or engines; the exchange of a flat buffer is
handed to it.

Step functions share one signature on all backends:

    train(state, data, weights)      -> (logs, state)
    test(state, data, weights)       -> (logs, state)
    idle_train(state, data, weights) -> state             what a worker without data does while others train
    idle_test(state, data, weights)  -> state             or test; `data` is a stand-in
    predict(state, data)             -> (outputs, state)

`state` is what Keras's trainer of the backend passes around: a tuple of lists of arrays on JAX, None elsewhere.
`weights` is a float64 array of shape (4,): this worker's share of the global batch, its inverse, 1, and the number
of its examples; all 0 for a worker without data.

A worker without data makes the same update as the others, with no gradients of its own and, on JAX and torch, no
forward pass. On TensorFlow, and where others exchange inside the forward pass (a loss divided by the sum of weights) or
this worker has not yet seen how a step goes, it runs the whole step on the stand-in, weighted 0, and takes its metrics
back.
"""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import keras
import numpy as np

from unisono.backends.custom import CustomBackend
from unisono.errors import UnisonoError

Exchange = Callable[[np.ndarray, float], np.ndarray]
"""Takes a flat buffer and this worker's weight; returns the sum over all workers of weight times buffer.

The result is a new array of the same shape and dtype; the input is not changed.
"""

Gather = Callable[[np.ndarray], list[np.ndarray]]
"""Takes an array; returns those of all workers in the order of ranks."""

Tensor = Any
"""A tensor of the backend's framework."""


@dataclass
class StepScope:
    """What the hooks of one model see while a step of it is traced or run.

    Args:
        size: Number of workers.
    """

    size: int
    active: bool = False
    share: Tensor = None
    """Scalar: examples of this worker over examples of the global batch."""
    inverse: Tensor = None
    """Scalar: 1 / share."""
    presence: Tensor = None
    """Scalar: 1, or 0 for a worker without data."""
    local: Tensor = None
    """Scalar: examples of this worker."""
    token: Tensor = None
    """On JAX, a scalar that orders the exchanges of one step."""
    captured: list[Tensor | None] | None = None
    """On JAX, takes the gradients where a step is cut at its update."""
    inner: bool = False
    """Whether an optimizer's own call of its inner parts is going on; these see exchanged gradients."""
    applied: list[tuple[Any, list[Any]]] = field(default_factory=list)
    """Optimizer and variables of each update of the step traced last, in order."""
    moving: list[tuple[Any, Tensor]] = field(default_factory=list)
    """Variables changed by the forward pass, with their values before it, not yet merged."""
    versions: dict[int, int] = field(default_factory=dict)
    """On torch, what tells whether the forward pass has changed a weight, by its `id`."""
    assigns: bool = False
    """Whether a forward pass has assigned to weights, so that a worker without data must run it too."""
    exchanged: bool = False
    """Whether an optimizer has exchanged gradients in a step."""
    totals: dict[str, int] = field(default_factory=dict)
    """Exchanges inside the forward pass of a "train" or "test" step; absent before the first such step."""
    around: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext
    """What else is in force while a step is traced or run."""
    custom: bool = False
    """Whether it is that of the user's own loops, not of one model: nobody knows where a compiled function begins."""

    @contextlib.contextmanager
    def enter(self, kind: str, weights: Sequence[Tensor] | Tensor) -> Iterator[None]:
        """Marks the extent of one step; `weights` as in the step functions' signature."""
        self.active, self.token = True, None
        self.share, self.inverse, self.presence, self.local = weights[0], weights[1], weights[2], weights[3]
        self._totals = 0
        try:
            with self.around():
                yield
            self.totals[kind] = self._totals
        finally:
            self.active = False
            self.share = self.inverse = self.presence = self.local = self.token = None
            self.moving = []

    def count_total(self) -> None:
        """Notes an exchange inside the forward pass."""
        self._totals += 1

    def forget(self) -> None:
        """Forgets how steps go, for a model that is compiled anew."""
        self.applied, self.totals, self.exchanged, self.assigns = [], {}, False, False

    @contextlib.contextmanager
    def within_optimizer(self) -> Iterator[None]:
        """Marks the extent of an optimizer's own work on gradients that are global already."""
        self.inner = True
        try:
            yield
        finally:
            self.inner = False


class Backend(CustomBackend):
    """One framework under Keras.

    Args:
        exchange: Sums a flat buffer over all workers.
        size: Number of workers.
        gather: Brings the arrays of all workers, of any length, to every worker.
    """

    name: str
    has_text: bool = False
    """Whether there are tensors of strings."""
    apply_method: str = "apply"
    """The optimizer's method at whose entry gradients are exchanged."""

    def __init__(self, exchange: Exchange, size: int, gather: Gather) -> None:
        self._exchange = exchange
        self._gather = gather
        self.size = size
        self.raised: UnisonoError | None = None
        """What ended an exchange inside a step; frameworks wrap it in errors of their own."""

    def exchange(self, flat: np.ndarray, weight: float) -> np.ndarray:
        """Sums weight times buffer over all workers; called by the step on the host."""
        try:
            return self._exchange(flat, weight)
        except UnisonoError as error:
            self.raised = error
            raise

    def gather(self, array: np.ndarray) -> list[np.ndarray]:
        """Brings every worker's array to every worker; called by the step on the host."""
        try:
            return self._gather(array)
        except UnisonoError as error:
            self.raised = error
            raise

    @abc.abstractmethod
    def weighted_sum(self, tensors: Sequence[Tensor], weight: Tensor, scope: StepScope) -> list[Tensor]:
        """Sums weight times tensor over all workers, inside a step.

        Args:
            tensors: Dense floating tensors, the same shapes and dtypes on all workers.
            weight: Scalar; where it is 0 the worker contributes exact zeros, whatever its tensors hold.
            scope: Of the running step.

        Returns:
            Tensors of the same shapes and dtypes, bit-identical on all workers.
        """

    @abc.abstractmethod
    def exchange_gradients(
        self, gradients: Sequence[Tensor | None], weight: Tensor, scope: StepScope
    ) -> list[Tensor | None]:
        """Replaces local gradients by global ones; as `weighted_sum`, with absent and sparse gradients."""

    @abc.abstractmethod
    def train(self, model: Any, scope: StepScope, moving: Sequence[Any]) -> Callable[..., tuple[Any, Any]]:
        """Builds the train step function; `moving` are variables that a forward pass may change."""

    @abc.abstractmethod
    def idle_train(
        self, model: Any, scope: StepScope, moving: Sequence[Any], train: Callable[..., Any]
    ) -> Callable[..., Any]:
        """Builds the function of a worker that has no data while others train; `train` is its step function."""

    @abc.abstractmethod
    def test(self, model: Any, scope: StepScope) -> Callable[..., tuple[Any, Any]]:
        """Builds the test step function."""

    @abc.abstractmethod
    def idle_test(self, model: Any, scope: StepScope, test: Callable[..., Any]) -> Callable[..., Any]:
        """Builds the function of a worker that has no data while others test; `test` is its step function."""

    @abc.abstractmethod
    def predict(self, model: Any) -> Callable[..., tuple[Any, Any]]:
        """Builds the predict step function."""

    @abc.abstractmethod
    def function_for_keras(self, run: Callable[[Any, Iterator[Any]], tuple[Any, Any]]) -> Callable[..., Any]:
        """Gives `run(state, batches) -> (logs, state)` the signature that Keras's loop of this backend calls."""

    @abc.abstractmethod
    def predict_function_for_keras(self, run: Callable[[Any, Iterator[Any]], tuple[Any, Any]]) -> Callable[..., Any]:
        """The same for `predict`, whose loop passes its batches in another way on some backends."""

    def prepare(self, model: Any, train: Callable[..., Any], sample: tuple[Any, ...]) -> None:
        """Traces ahead of the first step where that is possible, so that an idle worker knows the updates."""

    def settle(self, state: Any) -> None:
        """Waits for the step that returned `state`, where steps run behind the caller's back.

        A step that still exchanges and an agreement on the next one would fight for the interpreter lock.
        """

    def keep(self, model: Any, state: Any) -> None:
        """Puts the state of a loop that breaks off back into the model, where it is not there anyway."""

    def spread_randomness(self, rank: int, from_chief: Callable[[Any], Any]) -> None:
        """Lets the framework's own random numbers, where Keras uses them, differ between workers.

        Args:
            rank: This worker.
            from_chief: Returns the chief's value on all workers.
        """

    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Compiles a pure function of tensors, where the framework compiles."""
        return function

    def to_tensor(self, array: np.ndarray) -> Tensor:
        """Returns a tensor for values that Keras expects as the backend's own (outputs of predict)."""
        return array


def is_stock_train_step(model: Any) -> bool:
    """Returns whether a model trains by Keras's own `train_step`, in which one update follows one forward pass."""
    return type(model).train_step is keras.Model.train_step


def change(new: Tensor, old: Tensor) -> Tensor:
    """Returns what a step has added to a variable, in a floating type that can be weighted and summed.

    Args:
        new: Value after the step.
        old: Value before it, of the same shape and dtype.
    """
    dtype = keras.backend.standardize_dtype(old.dtype)
    if keras.backend.is_float_dtype(dtype):
        return new - old
    if dtype == "bool":
        new, old = keras.ops.cast(new, "int32"), keras.ops.cast(old, "int32")
    return keras.ops.cast(new - old, "float32")


def changed(old: Tensor, total: Tensor) -> Tensor:
    """Returns the value of a variable after the step of all workers.

    Counters of steps go up by the same number on every worker with data; their weighted mean is that number, up to
    the rounding of the shares.

    Args:
        old: Value before the step.
        total: Sum over all workers of share times `change`.
    """
    dtype = keras.backend.standardize_dtype(old.dtype)
    if keras.backend.is_float_dtype(dtype):
        return old + total
    whole = keras.ops.cast(keras.ops.round(total), "int32" if dtype == "bool" else dtype)
    return keras.ops.cast(keras.ops.cast(old, whole.dtype) + whole, dtype)


def flat_layers(model: Any) -> list[Any]:
    """Returns the model and all layers inside it, at any depth."""
    return list(model._flatten_layers())


def group_by_dtype(names: Sequence[str]) -> dict[str, list[int]]:
    """Returns, for each dtype name in order of first appearance, the positions that have it.

    >>> group_by_dtype(["float32", "float64", "float32"])
    {'float32': [0, 2], 'float64': [1]}
    """
    groups: dict[str, list[int]] = {}
    for position, name in enumerate(names):
        groups.setdefault(name, []).append(position)
    return groups


WIRE_DTYPE = {"float16": "float32", "bfloat16": "float32"}
"""Types that travel in a wider one: engines have no 16-bit floats, and sums in them lose digits."""
