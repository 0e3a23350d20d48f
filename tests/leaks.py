"""What a test leaves behind: processes, threads, listening sockets, variables, shared memory."""

from __future__ import annotations

import os
import re
import resource
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

# Every process that a test starts inherits this variable, so that it is found even after its parent has gone.
SESSION = "UNISONO_TEST_SESSION"

GRACE_SECONDS = 3.0
"""How long what is just ending may take; a leak is what is there afterwards."""

THREADS_OF_OTHERS = re.compile(
    r"^(pytest_timeout .*"  # pytest-timeout, when it watches with a thread
    r"|asyncio_\d+"  # default executor of an event loop, kept by Python
    r")$"
)

# Set by the frameworks themselves when they are imported.
VARIABLES_OF_OTHERS = re.compile(r"^(PYTEST_CURRENT_TEST|KMP_\w+|TF2_BEHAVIOR|TPU_\w+|CUDA_MODULE_LOADING)$")


@dataclass(frozen=True)
class Belongings:
    """What exists at one moment."""

    variables: dict[str, str]
    threads: frozenset[threading.Thread]
    pids: frozenset[int]
    listening: frozenset[tuple[str, int]]
    shared_memory: frozenset[str]
    seconds_of_children: float


def belongings() -> Belongings:
    return Belongings(
        variables=_own_variables(),
        threads=frozenset(threading.enumerate()),
        pids=frozenset(psutil.pids()),
        listening=frozenset(_listening()),
        shared_memory=frozenset(str(path) for path in Path("/dev/shm").glob("mpich*")),
        seconds_of_children=_seconds_of_children(),
    )


def _own_variables() -> dict[str, str]:
    return {name: text for name, text in os.environ.items() if not VARIABLES_OF_OTHERS.match(name)}


def _seconds_of_children() -> float:
    """Returns the processor time of child processes that have ended: it grows if a test had some."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _listening() -> Iterator[tuple[str, int]]:
    for connection in psutil.Process().net_connections(kind="inet"):
        if connection.status == psutil.CONN_LISTEN:
            yield connection.laddr.ip, connection.laddr.port


def _is_ours(process: psutil.Process) -> bool:
    """Says whether a test started the process, or one that a test started did.

    A child without an environment is one just started: it gets it a moment after `exec`, when its starter goes on
    already.
    """
    environment = process.environ()
    return environment.get(SESSION) == str(os.getpid()) or (not environment and process.ppid() == os.getpid())


def _processes(before: Belongings) -> list[str]:
    found = []
    for pid in frozenset(psutil.pids()) - before.pids:
        try:
            process = psutil.Process(pid)
            if process.status() == psutil.STATUS_ZOMBIE:
                if process.ppid() == os.getpid():
                    found.append(f"{pid}: has ended but was not waited for")
            elif _is_ours(process):
                command = " ".join(process.cmdline())
                # The helper of multiprocessing that outlives its users by design.
                if "multiprocessing.resource_tracker" not in command:
                    found.append(f"{pid} ({process.status()}): {command}")
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def _shared_memory(before: Belongings) -> list[str]:
    """Finds new files that no process uses, after a test that had child processes.

    Those of another job on this machine are in use, unless that job is just being killed.
    """
    if _seconds_of_children() == before.seconds_of_children:
        return []
    new = {str(path) for path in Path("/dev/shm").glob("mpich*")} - before.shared_memory
    for maps in Path("/proc").glob("[0-9]*/maps") if new else ():
        try:
            text = maps.read_text(errors="replace")
        except OSError:
            continue
        new = {path for path in new if path not in text}
    return sorted(new)


def _variables(before: Belongings) -> list[str]:
    after = _own_variables()
    return sorted(n for n in before.variables.keys() | after.keys() if before.variables.get(n) != after.get(n))


LEAKS: dict[str, Callable[[Belongings], list[str]]] = {
    "processes": _processes,
    "threads": lambda before: [
        thread.name
        for thread in frozenset(threading.enumerate()) - before.threads
        if thread.is_alive() and not THREADS_OF_OTHERS.match(thread.name)
    ],
    "listening sockets": lambda before: [f"{ip}:{port}" for ip, port in frozenset(_listening()) - before.listening],
    "environment variables": _variables,
    "shared memory": _shared_memory,
}


def leaks(before: Belongings, grace_seconds: float = GRACE_SECONDS) -> list[str]:
    """Returns what was not there before, at once if it is nothing, else after the grace."""
    end = time.monotonic() + grace_seconds
    while found := [f"{kind}: {what}" for kind, find in LEAKS.items() for what in find(before)]:
        if time.monotonic() > end:
            return found
        time.sleep(0.05)
    return []
