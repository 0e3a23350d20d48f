"""What a backend does in loops of the user's own, where no step function of ours marks what is going on."""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unisono.errors import DivergenceError

Tensor = Any
"""A tensor of the backend's framework."""


@dataclass(frozen=True)
class Rows:
    """Number of examples that a step was given.

    Args:
        known: The number, where it is known while the step is traced or run; None in a graph of open shape.
        count: Scalar that holds the number whenever a compiled part of the step runs.
        presence: The same, 1 or 0.
    """

    known: float | None
    count: Tensor
    presence: Tensor

    @classmethod
    def of(cls, number: float) -> Rows:
        """Returns a number that cannot change between tracing and running."""
        return cls(number, number, float(number > 0))


class CustomBackend(abc.ABC):
    """The part of a backend's contract that loops of the user's own need."""

    def is_traced(self) -> bool:
        """Returns whether code that is running now is being compiled, so that values are not there yet."""
        return False

    def eagerly(self) -> contextlib.AbstractContextManager[Any]:
        """Lets operations run at once, also while a function is being compiled."""
        return contextlib.nullcontext()

    def is_initialized(self, variable: Any) -> bool:
        """Returns whether a Keras variable has a value yet; one made in a graph may get it later."""
        return True

    def rewritten(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Returns a user's function as the framework would rewrite it if our code did not stand between."""
        return function

    def as_written(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Returns a function of ours that the framework leaves as it is."""
        return function

    def rows(self, leaves: Sequence[Any]) -> Rows:
        """Counts the examples in the arguments of a step.

        Args:
            leaves: What the arguments hold, without structure.

        Returns:
            0 if any array has no rows, else the rows of the first; 1 if there is no array.
        """
        return Rows.of(first_rows([leaf.shape[0] for leaf in leaves if has_rows(leaf)]))

    def replica(self, scope: Any, rank: int) -> contextlib.AbstractContextManager[Any]:
        """Lets the framework's own functions know, for a while, that this is one replica of several."""
        return contextlib.nullcontext()

    def updating(self, scope: Any) -> contextlib.AbstractContextManager[Any]:
        """Lets an optimizer work, inside a step, on gradients that are global already."""
        return contextlib.nullcontext()

    @abc.abstractmethod
    def concatenated(self, tensor: Tensor, axis: int) -> Tensor:
        """Concatenates the tensors of all workers in the order of ranks.

        Args:
            tensor: At least one dimension; only that of `axis` may differ between workers.
            axis: Which, from 0 on.
        """


def has_rows(leaf: Any) -> bool:
    """Returns whether something is an array or tensor with at least one dimension."""
    return hasattr(leaf, "shape") and hasattr(leaf, "dtype") and len(leaf.shape) > 0


def first_rows(numbers: Sequence[int]) -> int:
    """Returns the number of examples, from the lengths of all arrays of a batch in their order.

    >>> first_rows([4, 4]), first_rows([4, 0]), first_rows([])
    (4, 0, 1)
    """
    return 1 if not numbers else 0 if 0 in numbers else int(numbers[0])


def concatenate(parts: Sequence[np.ndarray], axis: int) -> np.ndarray:
    """Concatenates the arrays of all workers, with a message of ours where they do not fit."""
    if len({part.shape[:axis] + part.shape[axis + 1 :] for part in parts}) > 1:
        shapes = ", ".join(f"worker {rank}: {part.shape}" for rank, part in enumerate(parts))
        raise DivergenceError(
            f"gather concatenates along axis {axis}, but other dimensions differ too: {shapes}.",
            remedy="give all workers values that differ in that dimension only.",
        )
    return np.concatenate(parts, axis)
