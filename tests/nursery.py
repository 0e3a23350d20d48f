"""Starts Python processes that have imported Keras and TensorFlow, which takes a fresh one longer than most tests.

A nursery imports them once and does nothing else; on JAX and torch, too, `tf.data` and Keras's own file functions
import TensorFlow sooner or later. Each process that a test asks for is a copy of it, made by `fork` before any
framework has begun to work, that runs a script to its end.

Usage: python nursery.py, with orders on standard input; see `Nursery`.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import gc
import json
import os
import runpy
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

START_SECONDS = 240.0
PR_SET_PDEATHSIG = 1


@dataclasses.dataclass(frozen=True)
class Order:
    """A script to run.

    Args:
        argv: Its path and arguments.
        env: All its environment. What frameworks read when they are imported must be right in the nursery's too.
        cwd: Folder to run it in.
        stdout: File to print to.
        stderr: The same for standard error.
        cores: Cores to run on; all if None.
    """

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    stdout: str
    stderr: str
    cores: Sequence[int] | None = None


class Nursery:
    """The side that asks for processes.

    Args:
        env: Environment in which the frameworks are imported.
    """

    def __init__(self, env: Mapping[str, str]) -> None:
        self._ended: dict[int, int] = {}
        # Unbuffered, so that `select` tells all that there is to read.
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            env=dict(env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._to, self._from = self._process.stdin, self._process.stdout
        self._hear("ready")

    def start(self, order: Order) -> Child:
        """Runs a script in a new process and session."""
        self._to.write(json.dumps(dataclasses.asdict(order)).encode() + b"\n")
        return Child(self._hear("started"), self._returncode)

    def close(self) -> None:
        """Ends the nursery, and what it has started."""
        with contextlib.suppress(BrokenPipeError):
            self._to.close()
        self._process.wait(timeout=60)
        self._from.close()

    def _returncode(self, pid: int) -> int | None:
        while pid not in self._ended and self._has_said(0):
            self._listen()
        return self._ended.get(pid)

    def _hear(self, word: str) -> int:
        deadline = time.monotonic() + START_SECONDS
        while self._has_said(deadline - time.monotonic()):
            said, number = self._listen()
            if said == word:
                return number
        raise TimeoutError(f"the nursery has not said {word!r} for {START_SECONDS:g} s")

    def _has_said(self, seconds: float) -> bool:
        return bool(select.select([self._from], [], [], max(0.0, seconds))[0])

    def _listen(self) -> tuple[str, int]:
        line = self._from.readline().split()
        if not line:
            raise RuntimeError("the nursery has ended")
        word, pid, *code = line
        if code:
            self._ended[int(pid)] = int(code[0])
        return word.decode(), int(pid)


@dataclasses.dataclass(frozen=True)
class Child:
    """A process that a nursery has started, in the manner of `subprocess.Popen`.

    Args:
        pid: Its number.
        find: Returns the exit status of the process with a number, or None.
    """

    pid: int
    find: Callable[[int], int | None]

    def poll(self) -> int | None:
        """Returns its exit status, negative for the signal that ended it, or None while it runs."""
        return self.find(self.pid)

    def wait(self, timeout: float) -> int:
        """Returns its exit status as soon as there is one."""
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise TimeoutError(f"process {self.pid} has not ended for {timeout:g} s")
            time.sleep(0.01)
        return code


def main() -> None:
    import keras  # noqa: F401
    import tensorflow  # noqa: F401

    # What a copy does not touch, it need not copy: neither while it works nor when it ends.
    gc.freeze()
    order = _await_order()
    if order is not None:
        runpy.run_path(order.argv[0], run_name="__main__")


def _await_order() -> Order | None:
    """Obeys orders until there are no more; returns one in the process that shall carry it out."""
    ended, note = os.pipe()
    os.set_blocking(note, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(note, warn_on_full_buffer=False)
    _say("ready", 0)
    while True:
        readable, _, _ = select.select([0, ended], [], [])
        if ended in readable:
            os.read(ended, 4096)
            _reap()
        if 0 in readable:
            # One at a time: the next order is given when this one has been answered.
            line = sys.stdin.buffer.readline()
            if not line:
                return None
            order = Order(**json.loads(line))
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                os.close(ended)
                os.close(note)
                _become(order)
                return order
            _say("started", pid)


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            _say("ended", pid, os.waitstatus_to_exitcode(status))


def _say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def _become(order: Order) -> None:
    """Gives this process what a new one would have been given."""
    # A test session that is killed, or gives up a script, takes its processes with it.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.setsid()
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    for number, path, how in ((0, os.devnull, os.O_RDONLY), (1, order.stdout, flags), (2, order.stderr, flags)):
        opened = os.open(path, how, 0o644)
        os.dup2(opened, number)
        os.close(opened)
    os.chdir(order.cwd)
    os.environ.clear()
    os.environ.update(order.env)
    # Found out from the environment once, perhaps by the nursery already.
    tempfile.tempdir = None
    if order.cores is not None:
        os.sched_setaffinity(0, order.cores)
    sys.argv[:] = order.argv
    folders = [str(Path(order.argv[0]).parent), *order.env.get("PYTHONPATH", "").split(os.pathsep)]
    sys.path[:0] = [folder for folder in folders if folder and folder not in sys.path]


if __name__ == "__main__":
    main()
