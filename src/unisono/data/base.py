"""The contract of a data source: global batches, and this worker's part of each.

A source turns what the user gave to `fit` into an ordered sequence of *global* batches. Global batch k holds the
same examples for any number of workers; worker r takes the contiguous part of it that `shard.slice_of` names.
A source knows nothing of steps, engines or models.
"""

from __future__ import annotations

import abc
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from unisono.data.report import Report


@dataclass(frozen=True, slots=True)
class Part:
    """This worker's part of one global batch.

    Args:
        data: `(x,)`, `(x, y)` or `(x, y, sample_weight)`, nested structures of arrays with `local` rows; a source
            that yields longer tuples (for a user's own `train_step`) passes them on. None if `local` is 0.
        local: Number of examples in `data`.
        total: Number of examples of the global batch, over all workers; None if only the sum over the workers tells,
            because each reads data of its own.
        fingerprint: 0, or a cheap hash of the global batch for sources that every worker reads whole. Workers that
            hold different values for the same batch have read different data.
        bare: Whether stock Keras would hand `data[0]` itself, not a tuple, to `train_step`.
    """

    data: tuple[Any, ...] | None
    local: int
    total: int | None
    fingerprint: int = 0
    bare: bool = False

    @property
    def batch(self) -> Any:
        """What stock Keras would hand to `train_step(data)`."""
        return self.data[0] if self.bare and self.data is not None else self.data


@dataclass(frozen=True)
class Glance:
    """What a look at a few places of the data shows, to be compared between workers that should hold the same.

    Args:
        form: Numbers of examples, shapes, dtypes: equal on all workers.
        values: A few values; floating-point ones may differ a little, as different machines compute them.
        certain: Whether values that differ are surely a mistake; random augmentation may make them differ too.
    """

    form: str
    values: tuple[np.ndarray, ...]
    certain: bool = True

    def is_like(self, other: Glance) -> bool:
        """Returns whether both may be looks at the same data."""
        if self.form != other.form or len(self.values) != len(other.values):
            return False
        return all(_alike(a, b) for a, b in zip(self.values, other.values, strict=True))


def _alike(a: np.ndarray, b: np.ndarray) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.dtype.kind not in "fc":
        return bool((a == b).all())
    finite = np.abs(b[np.isfinite(b)])
    near = 1e-5 * float(finite.max()) if finite.size else 0.0
    return bool(np.allclose(a, b, rtol=1e-3, atol=near, equal_nan=True))


class Agreement(Protocol):
    """How workers agree. Collective: all workers call the same methods in the same order."""

    memory: dict[str, Any]
    """What this worker's sources keep for later ones of the same data, by names that nothing else has."""

    def seed(self) -> int:
        """Returns a fresh seed, 0 <= seed < 2**63, the same on all workers."""

    def from_chief(self, value: object) -> Any:
        """Returns the chief's `value` (picklable) on all workers; what the others pass is ignored."""


class Source(abc.ABC):
    """An ordered sequence of global batches, and this worker's part of each."""

    num_batches: int | None
    """Global batches per epoch; None if unknown or infinite."""

    apart: bool = False
    """Whether each worker reads data of its own, whose end the others need not share: a worker whose data has ended
    takes part in the remaining steps without examples."""

    ahead: int = 0
    """How many global batches may be read before the step that needs them, beyond the next one."""

    @abc.abstractmethod
    def epoch(self) -> Iterator[Part]:
        """One full pass, as a lazy generator.

        Nothing happens before the first `next()`: no collective, no access to data. But the call itself may count, as
        `iter()` of a `tf.data.Dataset` does, whose shuffles move on to their next order. All workers must consume equal
        numbers of parts (unless they are `apart`), as agreements (a seed per pass) are made on the way: those of
        sources that are apart are made before the first part only. Closing the generator ends what runs
        behind it (threads, processes).

        Returns:
            One part per global batch, also for those in which this worker has no example. If workers are `apart`,
            one part for each local batch of this worker.
        """

    @abc.abstractmethod
    def sample(self) -> tuple[Any, ...]:
        """Returns `data` of a part with at least one example, for building the model.

        Consumes nothing: an epoch begun later still yields every example. The first call may run the user's Python code
        and be collective, so all workers make it at the same point; after it, and after the first part of any epoch,
        calls are cheap and any worker may make one alone.
        """

    @abc.abstractmethod
    def describe(self) -> str:
        """Returns one line for the log: kind, size, and how workers share it."""

    def glance(self) -> Glance | None:
        """Returns what a look at the data shows; None where other agreements show that workers hold different data."""
        return None

    def report(self) -> Report | None:
        """Returns how the workers share the data, in numbers; None where one line says all."""
        return None

    def on_epoch_begin(self) -> None:
        """Tells the user's object that an epoch begins, where Keras would."""

    def on_epoch_end(self) -> None:
        """Tells the user's object that an epoch has ended, where Keras would."""
