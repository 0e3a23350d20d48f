"""For which models freed memory is kept on JAX."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")

from unisono.backends import freed_memory, jax_halves
from unisono.backends.base import StepScope


@pytest.mark.parametrize(
    ("inline", "bytes_of_packs", "right"),
    [
        (True, [1 << 20], [freed_memory.ROOM]),
        (True, [1 << 20, freed_memory.LARGE], []),
        (False, [1 << 20], []),
    ],
)
def test_room_is_made_for_small_gradients_on_the_main_thread(
    monkeypatch: pytest.MonkeyPatch, inline: bool, bytes_of_packs: list[int], right: list[int]
) -> None:
    made: list[int] = []
    monkeypatch.setattr(jax_halves, "computes_inline", lambda: inline)
    monkeypatch.setattr(freed_memory, "keep", lambda *, room: made.append(room))
    backend: Any = None
    halves = jax_halves.Halves(backend, None, StepScope(2), [])
    packs = [np.zeros(size, np.uint8) for size in bytes_of_packs]
    monkeypatch.setattr(halves, "_first", lambda *inputs: ({}, packs, [], []))
    monkeypatch.setattr(halves, "_finish", lambda *inputs: ([], [], [], []))
    for _ in range(3):
        halves(([], [], [], []), None, np.ones(4, np.float32))
    assert made == right
