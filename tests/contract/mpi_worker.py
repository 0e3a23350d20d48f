"""What MPI processes of tests have in common: joining, and a watch with a deadline."""

from __future__ import annotations

import os
import socket

from unisono.collectives import mpi
from unisono.errors import CollectiveTimeoutError


class Patience:
    """A watch that waits for some seconds and remembers what it was told."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.waits: list[tuple[str, float]] = []
        self.arrivals: list[tuple[str, int]] = []

    def waiting(self, operation: str, seconds: float) -> None:
        self.waits.append((operation, seconds))
        if seconds > self.seconds:
            raise CollectiveTimeoutError(f"{operation}: waited for {seconds:.1f} s")

    def arrived(self, channel: str, count: int) -> None:
        self.arrivals.append((channel, count))

    def returned(self, channel: str, count: int) -> None:
        self.arrivals.append((channel, count))


def connect(watch: Patience) -> mpi.MpiCollectives:
    """Joins the other processes, however they were started."""
    if "PMI_TEST" not in os.environ:
        return mpi.connect(watch)
    port, rank, size = map(int, os.environ["PMI_TEST"].split())
    connection = socket.create_connection(("127.0.0.1", port), timeout=30)
    connection.settimeout(None)
    connection.sendall(f"{rank}\n".encode())
    return mpi.connect(watch, pmi=(connection.detach(), rank, size))
