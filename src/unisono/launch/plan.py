"""What each worker on this machine is started with: pure values, nothing is started here.

How cores are shared. Frameworks size their thread pools for the whole machine, so that N workers would run N
times as many threads as there are cores, and wait for each other. Therefore, unless the user has set threads:

- With at least one core a worker, each worker may run on cores of its own only (CPU affinity). TensorFlow,
  JAX, torch and numpy then size their pools by themselves, and no worker pushes another off its core, which is
  the fastest arrangement. Cores that do not divide evenly go to the first workers, one each: the chief has
  more to do.
- With two or three times as many workers as cores, and so on, each core gets as many workers as any other. The kernel
  would let them wander, and the threads of one worker run on several cores in turns: a small step on TensorFlow then
  takes half as long again.
- With any other number of workers above that of the cores nothing is pinned, because the kernel balances better
  than a fixed plan could, and each worker computes with one thread.
- JAX gets a pool of at least three threads either way: with one, a host callback on a large array never
  returns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from unisono import env
from unisono.cluster import tf_config
from unisono.cluster.spec import Address, Cluster, Task
from unisono.errors import ConfigurationError

USER_THREADS = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "TF_NUM_INTRAOP_THREADS",
    "TF_NUM_INTEROP_THREADS",
)
"""If the user has set one of these, sharing the cores is left to the user."""

LEAST_JAX_THREADS = 3

_LAUNCHER_PREFIXES = ("PMI_", "PMIX_", "OMPI_COMM_WORLD_", "HYDI_", "MPI_LOCAL")
"""Variables of an MPI launcher around `unisono run`; its processes are not our workers."""


@dataclass(frozen=True)
class WorkerPlan:
    """How to start one worker.

    Args:
        rank: Its rank; 0 is the chief.
        argv: The command line.
        environ: Its whole environment.
        cores: The cores it may run on; empty for no restriction.
    """

    rank: int
    argv: tuple[str, ...]
    environ: Mapping[str, str]
    cores: tuple[int, ...]


def plan(
    workers: int,
    argv: Sequence[str],
    ports: Sequence[int],
    cores: Sequence[int],
    environ: Mapping[str, str],
    host: str = "127.0.0.1",
) -> list[WorkerPlan]:
    """Returns how to start each worker of a job on this machine.

    Args:
        workers: How many, at least 1.
        argv: Command line, the same for all.
        ports: A free port for each; workers meet at the first.
        cores: Cores to share out, neighbours side by side.
        environ: Environment to start from.
        host: Address at which the workers meet.

    Raises:
        ConfigurationError: If there is no worker to start, or not one port for each.
    """
    if workers < 1:
        raise ConfigurationError(
            f"A job needs at least one worker. Received: {workers}.", remedy="use for example -n 2."
        )
    if len(ports) != workers:
        raise ConfigurationError(f"{workers} workers need {workers} ports. Received: {list(ports)}.")
    cluster = Cluster(
        tasks=tuple(Task("worker", rank) for rank in range(workers)),
        addresses=tuple(Address(host, port) for port in ports),
        rank=0,
        source="unisono run",
    )
    base = {name: text for name, text in environ.items() if not name.startswith(_LAUNCHER_PREFIXES)}
    base.setdefault("PYTHONUNBUFFERED", "1")
    user_threads = threads_of_user(environ)
    plans = []
    for rank, share in enumerate(shares(workers, cores)):
        mine = dict(base)
        mine["TF_CONFIG"] = tf_config.write(replace(cluster, rank=rank))
        if user_threads:
            share, threads = (), len(cores)
        elif share:
            threads = len(share)
        else:
            threads = 1
            mine |= {"OMP_NUM_THREADS": "1", "TF_NUM_INTRAOP_THREADS": "1"}
        if threads < LEAST_JAX_THREADS:
            mine.setdefault("PJRT_NPROC", str(LEAST_JAX_THREADS))
        plans.append(WorkerPlan(rank, tuple(argv), mine, share))
    return plans


def shares(workers: int, cores: Sequence[int]) -> list[tuple[int, ...]]:
    """Returns the cores of each worker.

    Args:
        workers: How many share.
        cores: The cores to share out.

    Returns:
        For each rank consecutive cores of its own, all of them used. Of more workers than cores, neighbours share one
        if all cores then have the same number of workers; else all are empty.
    """
    if workers > len(cores):
        to_a_core, rest = divmod(workers, len(cores))
        return [() if rest else (cores[rank // to_a_core],) for rank in range(workers)]
    each, more = divmod(len(cores), workers)
    starts = [rank * each + min(rank, more) for rank in range(workers + 1)]
    return [tuple(cores[a:b]) for a, b in pairwise(starts)]


def threads_of_user(environ: Mapping[str, str]) -> str | None:
    """Returns "NAME=value" of the first thread variable the user has set, or None."""
    for name in USER_THREADS:
        text = env.read(name, environ)
        if text is not None:
            return f"{name}={text}"
    return None


def describe(workers: int, cores: Sequence[int], environ: Mapping[str, str]) -> str:
    """Returns one line for the user: how many workers, and how they share the cores.

    Args:
        workers: How many.
        cores: The cores that were shared out.
        environ: The environment the plan was made from.
    """
    who = "1 worker" if workers == 1 else f"{workers} workers"
    user_threads = threads_of_user(environ)
    counts = sorted({len(share) for share in shares(workers, cores)})
    if user_threads:
        how = f"{user_threads} is set, so all may use all {len(cores)} cores"
    elif counts == [0]:
        how = f"sharing {len(cores)} cores, one thread each"
    elif workers > len(cores):
        how = f"{workers // len(cores)} to a core"
    else:
        how = f"{' or '.join(map(str, counts))} core{'s' if counts != [1] else ''}{' each' if workers > 1 else ''}"
    own = "" if user_threads else f" (set {USER_THREADS[0]} to share them yourself)"
    return f"{who} on this machine, {how}{own}."
