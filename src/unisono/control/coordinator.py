"""How the chief starts the coordinator."""

from __future__ import annotations

import contextlib
import os
import pathlib
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from typing import IO

import unisono
from unisono import env
from unisono.control.membership import Plan
from unisono.control.server import orders
from unisono.control.sockets import listen
from unisono.errors import StartupError

_END_SECONDS = 3.0


@dataclass
class Coordinator:
    """A running coordinator process, child of the chief."""

    port: int
    _process: subprocess.Popen[str]
    _output: IO[str]

    def check(self) -> None:
        """Raises if it has ended, with what it wrote.

        Raises:
            StartupError: If it has.
        """
        if self._process.poll() is not None:
            raise StartupError(
                f"The coordinator, a child process of this worker, ended with code {self._process.returncode}."
                f"{self.output()}",
                rank=0,
                phase="start-up",
            )

    def output(self) -> str:
        """Returns the last lines that it wrote, with a newline in front, or ""."""
        self._output.seek(0)
        lines = self._output.read().strip().splitlines()
        return "\n" + "\n".join(lines[-15:]) if lines else ""

    def wait(self) -> None:
        """Waits until it has ended by itself, but not for long: it may have other workers to serve."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_SECONDS)

    def release(self) -> None:
        """Gives up what this process holds of it; it goes on as long as it is needed."""
        self._process.poll()
        self._output.close()


def start(host: str, port: int, plan: Plan) -> Coordinator:
    """Opens the port and starts the coordinator behind it.

    The port is opened here, so that a port in use is known at once, and nobody who connects early is turned away.

    Args:
        host: Name by which the workers know this machine.
        port: TCP port, or 0 for any free one.
        plan: What the coordinator must know.

    Returns:
        The running coordinator.

    Raises:
        StartupError: If the port cannot be opened.
    """
    doors = listen(host, port)
    try:
        numbers = [door.fileno() for door in doors]
        path = str(pathlib.Path(unisono.__file__).parent.parent)
        environ = env.snapshot()
        environ["PYTHONPATH"] = os.pathsep.join(p for p in (path, environ.get("PYTHONPATH", "")) if p)
        # A session of its own: Ctrl-C and the end of a terminal are for the workers. No pipe is inherited, or
        # whoever reads the chief's output to its end would wait for the coordinator.
        output = tempfile.TemporaryFile(mode="w+", encoding="utf-8", errors="replace")  # noqa: SIM115
        process = subprocess.Popen(
            [sys.executable, "-m", "unisono.control.server"],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            pass_fds=numbers,
            start_new_session=True,
            env=environ,
            cwd="/",
            text=True,
        )
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(orders(plan, numbers, os.getpid()))
            process.stdin.close()
        return Coordinator(doors[0].getsockname()[1], process, output)
    finally:
        for door in doors:
            door.close()
