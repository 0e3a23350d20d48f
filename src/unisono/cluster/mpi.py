"""Processes started by an MPI launcher, recognised by its variables alone: asking must not start MPI."""

from __future__ import annotations

from collections.abc import Mapping

from unisono import env
from unisono.cluster.spec import Cluster, Declined, Task
from unisono.errors import ClusterError

_REMEDY = (
    "start with the mpiexec of MPICH that is installed beside this Python (`python -m pip show -f mpich` lists it), "
    "or on one machine with `unisono run -n N script.py`, or set TF_CONFIG."
)


def resolve(environ: Mapping[str, str]) -> Cluster | Declined:
    """Returns the cluster of the MPI launcher that started this process, or why there is none.

    MPICH's and Intel's mpiexec (hydra) tell a process its rank, the number of processes, and a connection to
    themselves, over which MPI finds the other workers; addresses are therefore not known here.

    Args:
        environ: The environment to look in.

    Raises:
        ClusterError: If the launcher belongs to another MPI, or its variables contradict each other.
    """
    if env.read("PMI_FD", environ) is None and env.read("PMI_PORT", environ) is None:
        return _without_connection(environ)
    if env.read("PMI_SIZE", environ) is None or env.read("PMI_RANK", environ) is None:
        raise ClusterError(
            "An MPI launcher started this process (PMI_PORT is set) but did not say its rank: "
            "PMI_RANK or PMI_SIZE is missing.",
            remedy="start mpiexec without -pmi-port.",
        )
    size, rank = _number("PMI_SIZE", environ), _number("PMI_RANK", environ)
    if rank >= size:
        raise ClusterError(
            f"PMI_RANK={rank} does not fit PMI_SIZE={size}: ranks go from 0 to {size - 1}.",
            remedy="leave both variables to mpiexec; unset them if a shell or a parent process left them behind.",
        )
    return Cluster(
        tasks=tuple(Task("worker", i) for i in range(size)),
        addresses=(),
        rank=rank,
        source="mpiexec (PMI_RANK, PMI_SIZE)",
        bootstrap="pmi" if size > 1 else "none",
    )


def _without_connection(environ: Mapping[str, str]) -> Declined:
    """Returns why no launcher is recognised; refuses Open MPI's, whose processes would each train alone."""
    if env.read("OMPI_COMM_WORLD_SIZE", environ) is not None:
        size = _number("OMPI_COMM_WORLD_SIZE", environ)
        if size > 1:
            raise ClusterError(
                f"Open MPI's launcher started this process (OMPI_COMM_WORLD_SIZE={size}), but the MPI library "
                "here is MPICH, which cannot join it.",
                remedy=_REMEDY,
            )
        return Declined("Open MPI started one process only")
    if env.read("PMI_SIZE", environ) is not None:
        return Declined("PMI_SIZE is set, but there is no connection to a launcher (PMI_FD)")
    return Declined("PMI_FD is not set: no mpiexec started this process")


def _number(name: str, environ: Mapping[str, str]) -> int:
    text = env.read(name, environ) or ""
    least = 0 if name.endswith("RANK") else 1
    if not (text.isascii() and text.isdecimal() and int(text) >= least):
        raise ClusterError(
            f"{name}={text!r} is not a number from {least}.",
            remedy=f"leave {name} to the launcher; unset it if a shell or a parent process left it behind.",
        )
    return int(text)
