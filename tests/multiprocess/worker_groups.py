"""Starts groups of worker processes that run many cases one after the other, and always reaps them.

A group is one backend and one world: "plain" (one Keras process that cannot import unisono), "alone"
(unisono without TF_CONFIG) or a cluster of n workers on 127.0.0.1. Start-up is paid once a group; each case
leaves one result a worker. A case that raises or hangs breaks its group (for unisono the job has failed): the
group is ended, its output kept, and a fresh one goes on with the remaining cases.
"""

from __future__ import annotations

import atexit
import dataclasses
import functools
import importlib.util
import json
import os
import signal
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from nursery import Child, Nursery, Order
from ports import free_ports

HERE = Path(__file__).resolve().parent
START_SECONDS = 240.0
CASE_SECONDS = 120.0
LAST_WORDS_SECONDS = 8.0
LONGEST_GROUP_SECONDS = 1200.0
MOST_RESTARTS = 5
TAIL = 4000


@dataclasses.dataclass(frozen=True)
class World:
    """Where cases run.

    Args:
        backend: Keras backend.
        kind: "plain", "alone" or "cluster".
        size: Number of worker processes.
    """

    backend: str
    kind: str
    size: int

    def __str__(self) -> str:
        return f"{self.backend}-{self.size if self.kind == 'cluster' else self.kind}"


@dataclasses.dataclass
class WorkerEnd:
    """How one worker process ended.

    Args:
        returncode: Its exit status; negative for the signal that ended it.
        stdout: All it printed.
        stderr: All it printed on standard error.
        seconds: Time from the start of the group to the end of this worker.
        at: When it ended, in seconds of the monotonic clock, which "at" in results shows too.
        killed: Whether the harness had to end it.
    """

    returncode: int
    stdout: str
    stderr: str
    seconds: float
    at: float
    killed: bool

    def tail(self) -> str:
        return f"exit {self.returncode}{' (ended by the harness)' if self.killed else ''}\n{self.stderr[-TAIL:]}"


@dataclasses.dataclass
class GroupEnd:
    """What a group left behind.

    Args:
        results: By case, then by rank: {"value": ...} or {"error": ..., "traceback": ...}.
        workers: By rank, how the processes of the last (re)start ended.
        broken: By case, why it has no or not all results.
        leftovers: Command lines of processes that outlived their workers.
    """

    results: dict[str, dict[int, dict[str, Any]]]
    workers: dict[int, WorkerEnd]
    broken: dict[str, str]
    leftovers: list[str]


def tf_config(ports: Sequence[int], rank: int) -> str:
    """Returns the TF_CONFIG of one worker."""
    workers = [f"127.0.0.1:{port}" for port in ports]
    return json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}})


def worker_environment(world: World, scratch: Path, marker: str) -> dict[str, str]:
    """Returns the environment of a worker without TF_CONFIG: one thread a worker, nothing of the caller's cluster."""
    dropped = ("TF_CONFIG", "SLURM_", "PMI", "OMPI_", "HYDRA_", "UNISONO_", "KERAS_", "JAX_", "PYTHONPATH")
    compiled = ("JAX_COMPILATION_CACHE_", "JAX_PERSISTENT_CACHE_")
    environment = {n: text for n, text in os.environ.items() if not n.startswith(dropped) or n.startswith(compiled)}
    paths = [str(HERE), str(HERE.parent / "lean")]
    if world.kind != "plain":
        spec = importlib.util.find_spec("unisono")
        assert spec is not None and spec.origin is not None, "unisono is not importable here"
        paths.append(str(Path(spec.origin).parent.parent))
    environment.update(
        PYTHONPATH=os.pathsep.join(paths),
        PYTHONUNBUFFERED="1",
        KERAS_BACKEND=world.backend,
        KERAS_HOME=str(scratch / "keras"),
        JAX_PLATFORMS="cpu",
        CUDA_VISIBLE_DEVICES="",
        TF_CPP_MIN_LOG_LEVEL="2",
        TF_NUM_INTRAOP_THREADS="1",
        TF_NUM_INTEROP_THREADS="1",
        # Workers on JAX that have one thread compute in the thread that asks for it; three hand steps to another.
        OMP_NUM_THREADS="2" if world.backend == "jax" and world.size == 3 else "1",
        UNISONO_TEST_GROUP=marker,
    )
    return environment


@functools.cache
def nursery(backend: str) -> Nursery:
    """Returns the process of this session whose copies are the workers on one backend."""
    folder = tempfile.TemporaryDirectory(prefix=f"nursery-{backend}-")
    found = Nursery(worker_environment(World(backend, "plain", 1), Path(folder.name), "nursery"))
    atexit.register(folder.cleanup)
    atexit.register(found.close)
    return found


class _Start:
    """One start of the processes of a group, for some of its cases."""

    def __init__(
        self,
        world: World,
        cases: Sequence[str],
        scratch: Path,
        *,
        env: Mapping[str, str],
        ranks: Sequence[int],
        options: Mapping[str, Any],
        cores: Sequence[int] | None,
        ports: Sequence[int] | None,
    ) -> None:
        self.world, self.cases, self.scratch, self.ranks = world, list(cases), scratch, list(ranks)
        self.killed: set[int] = set()
        self.ended: dict[int, float] = {}
        self.started = time.monotonic()
        self.marker = f"{scratch.name}-{os.getpid()}-{time.monotonic_ns()}"
        (scratch / "results").mkdir(parents=True, exist_ok=True)
        ports = list(ports) if ports is not None else free_ports(world.size)
        plan = {
            "cases": self.cases,
            "backend": world.backend,
            "kind": world.kind,
            "size": world.size,
            "scratch": str(scratch),
            **options,
        }
        (scratch / "plan.json").write_text(json.dumps(plan))
        self.processes: dict[int, Child] = {}
        for rank in self.ranks:
            environment = worker_environment(world, scratch, self.marker)
            if world.kind == "cluster":
                environment["TF_CONFIG"] = tf_config(ports, rank)
            environment.update(env)
            order = Order(
                argv=(str(HERE / "worker.py"), str(scratch / "plan.json"), str(rank)),
                env=environment,
                cwd=str(scratch),
                stdout=str(scratch / f"stdout.{rank}"),
                stderr=str(scratch / f"stderr.{rank}"),
                cores=cores,
            )
            self.processes[rank] = nursery(world.backend).start(order)

    def result_path(self, case: str, rank: int) -> Path:
        return self.scratch / "results" / f"{case}.{rank}.json"

    def finished(self, case: str) -> list[int]:
        return [rank for rank in self.ranks if self.result_path(case, rank).exists()]

    def watch(self, case_seconds: float, deadline: float) -> None:
        """Waits until all processes ended, or nothing moves any more; then ends what is left."""
        progress, last_move = -1, time.monotonic()
        one_ended_at: float | None = None
        while True:
            now = time.monotonic()
            for rank, process in self.processes.items():
                if rank not in self.ended and (code := process.poll()) is not None:
                    self.ended[rank] = now - self.started
                    if code != 0 and one_ended_at is None:
                        one_ended_at = now
            if len(self.ended) == len(self.processes):
                return
            count = len(list((self.scratch / "results").iterdir()))
            if count != progress:
                progress, last_move = count, now
            patience = case_seconds if progress > 0 else max(case_seconds, START_SECONDS)
            stuck = now - last_move > patience
            alone = one_ended_at is not None and now - one_ended_at > max(LAST_WORDS_SECONDS, case_seconds / 2)
            if stuck or alone or now > deadline:
                break
            time.sleep(0.02)
        self.end()

    def end(self) -> None:
        """Asks every live worker for its stacks, then kills it."""
        alive = [rank for rank, process in self.processes.items() if process.poll() is None]
        for rank in alive:
            os.kill(self.processes[rank].pid, signal.SIGUSR1)
        if alive:
            time.sleep(0.5)
        for rank in alive:
            self.killed.add(rank)
            if self.processes[rank].poll() is None:
                os.killpg(self.processes[rank].pid, signal.SIGKILL)
            self.processes[rank].wait(timeout=60)
            self.ended[rank] = time.monotonic() - self.started

    def leftovers(self, grace: float = 3.0) -> list[str]:
        """Returns the command lines of processes that outlived the workers, and ends them."""
        sessions = {process.pid for process in self.processes.values()}
        deadline = time.monotonic() + grace
        while True:
            left = []
            for process in psutil.process_iter(["pid"]):
                try:
                    ours = process.environ().get("UNISONO_TEST_GROUP") == self.marker
                    if ours or os.getsid(process.pid) in sessions:
                        left.append(process)
                except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess, ProcessLookupError):
                    continue
            if not left:
                return []
            if time.monotonic() > deadline:
                break
            time.sleep(0.05)
        lines = []
        for process in left:
            try:
                lines.append(" ".join(process.cmdline()))
                process.kill()
            except psutil.NoSuchProcess:
                continue
        return lines

    def worker_ends(self) -> dict[int, WorkerEnd]:
        return {
            rank: WorkerEnd(
                returncode=process.wait(timeout=60),
                stdout=(self.scratch / f"stdout.{rank}").read_text(errors="replace"),
                stderr=(self.scratch / f"stderr.{rank}").read_text(errors="replace"),
                seconds=self.ended[rank],
                at=self.started + self.ended[rank],
                killed=rank in self.killed,
            )
            for rank, process in self.processes.items()
        }


def run_group(
    world: World,
    cases: Sequence[str],
    scratch: Path | None = None,
    *,
    env: Mapping[str, str] | None = None,
    ranks: Sequence[int] | None = None,
    case_seconds: float = CASE_SECONDS,
    restarts: int = MOST_RESTARTS,
    cores: Sequence[int] | None = None,
    ports: Sequence[int] | None = None,
    **options: Any,
) -> GroupEnd:
    """Runs cases in one group of processes, in order.

    Args:
        world: Backend and workers.
        cases: Names such as "exact.r01_parity": module of `cases` and function.
        scratch: Folder for everything the group writes; a new one if None.
        env: Variables on top of the usual ones.
        ranks: Workers to start; all if None.
        case_seconds: Longest time without a new result before the group counts as stuck.
        restarts: How often a broken group may be started again for its remaining cases.
        cores: Cores that the workers run on; all if None.
        ports: Ports of TF_CONFIG; free ones if None.
        **options: Further entries of the plan that `worker.py` reads.

    Returns:
        Results and the way all processes ended.
    """
    scratch = scratch or Path(tempfile.mkdtemp(prefix=f"group-{world}-"))
    results: dict[str, dict[int, dict[str, Any]]] = {}
    broken: dict[str, str] = {}
    leftovers: list[str] = []
    remaining = list(cases)
    deadline = time.monotonic() + LONGEST_GROUP_SECONDS
    for attempt in range(restarts + 1):
        start = _Start(
            world,
            remaining,
            scratch / f"start{attempt}",
            env=env or {},
            ranks=range(world.size) if ranks is None else ranks,
            options=options,
            cores=cores,
            ports=ports,
        )
        try:
            start.watch(case_seconds, deadline)
        finally:
            start.end()
            leftovers += start.leftovers()
        workers = start.worker_ends()
        for case in remaining:
            found = {rank: json.loads(start.result_path(case, rank).read_text()) for rank in start.finished(case)}
            if found:
                results[case] = found
        complete = [case for case in remaining if len(start.finished(case)) == len(start.ranks)]
        if len(complete) == len(remaining):
            break
        last = complete[-1] if complete else None
        if last is not None and any(result["fatal"] for result in results[last].values()):
            remaining = remaining[remaining.index(last) + 1 :]
        else:
            culprit = next(case for case in remaining if case not in complete)
            tails = "\n".join(f"--- worker {rank}: {end.tail()}" for rank, end in workers.items())
            seconds = max(end.seconds for end in workers.values())
            broken[culprit] = f"the group ended in it after {seconds:.0f} s\n{tails}"
            remaining = remaining[remaining.index(culprit) + 1 :]
        if not remaining:
            break
        if time.monotonic() > deadline or attempt == restarts:
            why = "time is up" if time.monotonic() > deadline else "the group broke too often"
            broken.update({case: f"not run, because {why}: {sorted(broken)}" for case in remaining})
            break
    return GroupEnd(results=results, workers=workers, broken=broken, leftovers=leftovers)
