"""One stream of random numbers for the user's own Python code that all workers run.

A generator or a `PyDataset` that shuffles with `random`, `numpy.random` or `torch` without a seed would give every
worker another order. So such code runs with the chief's state of these global generators: all workers see what
the chief would have seen alone, and a script that sets its seeds sees what it would see in one process.
"""

from __future__ import annotations

import contextlib
import ctypes
import pickle
import random
import sys
from collections.abc import Callable, Iterator
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
        self._python: Any = None
        self._numpy: _NumpyStream | None = None
        self._torch: Any = None

    def begin(self) -> None:
        """Agrees on the state if that has not happened; collective the first time."""
        if self._size > 1 and self._numpy is None:
            numpy = np.random.get_bit_generator(), np.random.get_state(legacy=False)  # type: ignore[attr-defined]
            # Pickled here, as the chief needs copies of its own generators too.
            chief = self._agreement.from_chief(pickle.dumps((random.getstate(), numpy, _torch_state())))
            self._python, numpy, self._torch = pickle.loads(chief)
            self._numpy = _NumpyStream(*numpy)

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        """Runs a block with the shared stream in place of this process's own; collective the first time."""
        self.begin()
        if self._numpy is None:
            yield
            return
        python, torch = random.getstate(), _torch_state()
        random.setstate(self._python)
        _set_torch_state(self._torch)
        try:
            with self._numpy.in_place():
                yield
        finally:
            self._python, self._torch = random.getstate(), _torch_state()
            random.setstate(python)
            _set_torch_state(torch)


@contextlib.contextmanager
def preserved() -> Iterator[None]:
    """Undoes what a block does to the global random generators."""
    python, numpy, torch = random.getstate(), np.random.get_state(legacy=False), _torch_state()
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        _set_torch_state(torch)


def seeded(seed: int) -> None:
    """Seeds the global random generators."""
    random.seed(seed)
    np.random.seed(seed)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(seed)


def take_over(from_chief: Callable[[Any], Any]) -> None:
    """Gives the global random generators of this process the chief's state; a collective call.

    Args:
        from_chief: Returns the chief's value on all workers.
    """
    numpy = np.random.get_state(legacy=False)
    python, state, torch = from_chief((random.getstate(), numpy, _torch_state()))
    random.setstate(python)
    if state["bit_generator"] != numpy["bit_generator"]:
        np.random.set_bit_generator(getattr(np.random, state["bit_generator"])())  # type: ignore[attr-defined]
    np.random.set_state(state)
    _set_torch_state(torch)


class _NumpyStream:
    """A stand-in for NumPy's global generator.

    The generator is exchanged as an object: reading and writing its state would cost more than many a batch. What
    the exchange forgets, the second normal number of a pair, is kept for the stand-in only.

    Args:
        generator: What the numbers come from.
        state: `numpy.random.get_state(legacy=False)`, for that second number.
    """

    def __init__(self, generator: Any, state: dict[str, Any]) -> None:
        self._generator = generator
        self._pending = state if state["has_gauss"] else None

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """Runs a block with this stream as the global one."""
        own = np.random.get_bit_generator()  # type: ignore[attr-defined]
        np.random.set_bit_generator(self._generator)  # type: ignore[attr-defined]
        if self._pending is not None:
            np.random.set_state(self._pending)
        before = self._position()
        try:
            yield
        finally:
            # A number left over, or left behind, shows in a generator that has moved.
            if before is None or self._position() != before or self._pending is not None:
                state = np.random.get_state(legacy=False)
                self._pending = state if state["has_gauss"] else None
            np.random.set_bit_generator(own)  # type: ignore[attr-defined]

    def _position(self) -> bytes | None:
        """Returns something that changes whenever a number is drawn; None if only asking the generator can tell."""
        if not isinstance(self._generator, np.random.MT19937):
            return None
        return ctypes.string_at(self._generator.ctypes.state_address, _MT19937_BYTES)


_MT19937_BYTES = 625 * 4
"""624 words and a position."""


def _torch_state() -> np.ndarray | None:
    torch = sys.modules.get("torch")
    return None if torch is None else torch.get_rng_state().numpy()


def _set_torch_state(state: np.ndarray | None) -> None:
    torch = sys.modules.get("torch")
    if torch is not None and state is not None:
        torch.set_rng_state(torch.from_numpy(np.array(state)))
