"""One worker as a process: started so that it and all it starts can be stopped, and dies with its launcher."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
from collections import deque
from collections.abc import Collection
from pathlib import Path
from typing import IO

from unisono.errors import ConfigurationError
from unisono.launch.output import Assembler
from unisono.launch.plan import WorkerPlan

KEPT_LINES = 1000
"""Lines of standard error that are kept, to be shown again if the worker fails."""

_PR_SET_PDEATHSIG = 1


class Worker:
    """One process: its pipes, and whether it has ended.

    Args:
        plan: How to start it.
    """

    def __init__(self, plan: WorkerPlan) -> None:
        self.rank = plan.rank
        self.words: deque[str] = deque(maxlen=KEPT_LINES)
        self.ended = False
        parent = os.getpid()
        # The name of the function is looked up before the fork: the child must do as little as possible.
        prctl = ctypes.CDLL(None, use_errno=True).prctl

        def prepare() -> None:
            prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
            if os.getppid() != parent:
                os._exit(128 + signal.SIGKILL)
            if plan.cores:
                os.sched_setaffinity(0, plan.cores)

        try:
            self.process = subprocess.Popen(
                plan.argv,
                env=dict(plan.environ),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                # Safe because this process has one thread; the kernel ties the death signal to that thread.
                preexec_fn=prepare,
            )
        except OSError as error:
            raise ConfigurationError(f"Cannot start {plan.argv[0]!r}: {error.strerror}.") from error
        self.streams: dict[IO[bytes], Assembler] = {}
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            os.set_blocking(stream.fileno(), False)
            self.streams[stream] = Assembler()

    def poll(self) -> int | None:
        """Returns the exit code, or minus the signal number, once it has ended.

        The process is left a zombie, so that the number of its group cannot be given to strangers before
        the group has been cleared.
        """
        status = os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if status is None:
            return None
        return status.si_status if status.si_code == os.CLD_EXITED else -status.si_status

    def send(self, signum: int) -> None:
        """Signals the worker; with SIGKILL also all processes of its group."""
        if signum == signal.SIGKILL:
            os.killpg(self.process.pid, signum)
        else:
            os.kill(self.process.pid, signum)


def alive_in(groups: Collection[int]) -> bool:
    """Returns whether a process of one of these process groups still runs; zombies do not."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The name of the program, in parentheses, may itself hold blanks and parentheses.
            state, _, group = path.read_text(errors="replace").rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(group) in groups and state not in ("Z", "X"):
            return True
    return False
