"""What becomes of the memory of freed arrays: whether the user has decided, and whether pages are kept."""

import os
import subprocess
import sys

import pytest

from unisono.backends import freed_memory

FAULTS = """
import resource, sys
import numpy as np
from unisono.backends import freed_memory
if sys.argv[1] == "keep":
    assert freed_memory.keep()
def take():
    # More than the library keeps by itself: twice its largest array.
    arrays = [np.ones(8 << 20, np.uint8) for _ in range(8)]
for _ in range(3):
    take()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    take()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how: str) -> int:
    """Returns the page faults of taking and freeing the same 64 MiB ten times, in a process of its own."""
    environ = {name: text for name, text in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    done = subprocess.run(
        [sys.executable, "-c", FAULTS, how], env=environ, capture_output=True, text=True, timeout=60, check=True
    )
    return int(done.stdout)


def test_memory_that_was_freed_is_taken_again_without_page_faults():
    pages = 64 << 20 >> 12
    assert faults("keep") < pages / 10
    assert faults("as it is") > pages


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("MALLOC_TRIM_THRESHOLD_", "0", "MALLOC_TRIM_THRESHOLD_"),
        ("MALLOC_MMAP_THRESHOLD_", "65536", "MALLOC_MMAP_THRESHOLD_"),
        ("MALLOC_MMAP_MAX_", "0", "MALLOC_MMAP_MAX_"),
        ("MALLOC_ARENA_MAX", "2", None),
        ("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0", None),
        ("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0:glibc.malloc.mmap_max=5", "GLIBC_TUNABLES"),
    ],
)
def test_what_the_user_has_decided_stands(monkeypatch, name, text, found):
    for other in ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_MMAP_MAX_", "GLIBC_TUNABLES"):
        monkeypatch.delenv(other, raising=False)
    monkeypatch.setenv(name, text)
    assert freed_memory.chosen_by_user() == found
    if found:
        assert not freed_memory.keep()
