"""Start workers on this machine, watch them, stop them: nothing is left behind, whatever happens.

One thread and one `select` do it all: pipes become readable, children end (SIGCHLD), signals arrive, deadlines
pass. What to do about it is decided by `Policy`.

Each worker is the leader of a session of its own, so that all it started can be stopped with it; Ctrl-C in the
terminal reaches the launcher alone, which passes it on. When the launcher itself is killed by SIGKILL, the
kernel kills the workers.
"""

from __future__ import annotations

import os
import select
import selectors
import shutil
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import IO, Any

from unisono.clock import Deadline, monotonic
from unisono.errors import ConfigurationError
from unisono.launch.output import Screen
from unisono.launch.plan import WorkerPlan
from unisono.launch.policy import Instruction, Policy, Say, Send
from unisono.launch.report import cause, story
from unisono.launch.worker import Worker, alive_in

LINGER = 5.0
"""Seconds that workers get to end by themselves after another has failed."""

GRACE = 5.0
"""Seconds between asking workers to stop and killing them."""

_STEP = 0.02
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_FOR_WORKERS = (signal.SIGUSR1, signal.SIGUSR2)
_MAY_BE_IGNORED = (signal.SIGHUP, signal.SIGQUIT, *_FOR_WORKERS)


def run(plans: Sequence[WorkerPlan], *, linger: float = LINGER, grace: float = GRACE) -> int:
    """Runs workers until all have ended, and shows their output.

    Must be called in the main thread, which meanwhile takes over SIGCHLD, what ends a process (SIGINT, SIGTERM, SIGHUP,
    SIGQUIT), and SIGUSR1 and SIGUSR2, which are passed on to the workers.

    Args:
        plans: How to start each, by rank.
        linger: Seconds that the others get to end by themselves when one has failed.
        grace: Seconds between asking workers to stop and killing them.

    Returns:
        0, or the exit code of the first failure (128 + number for a signal), or 128 + the number of the signal
        that ended the job.

    Raises:
        ConfigurationError: If this is not Linux, or the program to start cannot be started.
    """
    if not hasattr(os, "waitid") or not hasattr(os, "sched_setaffinity"):
        raise ConfigurationError(
            "`unisono run` needs Linux.", remedy="start each worker by hand, with its TF_CONFIG, in its own terminal."
        )
    supervisor = _Supervisor(plans, Policy(len(plans), linger, grace, monotonic()))
    try:
        return supervisor.run()
    finally:
        supervisor.close()


class _Supervisor:
    """The loop around the workers.

    Args:
        plans: How to start each.
        policy: Decides when they are stopped.
    """

    def __init__(self, plans: Sequence[WorkerPlan], policy: Policy) -> None:
        self._plans = plans
        self._policy = policy
        self._workers: list[Worker] = []
        self._selector = selectors.DefaultSelector()
        self._wakeup, self._wakeup_in = os.pipe()
        for end in (self._wakeup, self._wakeup_in):
            os.set_blocking(end, False)
        self._selector.register(self._wakeup, selectors.EVENT_READ)
        self._handlers: dict[int, Any] = {}
        self._wakeup_before: int | None = None
        self._pipe_broken = False
        width = (lambda: shutil.get_terminal_size().columns) if sys.stdout.isatty() else None
        self._screen = Screen(sys.stdout, sys.stderr, width, monotonic)

    def run(self) -> int:
        """Starts the workers and stays until all have ended; returns the exit code."""
        self._listen_to_signals()
        for plan in self._plans:
            worker = Worker(plan)
            self._workers.append(worker)
            for stream in worker.streams:
                self._selector.register(stream, selectors.EVENT_READ, worker)
        while not self._policy.over:
            at = self._policy.wake_at
            self._turn(None if at is None else max(0.0, at - monotonic()))
            self._obey(self._policy.tick(monotonic()))
        self._clear_groups()
        for worker in self._workers:
            self._drain(worker)
        return self._conclude()

    def close(self) -> None:
        """Kills what is left, reaps all, and gives signals back."""
        for worker in self._workers:
            worker.send(signal.SIGKILL)
            worker.process.wait()
            for stream in worker.streams:
                stream.close()
        if self._wakeup_before is not None:
            signal.set_wakeup_fd(self._wakeup_before)
        for signum, handler in self._handlers.items():
            signal.signal(signum, handler)
        self._selector.close()
        os.close(self._wakeup)
        os.close(self._wakeup_in)

    def _listen_to_signals(self) -> None:
        self._wakeup_before = signal.set_wakeup_fd(self._wakeup_in, warn_on_full_buffer=False)
        for signum in (*_SIGNALS, *_FOR_WORKERS, signal.SIGCHLD):
            # `nohup` works by having SIGHUP ignored; leave it so.
            if not (signum in _MAY_BE_IGNORED and signal.getsignal(signum) == signal.SIG_IGN):
                self._handlers[signum] = signal.signal(signum, _nothing)

    def _turn(self, seconds: float | None) -> None:
        """Waits for events, at most so long, and handles them."""
        for key, _ in self._selector.select(seconds):
            if key.data is None:
                self._wake()
            elif key.fileobj in self._selector.get_map():
                # Still open: `_wake` may have read it to its end since.
                self._guarded(self._read, key.data, key.fileobj)

    def _wake(self) -> None:
        """Handles the signals that arrived, SIGCHLD among them."""
        arrived = set(os.read(self._wakeup, 4096))
        for signum in _SIGNALS:
            if signum in arrived:
                self._obey(self._policy.interrupted(signum, monotonic()))
        for signum in _FOR_WORKERS:
            if signum in arrived:
                self._obey(self._policy.passed_on(signum))
        for worker in self._workers:
            code = None if worker.ended else worker.poll()
            if code is not None:
                worker.ended = True
                self._drain(worker)
                self._obey(self._policy.ended(worker.rank, code, monotonic()))

    def _obey(self, instructions: Sequence[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case Say(text):
                    self._guarded(self._screen.say, [f"[unisono] {text}"])
                case Send(signum, ranks):
                    for rank in ranks:
                        self._workers[rank].send(signum)

    def _read(self, worker: Worker, stream: IO[bytes]) -> bool:
        """Shows what can be read now; returns whether there may be more."""
        assembler = worker.streams[stream]
        try:
            data = os.read(stream.fileno(), 65536)
        except BlockingIOError:
            return False
        if not data:
            self._selector.unregister(stream)
        error = stream is worker.process.stderr
        lines = assembler.feed(data, final=not data)
        if error:
            worker.words.extend(lines)
        self._screen.lines(worker.rank, lines, error=error)
        self._screen.progress(worker.rank, assembler.pending, redrawn=assembler.redrawn, error=error)
        return bool(data)

    def _drain(self, worker: Worker) -> None:
        """Shows all that a worker has written; a child of it may keep the pipe open, so the end is not awaited."""
        for stream in worker.streams:
            while stream in self._selector.get_map() and self._guarded(self._read, worker, stream):
                pass

    def _guarded(self, write: Any, *args: Any) -> Any:
        """Calls what writes to the screen; if nobody reads our output any more, the job ends as with SIGPIPE."""
        try:
            return write(*args)
        except BrokenPipeError:
            # What is still to be written, also by the interpreter at its end, goes nowhere.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            for stream in (sys.stdout, sys.stderr):
                if _has_no_reader(stream.fileno()):
                    os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
            if not self._pipe_broken:
                self._pipe_broken = True
                self._obey(self._policy.interrupted(signal.SIGPIPE, monotonic()))
            return True

    def _clear_groups(self) -> None:
        """Stops what the workers left running: asks, then kills."""
        groups = {worker.process.pid for worker in self._workers}
        if not alive_in(groups):
            return
        for group in groups:
            os.killpg(group, signal.SIGTERM)
        deadline = Deadline.after(self._policy.grace)
        while alive_in(groups) and not deadline.passed:
            self._turn(_STEP)
        for group in groups:
            os.killpg(group, signal.SIGKILL)

    def _conclude(self) -> int:
        failures = self._policy.failures
        if failures:
            words = [list(worker.words) for worker in self._workers]
            first = cause(failures, words)
            self._guarded(self._screen.say, story(first, words[first.rank], self._policy.start))
            return first.exit_code
        return 0 if self._policy.interrupt is None else 128 + self._policy.interrupt


def _nothing(signum: int, frame: FrameType | None) -> None:
    """A handler, so that the signal is written to the wake-up pipe instead of ending this process."""


def _has_no_reader(fd: int) -> bool:
    """Returns whether the other end of a pipe or socket is closed."""
    poll = select.poll()
    poll.register(fd, 0)
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))
