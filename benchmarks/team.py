"""Starts the processes of one variant, gives them orders, and ends them whatever happens."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from unisono.launch import plan as launch
from unisono.launch.cores import available

HERE = Path(__file__).resolve().parent
END_SECONDS = 60.0
TAIL = 2500
DROPPED = ("TF_CONFIG", "SLURM_", "PMI", "OMPI_", "HYDRA_", "HYDI_", "UNISONO_", "KERAS_", "JAX_", "XLA_", "PJRT_")


class TeamError(RuntimeError):
    """A process of a team ended, or did not answer in time."""


class Member:
    """One process.

    Args:
        script: File in this folder.
        spec: What the process is told at its start.
        environ: Its whole environment.
        cores: The cores it may use.
    """

    def __init__(self, script: str, spec: Mapping[str, Any], environ: Mapping[str, str], cores: Sequence[int]) -> None:
        self.fd, write = os.pipe()
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115, closed in end()
        told = json.dumps({**spec, "cores": list(cores), "answers": write})
        self.began = time.clock_gettime(time.CLOCK_MONOTONIC)
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / script), told],
            env=dict(environ),
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            pass_fds=(write,),
            start_new_session=True,
        )
        os.close(write)
        self._received = b""

    def order(self, **values: Any) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(values).encode() + b"\n")
            self.process.stdin.flush()

    def receive(self) -> dict[str, Any] | None:
        """Reads what is there; returns an answer once it is whole.

        Raises:
            TeamError: If the process has ended.
        """
        piece = os.read(self.fd, 65536)
        if not piece:
            raise TeamError(f"a process ended without an answer:\n{self.words()}")
        self._received += piece
        line, newline, rest = self._received.partition(b"\n")
        if not newline:
            return None
        self._received = rest
        return json.loads(line)

    def words(self) -> str:
        """Returns the last lines it has printed."""
        self._log.seek(0)
        return self._log.read().decode(errors="replace")[-TAIL:].strip()

    def dismiss(self) -> None:
        """Lets the process come to its end."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()

    def end(self, deadline: float) -> None:
        """Waits for its end, then kills what is left of it and of all it started."""
        # Not reaped before the signal, so that the number of its group cannot belong to strangers by then.
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        while os.waitid(os.P_PID, self.process.pid, flags) is None and time.monotonic() < deadline:
            time.sleep(0.02)
        if os.waitid(os.P_PID, self.process.pid, flags) is None:
            print(f"a process did not end by itself and is killed:\n{self.words()}", file=sys.stderr)
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self.fd)
        self._log.close()


class Team:
    """The processes of one variant.

    Args:
        members: The processes, by rank.
    """

    def __init__(self, members: Sequence[Member]) -> None:
        self.members = list(members)

    def order(self, **values: Any) -> None:
        for member in self.members:
            member.order(**values)

    def answers(self, seconds: float) -> list[dict[str, Any]]:
        """Returns one answer of each member.

        Args:
            seconds: How long to wait.

        Raises:
            TeamError: If a member ended or did not answer in time.
        """
        deadline = time.monotonic() + seconds
        waiting = {member.fd: rank for rank, member in enumerate(self.members)}
        found: dict[int, dict[str, Any]] = {}
        while waiting:
            readable, _, _ = select.select(list(waiting), [], [], max(0.0, deadline - time.monotonic()))
            if not readable:
                missing = sorted(waiting.values())
                words = self.members[missing[0]].words()
                raise TeamError(f"no answer from process {missing} within {seconds:.0f} s:\n{words}")
            for fd in readable:
                answer = self.members[waiting[fd]].receive()
                if answer is not None:
                    found[waiting.pop(fd)] = answer
        return [found[rank] for rank in range(len(self.members))]

    def end(self, patience: float = END_SECONDS) -> None:
        """Ends all members; none is left afterwards."""
        for member in self.members:
            member.dismiss()
        deadline = time.monotonic() + patience
        for member in self.members:
            member.end(deadline)


def two_cores() -> tuple[int, ...]:
    """Returns the cores on which everything is measured."""
    cores = available()[:2]
    if len(cores) < 2:
        raise SystemExit("These measurements need two processor cores; this process may use one.")
    return cores


def environment(backend: str) -> dict[str, str]:
    """Returns the environment of a plain process: this one's, without clusters and settings of threads."""
    dropped = (*DROPPED, *launch.USER_THREADS)
    environ = {name: text for name, text in os.environ.items() if not name.startswith(dropped)}
    return {
        **environ,
        "KERAS_BACKEND": backend,
        "JAX_PLATFORMS": "cpu",
        "CUDA_VISIBLE_DEVICES": "",
        "GLOO_SOCKET_IFNAME": "lo",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "PYTHONUNBUFFERED": "1",
    }


@contextlib.contextmanager
def plain(script: str, spec: Mapping[str, Any], size: int = 1) -> Iterator[Team]:
    """Starts processes that each get one core and know nothing of Unisono.

    Args:
        script: File in this folder.
        spec: What each is told, beside its rank and the ports that all share.
        size: How many.
    """
    ports = free_ports(size)
    environ = environment(spec["backend"])
    cores = two_cores()
    with _started(
        (script, {**spec, "rank": rank, "size": size, "ports": ports}, environ, [cores[rank]]) for rank in range(size)
    ) as team:
        yield team


@contextlib.contextmanager
def workers(script: str, spec: Mapping[str, Any], size: int) -> Iterator[Team]:
    """Starts workers as `unisono run` does: one core each, or all of them on both where there are more than two.

    Args:
        script: File in this folder.
        spec: What each is told.
        size: How many.
    """
    cores = two_cores()
    plans = launch.plan(size, ("python", script), free_ports(size), cores, environment(spec["backend"]))
    with _started(
        (script, {**spec, "rank": each.rank, "size": size}, each.environ, each.cores or cores) for each in plans
    ) as team:
        yield team


@contextlib.contextmanager
def _started(descriptions: Iterator[tuple[str, Mapping[str, Any], Mapping[str, str], Sequence[int]]]) -> Iterator[Team]:
    team = Team([])
    patience = 0.0
    try:
        for description in descriptions:
            team.members.append(Member(*description))
        yield team
        patience = END_SECONDS
    finally:
        team.end(patience)


def free_ports(count: int) -> list[int]:
    """Returns TCP ports of 127.0.0.1 that were free a moment ago."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
