"""Workers as threads, for what the training layer agrees on."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Sequence
from typing import Any

from unisono.collectives import loopback
from unisono.collectives.base import Collectives
from unisono.errors import UnisonoError


def together(size: int, work: Callable[[Collectives], Any]) -> list[Any]:
    """Runs `work(channel)` on each of `size` workers; an error of Unisono counts as its answer."""

    def one(channel: Collectives) -> Any:
        try:
            return work(channel)
        except UnisonoError as error:
            return error

    with concurrent.futures.ThreadPoolExecutor(size) as pool:
        return list(pool.map(one, loopback.group(size, timeout=20.0)))


def names(size: int) -> Sequence[str]:
    return [f"worker {rank}" for rank in range(size)]
