"""The side of a measured process: pinned before anything heavy is imported, then told what to do line by line."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from typing import Any

_PR_SET_PDEATHSIG = 1


class Orders:
    """What this process is, what it is told, and the way back.

    Args:
        spec: The values that its starter gave.
        answers: File descriptor for answers; standard output belongs to the frameworks.
    """

    def __init__(self, spec: dict[str, Any], answers: int) -> None:
        self.spec = spec
        self._answers = answers

    def answer(self, **values: Any) -> None:
        os.write(self._answers, json.dumps(values).encode() + b"\n")

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Waits for orders without using the processor; ends when the starter closes the line, or dies."""
        while line := sys.stdin.readline():
            yield json.loads(line)


def begin() -> Orders:
    """Takes the place this process was given: its cores, and an end together with its starter."""
    spec = json.loads(sys.argv[1])
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    os.set_inheritable(spec["answers"], False)
    os.sched_setaffinity(0, spec["cores"])
    return Orders(spec, spec["answers"])


def now() -> float:
    """Returns seconds of a clock that all processes of this machine share."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)


def one_thread(backend: str) -> None:
    """Has torch compute with one thread; the others go by the cores they may use."""
    if backend == "torch":
        import torch

        torch.set_num_threads(1)


def epoch_clock(keras: Any) -> Any:
    """Returns a callback whose `seconds` and `loss` are those of the last epoch, without what `fit` does around it.

    Args:
        keras: `keras` or `tf_keras`.
    """

    class Clock(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.began = time.perf_counter()

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.loss = float(logs["loss"])
            self.seconds = time.perf_counter() - self.began

    return Clock()
