"""The environment variables Unisono knows, and their only reader.

`VARIABLES` is the single table: the documentation page is generated from it, and a test fails when code
elsewhere touches `os.environ`. Variables of other programs (launchers, frameworks) that are read or set are
listed too, so that one page tells the whole story.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from unisono.clock import LONGEST_SECONDS, is_duration
from unisono.errors import ConfigurationError


@dataclass(frozen=True)
class Variable:
    """One environment variable.

    Args:
        name: Its name.
        kind: "float", "int", "text" or "flag" (0/1).
        default: Text used when it is unset or empty; None if absence has its own meaning.
        meaning: One or two sentences for the documentation, with the unit.
        owner: "unisono" for our own, else the program whose variable it is.
    """

    name: str
    kind: str
    default: str | None
    meaning: str
    owner: str = "unisono"


VARIABLES: dict[str, Variable] = {
    v.name: v
    for v in (
        Variable(
            "UNISONO_STARTUP_TIMEOUT",
            "float",
            "300",
            "Seconds to wait for all workers to meet before start-up fails and names the missing ones; more than 0, "
            "at most 2000000, as for all that are seconds.",
        ),
        Variable(
            "UNISONO_TIMEOUT",
            "float",
            "600",
            "Seconds to wait in one step for a worker that does not arrive, unless "
            "CommunicationOptions(timeout_seconds=...) says otherwise.",
        ),
        Variable(
            "UNISONO_SILENCE_TIMEOUT",
            "float",
            "120",
            "Seconds after which a worker whose heartbeat is not heard counts as lost although its connection is "
            "open; a log line says so after 10.",
        ),
        Variable(
            "UNISONO_GENERATION",
            "int",
            "0",
            "How often the job has been restarted; a whole number from 0. Workers of different "
            "generations do not meet.",
        ),
        Variable(
            "UNISONO_JOINED",
            "text",
            None,
            "Set by a worker for the processes that it starts: its process, job and rank. One of them that would join "
            "as the same worker is refused.",
        ),
        Variable(
            "UNISONO_LOG_LEVEL",
            "text",
            "info",
            "Least severe level of log lines to show: debug, info, warning or error.",
        ),
        Variable(
            "UNISONO_CHECK_DATA",
            "flag",
            "0",
            "1 counts the examples of each epoch of fit and adds up a hash of each, over all workers: the line is the "
            "same for any number of workers if each example was used once.",
        ),
        Variable(
            "TF_CONFIG",
            "text",
            None,
            "JSON that lists the cluster and says which task this process is.",
            owner="TensorFlow",
        ),
        Variable(
            "FI_TCP_IFACE",
            "text",
            None,
            "Network interface over which MPI connects machines. Unless the user has set it, it becomes the one that "
            "leads to the addresses in the cluster description.",
            owner="libfabric",
        ),
        Variable(
            "PMI_RANK",
            "int",
            None,
            "Rank of this process; read when MPICH's or Intel's mpiexec started it.",
            owner="MPI launcher",
        ),
        Variable(
            "PMI_SIZE",
            "int",
            None,
            "Number of processes that mpiexec started; read together with PMI_RANK.",
            owner="MPI launcher",
        ),
        Variable(
            "PMI_FD",
            "int",
            None,
            "File descriptor over which an MPI process talks to its launcher; its presence says that one is there. "
            "Set, with PMI_RANK and PMI_SIZE, while MPI starts.",
            owner="MPI launcher",
        ),
        Variable(
            "PMI_PORT",
            "text",
            None,
            "Address at which an MPI process finds its launcher; taken for the same sign as PMI_FD.",
            owner="MPI launcher",
        ),
        Variable(
            "MPIR_CVAR_CH4_NETMOD",
            "text",
            "ofi",
            "Network library of MPICH between hosts. Unless the user chose, it is set to ofi (libfabric), with which "
            "workers outlive a peer that was killed.",
            owner="MPICH",
        ),
        Variable(
            "FI_PROVIDER",
            "text",
            "tcp",
            "Transport of libfabric between hosts, set to tcp unless the user chose; verbs is InfiniBand. "
            "FI_TCP_IFACE, FI_TCP_PORT_LOW_RANGE and FI_TCP_PORT_HIGH_RANGE choose the interface and the ports.",
            owner="libfabric",
        ),
        Variable(
            "MPIR_CVAR_CH4_CMA_ENABLE",
            "flag",
            None,
            "Whether MPICH reads the memory of other workers on the host directly, which is fastest. Set to 0 "
            "where the system forbids it, as in many containers; MPICH would fail in the first large exchange.",
            owner="MPICH",
        ),
        Variable(
            "OMPI_COMM_WORLD_SIZE",
            "int",
            None,
            "Number of processes that Open MPI's mpirun started. Read to refuse it with a reason: "
            "the MPI library of this package is MPICH.",
            owner="Open MPI",
        ),
        *(
            Variable(
                name,
                kind,
                None,
                "Read only to warn when this process trains alone although several were started.",
                owner,
            )
            for name, kind, owner in (
                ("SLURM_STEP_NUM_TASKS", "int", "Slurm"),
                ("SLURM_NTASKS", "int", "Slurm"),
                ("WORLD_SIZE", "int", "torchrun"),
                ("HOROVOD_SIZE", "int", "horovodrun"),
                ("JAX_NUM_PROCESSES", "int", "JAX"),
                ("SM_HOSTS", "text", "SageMaker"),
                ("CLUSTER_SPEC", "text", "Vertex AI"),
                ("TF_CLUSTER_DEF", "text", "XLearning"),
            )
        ),
        Variable(
            "MKL_NUM_THREADS",
            "int",
            None,
            "Threads of Intel's MKL; when the user has set it, `unisono run` does not share out the cores.",
            owner="MKL",
        ),
        Variable(
            "OPENBLAS_NUM_THREADS",
            "int",
            None,
            "Threads of OpenBLAS; when the user has set it, `unisono run` does not share out the cores.",
            owner="OpenBLAS",
        ),
        Variable(
            "OMP_NUM_THREADS",
            "int",
            None,
            "Threads of numpy and torch. `unisono run` sets it to 1 when workers outnumber the cores and none is tied "
            "to one; when the user has set it, `unisono run` does not share out the cores.",
            owner="OpenMP",
        ),
        Variable(
            "TF_NUM_INTRAOP_THREADS",
            "int",
            None,
            "Threads within one TensorFlow operation; treated as OMP_NUM_THREADS.",
            owner="TensorFlow",
        ),
        Variable(
            "TF_NUM_INTEROP_THREADS",
            "int",
            None,
            "TensorFlow operations that run at once; when the user has set it, `unisono run` does not share out "
            "the cores.",
            owner="TensorFlow",
        ),
        Variable(
            "PJRT_NPROC",
            "int",
            None,
            "Threads of JAX's CPU pool. `unisono run` sets it to 3 for a worker with fewer cores, because a host "
            "callback on a large array never returns when the pool has one thread.",
            owner="JAX",
        ),
        *(
            Variable(
                name,
                kind,
                None,
                "When the user has set it for the memory of freed arrays, training on torch and JAX leaves that memory "
                "to the C library; otherwise up to 128 MiB (torch) or 256 MiB (JAX with one core or thread) is kept "
                "for the next step.",
                owner="GNU C library",
            )
            for name, kind in (
                ("MALLOC_MMAP_MAX_", "int"),
                ("MALLOC_MMAP_THRESHOLD_", "int"),
                ("MALLOC_TRIM_THRESHOLD_", "int"),
                ("GLIBC_TUNABLES", "text"),
            )
        ),
        Variable(
            "PYTHONUNBUFFERED",
            "flag",
            None,
            "`unisono run` sets it to 1, so that the output of workers appears as it is written.",
            owner="Python",
        ),
    )
}


def read(name: str, environ: Mapping[str, str] | None = None) -> str | None:
    """Returns the text of a variable from the table, or its default.

    Args:
        name: A name in `VARIABLES`.
        environ: Where to look; the process's environment if None.

    Returns:
        The text with surrounding blanks removed; the default when unset or empty.

    Raises:
        KeyError: If the name is not in the table (a mistake in this package).
    """
    variable = VARIABLES[name]
    text = (os.environ if environ is None else environ).get(name, "").strip()
    return text or variable.default


def read_seconds(name: str, environ: Mapping[str, str] | None = None) -> float:
    """Returns a variable that says how long to wait; see `read`.

    Raises:
        ConfigurationError: If the text is not a number of seconds that one can wait.
    """
    text = read(name, environ) or ""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not is_duration(seconds):
        raise ConfigurationError(
            f"{name}={text!r} is not a number of seconds above 0, at most {LONGEST_SECONDS:.0f}.",
            remedy=f"set it to how many seconds to wait, or unset it for {VARIABLES[name].default}.",
        )
    return seconds


def read_count(name: str, environ: Mapping[str, str] | None = None) -> int:
    """Returns a variable that counts something; see `read`.

    Raises:
        ConfigurationError: If the text is not a whole number of 0 or more.
    """
    text = read(name, environ) or ""
    if not (text.isascii() and text.isdecimal()):
        raise ConfigurationError(
            f"{name}={text!r} is not a whole number from 0.",
            remedy=f"set {name} to a whole number, or unset it for {VARIABLES[name].default}.",
        )
    return int(text)


def read_flag(name: str, environ: Mapping[str, str] | None = None) -> bool:
    """Returns whether a variable is set to 1.

    Args:
        name: A flag of `VARIABLES`.
        environ: Where to look; this process's environment if None.

    Raises:
        ConfigurationError: If it is neither 0 nor 1.
    """
    text = read(name, environ)
    if text not in ("0", "1"):
        raise ConfigurationError(f"{name}={text!r} is neither 0 nor 1.", remedy=f"set {name}=1 or unset it.")
    return text == "1"


def snapshot() -> dict[str, str]:
    """Returns a copy of the whole environment, for resolvers and for child processes."""
    return dict(os.environ)


def export(values: Mapping[str, str], *, overwrite: bool = True) -> None:
    """Sets variables of this process, for libraries that can be told in no other way.

    Args:
        values: Names and texts.
        overwrite: Whether a value the user has set gives way.
    """
    for name, text in values.items():
        if overwrite or name not in os.environ:
            os.environ[name] = text


def remove(name: str) -> None:
    """Takes a variable out of the environment of this process.

    Args:
        name: Its name; it need not be set.
    """
    os.environ.pop(name, None)


@contextmanager
def exported(values: Mapping[str, str]) -> Iterator[None]:
    """Sets variables of this process inside a `with` block; afterwards they are as they were before.

    Args:
        values: Names and texts.
    """
    before = {name: os.environ.get(name) for name in values}
    export(values)
    try:
        yield
    finally:
        for name, text in before.items():
            if text is None:
                remove(name)
            else:
                os.environ[name] = text
