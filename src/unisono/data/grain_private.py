"""What Grain does not tell in public: how a data set of batches makes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import grain


@dataclass(frozen=True)
class Batching:
    """The last step of a `MapDataset` that makes batches.

    Args:
        examples: The `MapDataset` of single examples, by index.
        size: Examples of a batch.
        count: Number of batches.
        join: Makes a batch of a list of examples.
        read_options: How it is read, if the user has said so.
    """

    examples: Any
    size: int
    count: int
    join: Callable[[Sequence[Any]], Any]
    read_options: Any


def batching(dataset: Any) -> Batching | None:
    """Returns how a data set makes its batches, if they are made last and any example can be read by its index.

    Args:
        dataset: A `grain.MapDataset`, or the `IterDataset` that its `to_iter_dataset()` returns.
    """
    options = None
    if isinstance(dataset, grain.IterDataset):
        options = getattr(dataset, "_read_options", None)
        if options is None or len(dataset.parents) != 1:
            return None
        dataset = dataset.parents[0]
    if not isinstance(dataset, grain.MapDataset) or type(dataset).__name__ != "BatchMapDataset":
        return None
    size, join = getattr(dataset, "_batch_size", None), getattr(dataset, "_batch_fn", None)
    if size is None or join is None:
        return None
    return Batching(dataset.parents[0], size, len(dataset), join, options)
