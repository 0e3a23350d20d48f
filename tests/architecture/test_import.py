"""Importing the package is free of engines and fast."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

ENGINES = {
    "keras",
    "tensorflow",
    "jax",
    "jaxlib",
    "torch",
    "mpi4py",
    "tf_keras",
    "grain",
    "pandas",
    "sklearn",
    "pyarrow",
    "fsspec",
    "google",
}


def loaded_by(statement: str) -> tuple[set[str], float]:
    """Runs a statement in a fresh interpreter; returns the top-level modules it loads and its CPU seconds."""
    code = (
        "import json, sys, time\n"
        "before = set(sys.modules); began = time.process_time()\n"
        f"{statement}\n"
        "spent = time.process_time() - began\n"
        "print(json.dumps([sorted({name.split('.')[0] for name in set(sys.modules) - before}), spent]))"
    )
    output = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60)
    modules, seconds = json.loads(output.stdout.splitlines()[-1])
    return set(modules), seconds


@pytest.mark.parametrize("statement", ["import unisono", "import unisono.cli", "import unisono.__main__"])
def test_no_engine_is_loaded(statement: str) -> None:
    modules, _ = loaded_by(statement)
    assert "unisono" in modules
    assert not modules & ENGINES


def test_import_takes_less_than_a_tenth_of_a_second() -> None:
    _, seconds = loaded_by("import unisono")
    assert seconds < 0.1


def test_import_leaves_the_environment_alone() -> None:
    loaded_by("import os; found = dict(os.environ); import unisono; assert dict(os.environ) == found")
