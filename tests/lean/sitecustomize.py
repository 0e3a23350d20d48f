"""Lets test processes start as fast as where one framework is installed.

Keras and TensorFlow import whatever else they find beside them, which takes a process longer than all other work of
most tests. While one of the two is being imported, other frameworks than the backend cannot be; afterwards all can.
Python imports this module when it starts with this folder in PYTHONPATH.
"""

from __future__ import annotations

import atexit
import gc
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

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Returns a module that cannot be imported, or None to let others look."""
        # A script may choose its backend just before it imports Keras.
        if fullname not in OPTIONAL or fullname == os.environ.get("KERAS_BACKEND"):
            return None
        return ModuleSpec(fullname, Missing()) if any(map(_is_being_imported, CURIOUS)) else None


def _is_being_imported(name: str) -> bool:
    return bool(getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", False))


sys.meta_path.insert(0, Hide())
# Runs last: the end of a process then spends no seconds on taking apart all that was imported.
atexit.register(gc.freeze)
