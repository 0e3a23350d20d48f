"""Processes that a worker starts inherit its environment and its memory, but not its part in the job."""

from __future__ import annotations

import os

from unisono import env
from unisono.cluster.spec import Cluster
from unisono.control import identity
from unisono.errors import ConfigurationError

_NAME = "UNISONO_JOINED"


def mark(cluster: Cluster, generation: int) -> None:
    """Tells processes that this one starts that it is a worker, and which.

    Args:
        cluster: Who is in the job.
        generation: How often the job has been restarted.
    """
    env.export({_NAME: f"{os.getpid()} {_part(cluster, generation)}"})


def unmark() -> None:
    """Takes back what `mark` has told, for the job is over: what is started now may begin another."""
    env.remove(_NAME)


def refuse_twin(cluster: Cluster, generation: int) -> None:
    """Refuses a process that would join the job as the very worker that has started it.

    Raises:
        ConfigurationError: If it would.
    """
    pid = holder(env.read(_NAME), cluster, generation, os.getpid(), os.getppid())
    if pid is None or not _runs(pid):
        return
    raise ConfigurationError(
        f"This process was started by worker {cluster.rank} (process {pid}) of the same job and describes the same "
        f"worker: {cluster.source} says that it is {cluster.name_of(cluster.rank)} of {cluster.size}.",
        remedy='make the strategy under `if __name__ == "__main__":`, or take TF_CONFIG out of the environment of '
        "processes that shall train alone.",
        rank=cluster.rank,
    )


def holder(told: str | None, cluster: Cluster, generation: int, pid: int, parent: int) -> int | None:
    """Returns which process is already the worker that this one would be, or None.

    Args:
        told: What `mark` has left in the environment, if anything.
        cluster: What this process would join, and as which worker.
        generation: How often the job has been restarted.
        pid: This process. A program that it has become by `exec` is the same worker.
        parent: The process that has started it.
    """
    first, _, part = (told or "").partition(" ")
    if part != _part(cluster, generation) or not first.isdecimal() or int(first) == pid:
        return None
    # Without addresses one job of a launcher looks like another, such as one that a worker starts by `mpiexec`.
    return int(first) if cluster.addresses or int(first) == parent else None


def forked(rank: int, pid: int) -> ConfigurationError:
    """Returns the error of a process that was forked from a worker and uses its strategy.

    Args:
        rank: The worker.
        pid: Its process.
    """
    return ConfigurationError(
        f"This process was forked from worker {rank} (process {pid}); only the worker itself can exchange anything "
        "with the others.",
        remedy="use the strategy in the process that made it; processes that load data have no need of it.",
        rank=rank,
    )


def _part(cluster: Cluster, generation: int) -> str:
    return f"{identity.fingerprint(cluster)} {cluster.rank} {generation}"


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
