"""What the tests over cases compare, and how closely."""

from __future__ import annotations

import math
from typing import Any

import pytest


def near(value: Any, tolerance: float = 1e-4) -> Any:
    """Returns what is equal to numbers, or a flat list or dict of them, up to float rounding."""
    return pytest.approx(value, rel=tolerance, abs=tolerance / 10, nan_ok=True)


def flat(values: Any) -> list[float]:
    """Returns the numbers of nested lists in order."""
    return [number for each in values for number in flat(each)] if isinstance(values, list) else [values]


def same_history(found: dict[str, list[float]], right: dict[str, list[float]], tolerance: float = 1e-4) -> None:
    """Compares keys in their order, lengths and values."""
    assert list(found) == list(right)
    for key, values in right.items():
        assert found[key] == near(values, tolerance), key


def same(found: dict[str, Any], right: dict[str, Any], tolerance: float = 1e-4) -> None:
    """Compares what `outcome` reported: history, epochs, weight and number of updates."""
    same_history(found["history"], right["history"], tolerance)
    assert found["epochs"] == right["epochs"]
    assert found["weight"] == near(right["weight"], tolerance)
    assert not math.isnan(found["weight"])
    assert found["iterations"] == right["iterations"]
