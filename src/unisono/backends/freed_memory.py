"""How the C library deals with the memory of large arrays that were freed.

A training step takes and frees the same large arrays each time. The GNU C library gives them back to the system soon,
and to get that memory again costs a page fault and the clearing of a page for each 4 KiB: up to a tenth of a small
CNN's step on torch, a fifth and more of it on JAX, which takes what a compiled step needs as one array. TensorFlow
keeps its memory by itself.

An array above 32 MiB, the largest threshold that the library accepts, has pages of its own unless the heap has room
for it. Room is made by letting the heap grow once by memory that nobody touches: no page stands behind it before an
array needs it, and what finds no room goes the old way. All this is about the main thread; the heaps of other threads
hold 64 MiB at most.
"""

from __future__ import annotations

import ctypes

from unisono import env, log

LARGE = 32 << 20
"""Bytes from which on an array does not lie in the heap."""

ROOM = 128 << 20
"""Bytes of untouched memory in which large arrays can lie all the same."""

_KEPT = 128 << 20

# Names of mallopt(3), and what stands for the last of them unless somebody sets it.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -3, -4
_DEFAULT_MMAP_MAX = 65_536

_OF_USER = ("MALLOC_MMAP_MAX_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_")
_TUNABLES = ("glibc.malloc.mmap_max", "glibc.malloc.mmap_threshold", "glibc.malloc.trim_threshold")


def keep(*, room: int = 0) -> bool:
    """Lets arrays take the memory of those freed before them, unless the user has told the C library what to do.

    Args:
        room: Bytes of room for arrays above `LARGE`. It pays where few such arrays come and go; many of different
            sizes leave holes in it.

    Returns:
        Whether that holds from now on; False with another C library than GNU's.
    """
    if chosen := chosen_by_user():
        log.once("memory", f"the memory of freed arrays is handled as {chosen} says")
        return False
    library = ctypes.CDLL(None)
    if not hasattr(library, "gnu_get_libc_version"):
        return False
    settings = {_TRIM_THRESHOLD: _KEPT + room, _MMAP_THRESHOLD: LARGE}
    kept = all(library.mallopt(name, value) == 1 for name, value in settings.items())
    if kept:
        if room:
            _make(room, library)
        log.once(
            "memory",
            f"up to {_KEPT + room >> 20} MiB of freed arrays is kept for the next step, as getting memory from the "
            f"system takes time; set {_OF_USER[-1]} to decide yourself",
        )
    return kept


def _make(room: int, library: ctypes.CDLL) -> None:
    library.malloc.argtypes, library.malloc.restype = [ctypes.c_size_t], ctypes.c_void_p
    library.free.argtypes, library.free.restype = [ctypes.c_void_p], None
    library.mallopt(_MMAP_MAX, 0)
    try:
        # Where the system refuses, there is nothing to free, and large arrays go the old way.
        library.free(library.malloc(room))
    finally:
        library.mallopt(_MMAP_MAX, _DEFAULT_MMAP_MAX)


def chosen_by_user() -> str | None:
    """Returns the environment variable by which the user has decided about freed memory; None if there is none."""
    tunables = env.read("GLIBC_TUNABLES") or ""
    if any(name in tunables for name in _TUNABLES):
        return "GLIBC_TUNABLES"
    return next((name for name in _OF_USER if env.read(name) is not None), None)
