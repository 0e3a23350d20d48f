"""The cluster as scripts written for `tf.distribute` ask for it."""

from __future__ import annotations

from dataclasses import dataclass

from unisono.cluster.spec import Cluster
from unisono.errors import ClusterError


@dataclass(frozen=True)
class ClusterSpec:
    """Addresses by role, with the names of `tf.train.ClusterSpec`.

    Args:
        by_job: Role and "host:port" of each of its tasks; "" where only the MPI launcher knows the address.
    """

    by_job: tuple[tuple[str, tuple[str, ...]], ...]

    def __bool__(self) -> bool:
        return bool(self.by_job)

    @property
    def jobs(self) -> list[str]:
        """Names of the roles."""
        return [job for job, _ in self.by_job]

    def as_dict(self) -> dict[str, list[str]]:
        """Returns the addresses by role."""
        return {job: list(addresses) for job, addresses in self.by_job}

    def num_tasks(self, job_name: str) -> int:
        """Returns the number of tasks of a role."""
        return len(self.job_tasks(job_name))

    def task_indices(self, job_name: str) -> list[int]:
        """Returns the indices of the tasks of a role."""
        return list(range(self.num_tasks(job_name)))

    def task_address(self, job_name: str, task_index: int) -> str:
        """Returns the "host:port" of one task."""
        addresses = self.job_tasks(job_name)
        if not 0 <= task_index < len(addresses):
            raise ClusterError(f"The cluster has {len(addresses)} tasks {job_name!r}; there is no index {task_index}.")
        return addresses[task_index]

    def job_tasks(self, job_name: str) -> list[str]:
        """Returns the "host:port" of all tasks of a role, in order.

        Raises:
            ClusterError: If the cluster has no such role.
        """
        for job, addresses in self.by_job:
            if job == job_name:
                return list(addresses)
        raise ClusterError(f"The cluster has no role {job_name!r}; its roles: {', '.join(self.jobs) or 'none'}.")


@dataclass(frozen=True)
class ClusterResolver:
    """Who is in the job and which of them this process is, with the names of TensorFlow's resolvers.

    Args:
        cluster: What was resolved at start-up; it does not change.
    """

    cluster: Cluster

    @property
    def task_type(self) -> str:
        """Role of this process: "chief", "worker" or "evaluator"."""
        return self.cluster.task.type

    @property
    def task_id(self) -> int:
        """Index of this process within its role."""
        return self.cluster.task.index

    @property
    def rpc_layer(self) -> None:
        """Always None: workers are not reached through TensorFlow's servers."""
        return None

    def cluster_spec(self) -> ClusterSpec:
        """Returns the addresses by role; empty when this process is alone and no cluster was written down."""
        if self.cluster.size == 1 and not self.cluster.addresses:
            return ClusterSpec(())
        by_job: dict[str, list[str]] = {}
        for rank, task in enumerate(self.cluster.tasks):
            address = str(self.cluster.addresses[rank]) if self.cluster.addresses else ""
            by_job.setdefault(task.type, []).append(address)
        if self.cluster.evaluators:
            by_job["evaluator"] = [str(address) for address in self.cluster.evaluators]
        return ClusterSpec(tuple((job, tuple(addresses)) for job, addresses in by_job.items()))

    def master(self, task_type: str | None = None, task_id: int | None = None, rpc_layer: str | None = None) -> str:
        """Returns "", as TensorFlow does where there is no session to connect to."""
        return ""
