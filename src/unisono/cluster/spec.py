"""Who is in the job: frozen values that check themselves."""

from __future__ import annotations

from dataclasses import dataclass

from unisono.errors import ClusterError


@dataclass(frozen=True)
class Address:
    """Where a worker can be reached.

    Args:
        host: Name or numeric address; IPv6 without brackets.
        port: TCP port, 1 to 65535.
    """

    host: str
    port: int

    def __post_init__(self) -> None:
        if not self.host:
            raise ClusterError(f"An address needs a host name. Received: host={self.host!r}, port={self.port}.")
        if not 1 <= self.port <= 65535:
            raise ClusterError(
                f"Port {self.port} of {self.host!r} is not a TCP port.",
                remedy="give each worker a free port between 1024 and 65535.",
            )

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class Task:
    """The part one process plays.

    Args:
        type: "chief", "worker" or "evaluator".
        index: Counted from 0 within its type.
    """

    type: str
    index: int


@dataclass(frozen=True)
class Cluster:
    """The workers of one job, in the order of their ranks, and which of them this process is.

    Args:
        tasks: Task of each rank; rank 0 is the chief.
        addresses: Address of each rank, or empty when the launcher's own runtime knows them (MPI).
        rank: Rank of this process; 0 for an evaluator, which is not among the workers.
        source: Where the description came from, for messages, e.g. "TF_CONFIG".
        is_evaluator: Whether this process evaluates beside the workers and joins no collective.
        bootstrap: "pmi" when this process belongs to an MPI launcher that is already running, "coordinator"
            when the workers meet at the chief's address, "none" for one worker and for an evaluator.
        evaluators: Addresses of the evaluators that were listed; they are not among the workers.
        evaluator_index: Which evaluator this process is, if it is one.
    """

    tasks: tuple[Task, ...]
    addresses: tuple[Address, ...]
    rank: int
    source: str
    is_evaluator: bool = False
    bootstrap: str = "coordinator"
    evaluators: tuple[Address, ...] = ()
    evaluator_index: int = 0

    @property
    def size(self) -> int:
        """Number of workers."""
        return len(self.tasks)

    @property
    def task(self) -> Task:
        """What this process is."""
        return Task("evaluator", self.evaluator_index) if self.is_evaluator else self.tasks[self.rank]

    def name_of(self, rank: int) -> str:
        """Returns a worker's name for messages, e.g. "worker 1 (10.0.0.7:2222)"."""
        where = f" ({self.addresses[rank]})" if self.addresses else ""
        return f"worker {rank}{where}"


ALONE = Cluster(tasks=(Task("worker", 0),), addresses=(), rank=0, source="no cluster variables", bootstrap="none")
"""One worker: no sockets, no MPI, no child process."""


@dataclass(frozen=True)
class Declined:
    """A resolver's answer when its environment is not there.

    Args:
        reason: Why, in a few words that follow the resolver's name, e.g. "TF_CONFIG is not set".
    """

    reason: str
