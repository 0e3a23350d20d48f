"""What becomes of the memory of freed arrays: whether the user has decided, and whether pages are kept."""

import os
import subprocess
import sys

import pytest

from unisono.backends import freed_memory

FAULTS = """
import ctypes, resource, sys
import numpy as np
from unisono.backends import freed_memory
PR_SET_THP_DISABLE = 41  # One page of 2 MiB would count as one fault.
ctypes.CDLL(None).prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)
how, count, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
if how == "keep":
    assert freed_memory.keep()
if how == "make room":
    assert freed_memory.keep(room=freed_memory.ROOM)
def take():
    arrays = [np.ones(size, np.uint8) for _ in range(count)]
for _ in range(3):
    take()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    take()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how: str, count: int, size: int) -> int:
    """Returns the page faults of taking and freeing the same arrays ten times, in a process of its own."""
    environ = {name: text for name, text in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    done = subprocess.run(
        [sys.executable, "-c", FAULTS, how, str(count), str(size)],
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return int(done.stdout)


def test_memory_that_was_freed_is_taken_again_without_page_faults():
    # More than the library keeps by itself: twice its largest array.
    count, size, pages = 8, 8 << 20, 64 << 20 >> 12
    assert faults("keep", count, size) < pages / 10
    assert faults("as it is", count, size) > pages


def test_a_large_array_takes_memory_again_where_room_was_made():
    count, size, pages = 1, freed_memory.LARGE + (16 << 20), 48 << 20 >> 12
    assert faults("make room", count, size) < pages / 10
    assert faults("keep", count, size) > pages


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
