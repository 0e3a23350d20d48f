"""Fails a test that leaves something behind; `leaks.py` says what counts."""

from __future__ import annotations

import os
from collections.abc import Iterator

import leaks
import pytest


def pytest_configure(config: pytest.Config) -> None:
    os.environ[leaks.SESSION] = str(os.getpid())


@pytest.fixture(autouse=True)
def leaves_nothing_behind() -> Iterator[None]:
    """Compares what exists before and after each test."""
    before = leaks.belongings()
    yield
    found = leaks.leaks(before)
    assert not found, "the test left behind:\n" + "\n".join(found)
