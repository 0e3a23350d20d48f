"""Lets test processes start as fast as where one framework is installed.

Keras and TensorFlow import whatever else they find beside them, which takes a process longer than all other work of
most tests. While one of the two is being imported, other frameworks than the backend cannot be; afterwards all can.
Python imports this module when it starts with this folder in PYTHONPATH.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

OPTIONAL = frozenset({"jax", "sklearn", "torch"})
CURIOUS = ("keras", "tensorflow")


class Missing(Loader):
    """Fails to import, as what is not installed does."""

    def exec_module(self, module: ModuleType) -> None:
        """Raises ModuleNotFoundError."""
        raise ModuleNotFoundError(f"No module named {module.__name__!r} while Keras or TensorFlow is imported")


class Hide(MetaPathFinder):
    """Finds what is hidden before others do."""

    def __init__(self, backend: str) -> None:
        self._hidden = OPTIONAL - {backend}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Returns a module that cannot be imported, or None to let others look."""
        if fullname in self._hidden and any(map(_is_being_imported, CURIOUS)):
            return ModuleSpec(fullname, Missing())
        return None


def _is_being_imported(name: str) -> bool:
    return bool(getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", False))


sys.meta_path.insert(0, Hide(os.environ.get("KERAS_BACKEND", "tensorflow")))
