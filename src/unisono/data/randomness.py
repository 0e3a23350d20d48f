"""One stream of random numbers for the user's own Python code that all workers run.

A generator or a `PyDataset` that shuffles with `random`, `numpy.random` or `torch` without a seed would give every
worker another order. So such code runs with the chief's state of these global generators: all workers see what
the chief would have seen alone, and a script that sets its seeds sees what it would see in one process.
"""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from unisono.data.base import Agreement


class SharedRandomness:
    """The chief's stream, continued from use to use.

    Args:
        size: Number of workers; nothing is shared, and nothing is done, for one.
        agreement: Brings the chief's state to all, once, on first use.
    """

    def __init__(self, size: int, agreement: Agreement) -> None:
        self._size = size
        self._agreement = agreement
        self._state: Any = None

    def begin(self) -> None:
        """Agrees on the state if that has not happened; collective the first time."""
        if self._size > 1 and self._state is None:
            self._state = self._agreement.from_chief(_capture())

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        """Runs a block with the shared stream in place of this process's own; collective the first time."""
        if self._size == 1:
            yield
            return
        self.begin()
        own = _capture()
        _restore(self._state)
        try:
            yield
        finally:
            self._state = _capture()
            _restore(own)


@contextlib.contextmanager
def preserved() -> Iterator[None]:
    """Undoes what a block does to the global random generators."""
    own = _capture()
    try:
        yield
    finally:
        _restore(own)


def _capture() -> tuple[Any, Any, Any]:
    torch = sys.modules.get("torch")
    return (
        random.getstate(),
        np.random.get_state(legacy=False),
        None if torch is None else torch.get_rng_state().numpy(),
    )


def _restore(state: tuple[Any, Any, Any]) -> None:
    python, numpy, torch_bytes = state
    random.setstate(python)
    np.random.set_state(numpy)
    torch = sys.modules.get("torch")
    if torch is not None and torch_bytes is not None:
        torch.set_rng_state(torch.from_numpy(np.array(torch_bytes)))
