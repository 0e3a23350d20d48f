"""Starts MPI processes in the two ways there are: under mpiexec, and as plain processes with a PMI server."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from unisono.control.pmi import Space

_LAUNCHER = ("PMI_", "MPIR_CVAR_CH4_NETMOD", "FI_PROVIDER", "HYDRA", "HYDI")


@dataclass(frozen=True)
class End:
    """How a process ended: exit status, what it printed on both streams, seconds from the start of all."""

    returncode: int
    output: str
    seconds: float


def environment() -> dict[str, str]:
    kept = {name: text for name, text in os.environ.items() if not name.startswith(_LAUNCHER)}
    return {**kept, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "OMP_NUM_THREADS": "1"}


def under_mpiexec(size: int, script: Path, *arguments: str, seconds: float = 150) -> End:
    """Runs a script as `size` processes of an MPI launcher."""
    mpiexec = shutil.which("mpiexec", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    assert mpiexec is not None, "mpiexec of the mpich package is missing"
    began = time.monotonic()
    command = [mpiexec, "-n", str(size), sys.executable, str(script), *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=seconds, env=environment())
    return End(ended.returncode, ended.stdout + ended.stderr, time.monotonic() - began)


def plain(places: Sequence[str], script: Path, *arguments: str, seconds: float = 60) -> list[End]:
    """Runs a script as plain processes; equal places share memory, others talk over TCP.

    The script finds the address of the PMI server, its rank and the size in PMI_TEST="port rank size". A process
    that is still there at the end of `seconds` is killed.
    """
    size = len(places)
    processes: list[subprocess.Popen[str]] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(seconds)
        began = time.monotonic()
        try:
            for rank in range(size):
                variables = {**environment(), "PMI_TEST": f"{listener.getsockname()[1]} {rank} {size}"}
                processes.append(
                    subprocess.Popen(
                        [sys.executable, str(script), *arguments],
                        stdout=subprocess.PIPE,
                        stderr=subprocess.STDOUT,
                        text=True,
                        env=variables,
                    )
                )
            server = _Server(listener, Space(size, f"test_{uuid.uuid4().hex}", places), size)
            ends = _wait(processes, began, seconds)
        finally:
            for process in processes:
                process.kill()
                process.wait()
                assert process.stdout is not None
                process.stdout.close()
    server.join()
    return ends


def _wait(processes: list[subprocess.Popen[str]], began: float, seconds: float) -> list[End]:
    """Collects output and end of all processes, each from a thread of its own."""
    ends: dict[int, End] = {}

    def collect(rank: int, process: subprocess.Popen[str]) -> None:
        try:
            output, _ = process.communicate(timeout=max(0.1, seconds - (time.monotonic() - began)))
        except subprocess.TimeoutExpired:
            process.kill()
            output = process.communicate()[0] + "\n(killed by the test: it did not end)"
        ends[rank] = End(process.returncode, output, time.monotonic() - began)

    threads = [threading.Thread(target=collect, args=item) for item in enumerate(processes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [ends[rank] for rank in range(len(processes))]


class _Server:
    """Answers the PMI requests of all processes until they are gone."""

    def __init__(self, listener: socket.socket, space: Space, size: int) -> None:
        self._space = space
        self._lock = threading.Lock()
        self._sockets: dict[int, socket.socket] = {}
        self._threads = [threading.Thread(target=self._serve, args=(listener.accept()[0],)) for _ in range(size)]
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        for thread in self._threads:
            thread.join(10)
            assert not thread.is_alive()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("r", encoding="utf-8") as lines:
            rank = int(lines.readline())
            with self._lock:
                self._sockets[rank] = connection
            try:
                for line in lines:
                    with self._lock:
                        for reply in self._space.handle(rank, line.rstrip("\n")):
                            self._sockets[reply.rank].sendall(f"{reply.line}\n".encode())
            except ConnectionError:
                # The process was killed; its end is what the test looks at.
                return
