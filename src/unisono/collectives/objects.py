"""Python values and lists of arrays over an engine.

Values travel as pickles. Peers are trusted: whoever can join the job can run code in it anyway.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np

from unisono.collectives.base import Collectives
from unisono.collectives.checks import check_in_place

_PIECE_BYTES = 8 << 20


def broadcast_object(channel: Collectives, value: Any, root: int = 0) -> Any:
    """Returns the value of worker `root` on all workers.

    Args:
        channel: The channel to use.
        value: What to send; ignored on the other workers. Must be picklable.
        root: Rank whose value wins.

    Returns:
        On `root` the value itself, elsewhere an equal one.
    """
    data = np.frombuffer(pickle.dumps(value), np.uint8) if channel.rank == root else None
    length = np.array([0 if data is None else data.size], np.int64)
    channel.broadcast(length, root)
    # A copy, for the bytes of a pickle are read-only.
    buffer = np.empty(int(length[0]), np.uint8) if data is None else data.copy()
    channel.broadcast(buffer, root)
    return value if data is not None else pickle.loads(buffer.tobytes())


def all_gather_object(channel: Collectives, value: Any) -> list[Any]:
    """Brings every worker's value to every worker.

    Args:
        channel: The channel to use.
        value: Must be picklable.

    Returns:
        The values in the order of ranks; the own one is a copy too.
    """
    parts = channel.all_gather(np.frombuffer(pickle.dumps(value), np.uint8))
    return [pickle.loads(part.tobytes()) for part in parts]


def broadcast_arrays(channel: Collectives, arrays: Sequence[np.ndarray], root: int = 0) -> None:
    """Overwrites arrays on all workers with those of worker `root`.

    Large arrays are sent from where they lie, small ones are gathered in a buffer of at most 8 MiB, so that the
    memory needed beside the arrays is bounded.

    Args:
        channel: The channel to use.
        arrays: Contiguous and writable; same shapes and dtypes on all workers; any plain dtype.
        root: Rank whose values win.

    Raises:
        ConfigurationError: If an array cannot be overwritten in place.
    """
    views = []
    for array in arrays:
        check_in_place(array, "broadcast_arrays")
        views.append(array.reshape(-1).view(np.uint8))
    for run in _runs([view.size for view in views]):
        if len(run) == 1:
            channel.broadcast(views[run[0]], root)
        else:
            _broadcast_together(channel, [views[i] for i in run], root)


def _broadcast_together(channel: Collectives, views: Sequence[np.ndarray], root: int) -> None:
    if channel.rank == root:
        buffer = np.concatenate(views)
    else:
        buffer = np.empty(sum(view.size for view in views), np.uint8)
    channel.broadcast(buffer, root)
    offset = 0
    for view in views:
        view[...] = buffer[offset : offset + view.size]
        offset += view.size


def _runs(sizes: Sequence[int]) -> list[list[int]]:
    """Groups consecutive sizes in bytes so that no group of several exceeds `_PIECE_BYTES`."""
    runs: list[list[int]] = []
    room = 0
    for index, size in enumerate(sizes):
        if runs and size <= room:
            runs[-1].append(index)
        else:
            runs.append([index])
            room = _PIECE_BYTES
        room -= size
    return runs
