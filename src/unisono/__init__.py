"""Multi-worker training for Keras 3 on TensorFlow, JAX and torch.

A script changes in two places:

    strategy = unisono.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = build_model()
        model.compile(...)
    model.fit(...)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unisono.collectives.options import CommunicationImplementation, CommunicationOptions
    from unisono.errors import (
        ClusterError,
        CollectiveTimeoutError,
        ConfigurationError,
        DataError,
        DivergenceError,
        StartupError,
        UnisonoError,
        WorkerFailedError,
        WorkerLostError,
    )
    from unisono.strategies.collective import all_reduce, broadcast
    from unisono.strategies.mirrored import MultiWorkerMirroredStrategy
    from unisono.strategies.reductions import ReduceOp

__version__ = "0.1.0"

_PACKAGES = ("data",)
"""Packages whose names are public as well, e.g. `unisono.data.AutoShardPolicy`."""

_HOMES = {
    "CommunicationImplementation": "unisono.collectives.options",
    "CommunicationOptions": "unisono.collectives.options",
    "MultiWorkerMirroredStrategy": "unisono.strategies.mirrored",
    "ReduceOp": "unisono.strategies.reductions",
    "all_reduce": "unisono.strategies.collective",
    "broadcast": "unisono.strategies.collective",
    "ClusterError": "unisono.errors",
    "CollectiveTimeoutError": "unisono.errors",
    "ConfigurationError": "unisono.errors",
    "DataError": "unisono.errors",
    "DivergenceError": "unisono.errors",
    "StartupError": "unisono.errors",
    "UnisonoError": "unisono.errors",
    "WorkerFailedError": "unisono.errors",
    "WorkerLostError": "unisono.errors",
}

__all__ = [
    "ClusterError",
    "CollectiveTimeoutError",
    "CommunicationImplementation",
    "CommunicationOptions",
    "ConfigurationError",
    "DataError",
    "DivergenceError",
    "MultiWorkerMirroredStrategy",
    "ReduceOp",
    "StartupError",
    "UnisonoError",
    "WorkerFailedError",
    "WorkerLostError",
    "__version__",
    "all_reduce",
    "broadcast",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    if name in _PACKAGES:
        return importlib.import_module(f"unisono.{name}")
    raise AttributeError(f"module 'unisono' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, *_PACKAGES})
