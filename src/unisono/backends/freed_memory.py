"""How the C library deals with the memory of large arrays that were freed.

A training step takes and frees the same large arrays each time. The GNU C library gives them back to the system soon,
and to get that memory again costs a page fault and the clearing of a page for each 4 KiB: up to a tenth of a small
CNN's step on torch. TensorFlow keeps its memory by itself. JAX takes what a compiled step needs as one array, mostly
above 32 MiB; such arrays are always given back, as the library cannot be told otherwise without holes in its heap
that cost hundreds of megabytes.
"""

from __future__ import annotations

import ctypes

from unisono import env, log

_SETTINGS = {-1: 128 << 20, -3: 32 << 20}
"""M_TRIM_THRESHOLD, free memory at the end of the heap that is kept, and M_MMAP_THRESHOLD, size of arrays from which on
they do not lie in the heap, of mallopt(3), in bytes."""

_OF_USER = ("MALLOC_MMAP_MAX_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_")
_TUNABLES = ("glibc.malloc.mmap_max", "glibc.malloc.mmap_threshold", "glibc.malloc.trim_threshold")


def keep() -> bool:
    """Lets arrays take the memory of those freed before them, unless the user has told the C library what to do.

    Returns:
        Whether that holds from now on; False with another C library than GNU's.
    """
    if chosen := chosen_by_user():
        log.once("memory", f"the memory of freed arrays is handled as {chosen} says")
        return False
    library = ctypes.CDLL(None)
    if not hasattr(library, "gnu_get_libc_version"):
        return False
    kept = all(library.mallopt(name, value) == 1 for name, value in _SETTINGS.items())
    if kept:
        log.once(
            "memory",
            "up to 128 MiB of freed arrays is kept for the next step, as getting memory from the system takes time; "
            f"set {_OF_USER[-1]} to decide yourself",
        )
    return kept


def chosen_by_user() -> str | None:
    """Returns the environment variable by which the user has decided about freed memory; None if there is none."""
    tunables = env.read("GLIBC_TUNABLES") or ""
    if any(name in tunables for name in _TUNABLES):
        return "GLIBC_TUNABLES"
    return next((name for name in _OF_USER if env.read(name) is not None), None)
