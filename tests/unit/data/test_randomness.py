"""One state of the global random generators on all workers."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch

from unisono.data import randomness


def drawn() -> list[float]:
    return [random.random(), np.random.rand(), np.random.randn(), torch.rand(()).item()]


def test_a_worker_draws_what_the_chief_draws():
    said: list[Any] = []
    with randomness.preserved():
        randomness.seeded(1)
        np.random.randn()  # leaves a second number of its pair behind
        randomness.take_over(lambda state: said.append(state) or state)
        chiefs = drawn()
        randomness.seeded(2)
        assert drawn() != chiefs
        randomness.take_over(lambda _: said[0])
        assert drawn() == chiefs
