"""WHICH examples are mine: one source for every kind of input `fit` takes.

Public names, loaded on first use:

    AutoShardPolicy   how the workers share data that lies in files
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unisono.data.policy import AutoShardPolicy

_HOMES = {
    "AutoShardPolicy": "unisono.data.policy",
}

__all__ = ["AutoShardPolicy"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'unisono.data' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
