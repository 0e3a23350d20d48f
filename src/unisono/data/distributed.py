"""Data sets that a strategy has distributed: as the user gave them, or made by each worker for itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from unisono.data.base import Part, Source
from unisono.data.policy import Way
from unisono.data.report import Report, unknown_shares
from unisono.errors import ConfigurationError


@dataclass(frozen=True)
class InputContext:
    """What a function that makes one worker's data knows of the job; names are those of `tf.distribute.InputContext`.

    Args:
        num_input_pipelines: Number of workers, each of which makes one.
        input_pipeline_id: This worker, from 0.
        num_replicas_in_sync: Number of workers that train together.
    """

    num_input_pipelines: int
    input_pipeline_id: int
    num_replicas_in_sync: int

    def get_per_replica_batch_size(self, global_batch_size: int) -> int:
        """Returns the number of examples of a global batch that one worker computes.

        Args:
            global_batch_size: Examples of a global batch.

        Raises:
            ConfigurationError: If it cannot be divided evenly.
        """
        share, rest = divmod(global_batch_size, self.num_replicas_in_sync)
        if rest:
            raise ConfigurationError(
                f"The global batch size {global_batch_size} cannot be divided evenly by {self.num_replicas_in_sync} "
                "workers.",
                remedy=f"use {share * self.num_replicas_in_sync or self.num_replicas_in_sync}, or give the global "
                "batches to fit, which divides any number.",
            )
        return share


class Distributed:
    """A data set to be shared by the workers of a strategy.

    Args:
        dataset: What `fit` takes, other than arrays.
        own: Whether it holds this worker's examples only, in batches of one worker.
    """

    def __init__(self, dataset: Any, own: bool) -> None:
        self.dataset = dataset
        self.own = own


class OwnSource(Source):
    """Data that each worker has made for itself: all of it is this worker's part.

    Args:
        alone: The same data as one process would read it.
        size: Number of workers.
    """

    apart = True

    def __init__(self, alone: Source, size: int) -> None:
        self._alone = alone
        self._size = size

    @property
    def num_batches(self) -> int | None:  # type: ignore[override]
        """Not known: workers may have different numbers of batches."""
        return None if self._size > 1 else self._alone.num_batches

    def epoch(self) -> Iterator[Part]:
        """This worker's examples; see `Source.epoch`."""
        parts = self._alone.epoch()
        try:
            for part in parts:
                yield Part(part.data, part.local, None, 0, part.bare)
        finally:
            parts.close()  # type: ignore[attr-defined]

    def sample(self) -> tuple[Any, ...]:
        """Returns one example of this worker's data."""
        return self._alone.sample()

    def report(self) -> Report:
        """Returns how the workers share the data."""
        return Report("data of each worker's own", Way.ALL, "the script shares it out", unknown_shares(self._size))

    def describe(self) -> str:
        """Returns one line for the log."""
        return f"{self._alone.describe()}; each worker reads data of its own, which the script shares out"

    def on_epoch_begin(self) -> None:
        """Passes on to the user's object."""
        self._alone.on_epoch_begin()

    def on_epoch_end(self) -> None:
        """Passes on to the user's object."""
        self._alone.on_epoch_end()
