"""Distributed data sets that a user's own loop iterates: this worker's part of each global batch, in step with all."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np

from unisono.data import batches
from unisono.data.base import Source
from unisono.data.distributed import Distributed
from unisono.errors import ConfigurationError
from unisono.training.agreement import StepAgreement
from unisono.training.batches import Feed


class DistributedDataset(Distributed):
    """What a strategy makes of a data set: `fit` takes it, and a loop of the user's own can iterate it.

    An iteration is one epoch. It yields this worker's part of each global batch, as tensors of the backend, and ends
    on all workers after the same step: a worker whose data has ended gets batches without rows until then. All
    workers must iterate alike.

    Args:
        dataset: What `fit` takes, other than arrays.
        own: Whether it holds this worker's examples only, in batches of one worker.
        make: Returns its source; collective.
        agreement: Agrees on each step.
        is_traced: Whether the code that asks for a batch is being compiled.
    """

    def __init__(
        self,
        dataset: Any,
        own: bool,
        make: Callable[[Distributed], Source],
        agreement: StepAgreement,
        is_traced: Callable[[], bool],
    ) -> None:
        super().__init__(dataset, own)
        self._make = make
        self._agreement = agreement
        self._is_traced = is_traced
        self._source: Source | None = None

    def __iter__(self) -> Iterator[Any]:
        self._refuse_trace()
        if self._source is None:
            self._source = self._make(self)
        source = self._source
        source.on_epoch_begin()
        for batch in Feed(source, self._agreement, "own loop"):
            yield batches.each(functools.partial(_tensor, batch.verdict.local), batch.data)
            self._refuse_trace()
        source.on_epoch_end()

    def _refuse_trace(self) -> None:
        """Refuses to hand out a batch where it would become a constant, the same one in all steps."""
        if self._is_traced():
            raise ConfigurationError(
                "A distributed data set is iterated inside tf.function or jax.jit, which would compile one batch in.",
                remedy="iterate outside, and pass each batch to the function: `for batch in data: step(batch)` instead "
                "of next(iterator) inside step.",
            )

    @property
    def element_spec(self) -> Any:
        """The `element_spec` of a `tf.data.Dataset`, for `tf.function(input_signature=...)`."""
        return self.dataset.element_spec


def _tensor(rows: int, array: Any) -> Any:
    if array is None or (rows and keras.ops.is_tensor(array)):
        return array
    kept = array if rows else array[:0]
    if isinstance(kept, np.ndarray) and kept.dtype.kind in "OSU" and keras.backend.backend() != "tensorflow":
        # Only TensorFlow has tensors of strings.
        return kept
    return keras.ops.convert_to_tensor(kept)
