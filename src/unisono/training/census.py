"""Counts the examples of an epoch and adds up a hash of each, over all workers.

Neither depends on the order, nor on how the workers share the examples: one process, or any number of workers, finds
the same count and the same checksum if each example was used once. Augmentation at random changes the checksum.
"""

from __future__ import annotations

import zlib
from typing import Any

import keras
import numpy as np

from unisono import log
from unisono.collectives.base import Collectives
from unisono.data.base import Part
from unisono.data.batches import to_host

_MIX = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(32)


class Census:
    """The census of one `fit`.

    Args:
        channel: For one small sum at the end of each epoch.
    """

    def __init__(self, channel: Collectives) -> None:
        self._channel = channel
        self._count = 0
        self._sum = np.uint64(0)
        self._before: tuple[int, int] | None = None

    def add(self, part: Part | None) -> None:
        """Counts this worker's part of a batch."""
        if part is None or part.data is None:
            return
        self._count += part.local
        with np.errstate(over="ignore"):
            self._sum += hashes(part.data).sum(dtype=np.uint64)

    def close_epoch(self) -> tuple[int, int]:
        """Returns the number of examples of all workers and their checksum, and says both; a collective call."""
        low, high = int(self._sum) & 0xFFFFFFFF, int(self._sum >> _HALF)
        sums = np.array([self._count, low, high], np.int64)
        if self._channel.size > 1:
            sums = self._channel.all_reduce(sums)
        self._count, self._sum = 0, np.uint64(0)
        found = int(sums[0]), (int(sums[1]) + (int(sums[2]) << 32)) % 2**64
        if self._channel.rank == 0:
            same = "" if self._before is None else "; as before" if found == self._before else "; NOT as before"
            log.logger.info("data of this epoch: %s examples, checksum %016x%s", f"{found[0]:,}", found[1], same)
        self._before = found
        return found


def hashes(data: Any) -> np.ndarray:
    """Returns a hash of each row of nested arrays: uint64 of shape (rows,)."""
    leaves = [leaf for leaf in keras.tree.flatten(to_host(data, "The data")) if leaf is not None]
    total = np.zeros(len(leaves[0]), np.uint64)
    with np.errstate(over="ignore"):
        for leaf in leaves:
            total = (total ^ _rows(leaf)) * _MIX
            total ^= total >> _HALF
    return total


def _rows(array: Any) -> np.ndarray:
    if not isinstance(array, np.ndarray) or array.dtype.hasobject or array.dtype.kind in "US":
        return np.array([zlib.crc32(repr(_plain(row)).encode()) for row in array], np.uint64)
    raw = np.ascontiguousarray(array).reshape(len(array), -1).view(np.uint8)
    padded = np.zeros((len(array), -(-raw.shape[1] // 8) * 8), np.uint8)
    padded[:, : raw.shape[1]] = raw
    words = padded.view(np.uint64)
    places = np.arange(1, words.shape[1] + 1, dtype=np.uint64) * _MIX | np.uint64(1)
    words = (words ^ (words >> _HALF)) * places
    hashed: np.ndarray = (words ^ (words >> _HALF)).sum(axis=1, dtype=np.uint64)
    return hashed


def _plain(row: Any) -> Any:
    return row.tolist() if hasattr(row, "tolist") else row.numpy().tolist() if hasattr(row, "numpy") else row
