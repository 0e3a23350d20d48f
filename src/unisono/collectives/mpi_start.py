"""Starting and ending MPI in this process: environment, leftovers, order."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from unisono import env
from unisono.errors import ConfigurationError, StartupError

_ASK_EVERY = 0.05
_TRANSPORT = {
    # Survivors of a killed peer keep control over TCP with libfabric; with UCX they crashed.
    "MPIR_CVAR_CH4_NETMOD": "ofi",
    "FI_PROVIDER": "tcp",
}


def start(pmi: tuple[int, int, int] | None, ask: Callable[[float], None]) -> tuple[Any, bool]:
    """Starts MPI; returns when all workers have come.

    Args:
        pmi: File descriptor of the connection to a PMI server, rank and size; None under an MPI launcher.
        ask: Called about every 50 ms with the seconds waited; raises to leave the wait. Not under a launcher, which
            watches over this itself and ends all processes if one dies.

    Returns:
        The module `mpi4py.MPI`, and whether MPI is to be ended here: a launcher wants that of processes it started.
        Without one it would only add a word with the PMI server in the last moment of the process, when that
        server may be gone and MPICH dies of it; nothing that needs ending is left, see `remove_shared_names`.

    Raises:
        ConfigurationError: If MPI has already been ended in this process, or runs without thread support.
    """
    env.export(_TRANSPORT, overwrite=False)
    if not _may_read_memory():
        # MPICH notices only Yama, and fails in the first large operation where a container forbids the call.
        env.export({"MPIR_CVAR_CH4_CMA_ENABLE": "0"}, overwrite=False)
    import mpi4py

    mpi4py.rc.initialize = False
    mpi4py.rc.finalize = False
    from mpi4py import MPI

    if MPI.Is_finalized():
        raise ConfigurationError(
            "MPI was already ended in this process and cannot be started again.",
            remedy="make one strategy a process, and start a new process for a new job.",
        )
    if MPI.Is_initialized():
        if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
            raise ConfigurationError(
                "mpi4py was imported before Unisono and started MPI without support for several threads.",
                remedy='make the strategy first, or set mpi4py.rc.thread_level = "multiple" before that import.',
            )
        return MPI, False
    if pmi is None:
        MPI.Init_thread(MPI.THREAD_MULTIPLE)
    else:
        fd, rank, size = pmi
        # Not for longer: a program that this process starts would take the connection for its own and die of it.
        with env.exported({"PMI_FD": str(fd), "PMI_RANK": str(rank), "PMI_SIZE": str(size)}):
            _init_beside(MPI, ask)
    return MPI, pmi is None


def _init_beside(mpi: Any, ask: Callable[[float], None]) -> None:
    """Runs MPI_Init_thread in a thread of its own and without Python's lock, which mpi4py's own call would hold.

    MPI_Init waits for all workers and cannot be left. If one dies meanwhile, this thread stays behind in it, and
    the error is raised here.
    """
    library = ctypes.CDLL(mpi.__file__)
    code: list[int] = []

    def init() -> None:
        code.append(library.MPI_Init_thread(None, None, mpi.THREAD_MULTIPLE, ctypes.byref(ctypes.c_int())))

    thread = threading.Thread(target=init, name="unisono-mpi-start", daemon=True)
    began = time.monotonic()
    thread.start()
    while thread.is_alive():
        thread.join(_ASK_EVERY)
        try:
            ask(time.monotonic() - began)
        except BaseException:
            remove_shared_names()
            raise
    if code != [0]:
        raise StartupError(f"MPI_Init failed with code {code}.", phase="start-up")


def remove_shared_names() -> None:
    """Removes the names of MPI's shared memory, once every worker of this host has opened it.

    The memory itself lives until the last worker is gone. So nothing is left behind, however a job ends.
    """
    for path in _shared_paths(Path("/proc/self/maps").read_text()):
        Path(path).unlink(missing_ok=True)


def _shared_paths(maps: str) -> set[str]:
    paths = {line.split(maxsplit=5)[-1] for line in maps.splitlines() if "/dev/shm/mpich_" in line}
    return {path for path in paths if not path.endswith(" (deleted)")}


def _may_read_memory() -> bool:
    """Tells whether this process may call process_vm_readv, which containers often forbid."""

    class Span(ctypes.Structure):
        _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))

    source, target = ctypes.create_string_buffer(b"x"), ctypes.create_string_buffer(1)
    here, there = Span(ctypes.addressof(target), 1), Span(ctypes.addressof(source), 1)
    call = ctypes.CDLL(None, use_errno=True).process_vm_readv
    call.restype = ctypes.c_ssize_t
    read = call(os.getpid(), ctypes.byref(here), 1, ctypes.byref(there), 1, ctypes.c_ulong(0))
    return read == 1 and target.raw == source.raw[:1]
