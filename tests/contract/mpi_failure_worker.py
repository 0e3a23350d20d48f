"""One MPI process in which something goes wrong; prints what it saw as JSON lines.

Usage: mpi_failure_worker.py SCENE
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable

import numpy as np
from mpi_worker import Patience, connect

from unisono.collectives.base import Collectives
from unisono.errors import StartupError, UnisonoError, WorkerLostError


class Control(Patience):
    """A watch that says after half a second of waiting that worker 1 is gone, as the control plane would."""

    armed = False

    def waiting(self, operation: str, seconds: float) -> None:
        super().waiting(operation, seconds)
        if self.armed and seconds > 0.5:
            raise WorkerLostError("worker 1 is gone", rank=1)


def tell(**words: object) -> None:
    print(json.dumps(words), flush=True)


def caught(call: Callable[[], object]) -> dict[str, object]:
    began = time.monotonic()
    try:
        call()
    except UnisonoError as error:
        return {"error": type(error).__name__, "text": str(error), "seconds": time.monotonic() - began}
    return {"error": None, "seconds": time.monotonic() - began}


def report_end(channel: Collectives, other: Collectives) -> None:
    """Tells how later calls fare on this channel and on a sibling."""
    tell(later=[caught(channel.barrier), caught(lambda: other.all_reduce(np.ones(1))), caught(channel.close)])


def killed_while_idle(channel: Collectives, other: Collectives) -> None:
    if channel.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    tell(first=caught(lambda: channel.all_reduce(np.ones(1000, np.float32))))
    report_end(channel, other)


def killed_in_an_exchange(channel: Collectives, other: Collectives) -> None:
    """Worker 1 dies while large arrays are on their way."""
    if channel.rank == 1:
        threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()

    def exchange() -> None:
        array = np.ones(3_000_000, np.float32)
        for _ in range(10_000):
            channel.all_reduce(array)

    tell(first=caught(exchange))
    report_end(channel, other)


def killed_while_two_threads_wait(channel: Collectives, other: Collectives) -> None:
    if channel.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    seen: list[dict[str, object]] = []
    thread = threading.Thread(target=lambda: seen.append(caught(other.barrier)))
    thread.start()
    tell(first=caught(channel.barrier))
    thread.join(10)
    tell(thread=seen[0])
    report_end(channel, other)


def raises(channel: Collectives, other: Collectives) -> None:
    """Worker 1 ends with an error of its own; the other stops waiting and ends normally."""
    if channel.rank == 1:
        raise ValueError("own mistake")
    tell(first=caught(channel.barrier))


def never_closes(channel: Collectives, other: Collectives) -> None:
    channel.barrier()
    tell(first={"error": None})


def late_to_close(channel: Collectives, other: Collectives) -> None:
    time.sleep(0.4 * channel.rank)
    tell(first=caught(channel.close))
    tell(again=caught(channel.close), later=[caught(channel.barrier), caught(lambda: other.all_reduce(np.ones(1)))])


def different_sizes(channel: Collectives, other: Collectives) -> None:
    array = np.ones(100 * (1 + channel.rank))
    tell(first=caught(lambda: channel.all_reduce(array)), array=sorted(set(array.tolist())))


def different_dtypes(channel: Collectives, other: Collectives) -> None:
    """The same number of bytes, which MPI could not tell apart anyway."""
    array = np.ones(200, np.float32) if channel.rank else np.ones(100, np.float64)
    tell(first=caught(lambda: channel.all_reduce(array)), array=sorted(set(array.tolist())))


def different_operations(channel: Collectives, other: Collectives) -> None:
    array = np.ones(100)
    call = channel.all_reduce if channel.rank else channel.broadcast
    tell(first=caught(lambda: call(array)), array=sorted(set(array.tolist())))


def adds_up(channel: Collectives, other: Collectives) -> None:
    for size in (1000, 1_000_000):
        array = channel.all_reduce(np.full(size, channel.rank + 1.0))
        assert (array == 3.0).all()
    tell(first={"error": None})
    channel.close()


def told_in_time(channel: Collectives, other: Collectives) -> None:
    """Worker 0 waits for 0.4 s; the watch hears of it."""
    watch.waits.clear()
    watch.arrivals.clear()
    if channel.rank == 1:
        time.sleep(0.4)
    other.all_reduce(np.ones(1))
    other.barrier()
    channel.broadcast(np.ones(1))
    tell(first={"error": None}, waits=watch.waits, arrivals=watch.arrivals)
    channel.close()


def main(scene: str) -> None:
    try:
        channel = connect(watch)
    except StartupError as error:
        tell(first={"error": "StartupError", "text": str(error)})
        return
    other = channel.channel("other")
    channel.barrier()
    watch.armed = scene.startswith("killed") or scene == "raises"
    globals()[scene](channel, other)


watch = Control(30)
main(*sys.argv[1:])
