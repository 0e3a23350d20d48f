"""Fails a test that leaves something behind; `leaks.py` says what counts."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import leaks
import pytest


def pytest_configure(config: pytest.Config) -> None:
    os.environ[leaks.SESSION] = str(os.getpid())
    # What one process has compiled, the others need not compile again.
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        os.environ["JAX_COMPILATION_CACHE_DIR"] = cache = tempfile.mkdtemp(prefix="unisono-tests-jax-")
        os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
        os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
        config.add_cleanup(lambda: shutil.rmtree(cache, ignore_errors=True))
    # Programs of tests run for less time than XLA takes to make them fast.
    os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true")
    # Of the processes that tests start; see `sitecustomize.py` there.
    folders = [str(Path(__file__).parent / "lean"), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(folders)


@pytest.fixture(autouse=True)
def leaves_nothing_behind() -> Iterator[None]:
    """Compares what exists before and after each test."""
    before = leaks.belongings()
    yield
    found = leaks.leaks(before)
    assert not found, "the test left behind:\n" + "\n".join(found)
