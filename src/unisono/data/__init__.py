"""WHICH examples are mine: one source for every kind of input `fit` takes.

Public names, loaded on first use:

    AutoShardPolicy   how the workers share data that lies in files
    text_lines, csv, tfrecord, parquet
                      data sets that lie in files, for `fit` on any backend
    FileDataset       what these four return
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unisono.data.file_dataset import FileDataset, csv, parquet, text_lines, tfrecord
    from unisono.data.policy import AutoShardPolicy

_HOMES = {
    "AutoShardPolicy": "unisono.data.policy",
    "FileDataset": "unisono.data.file_dataset",
    "csv": "unisono.data.file_dataset",
    "parquet": "unisono.data.file_dataset",
    "text_lines": "unisono.data.file_dataset",
    "tfrecord": "unisono.data.file_dataset",
}

__all__ = ["AutoShardPolicy", "FileDataset", "csv", "parquet", "text_lines", "tfrecord"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'unisono.data' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
