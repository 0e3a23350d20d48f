"""The face of the cluster with TensorFlow's names."""

from __future__ import annotations

import pytest

from unisono.cluster import mpi, tf_config
from unisono.cluster.resolver import ClusterResolver
from unisono.cluster.spec import ALONE, Cluster
from unisono.errors import ClusterError

JOBS = {"chief": ["c:1"], "worker": ["w0:1", "[::1]:2"], "evaluator": ["e:1"]}


def resolver(type_: str, index: int) -> ClusterResolver:
    return ClusterResolver(tf_config.from_mapping({"cluster": JOBS, "task": {"type": type_, "index": index}}))


@pytest.mark.parametrize(("type_", "index"), [("chief", 0), ("worker", 1), ("evaluator", 0)])
def test_roles_are_those_the_user_wrote(type_: str, index: int) -> None:
    face = resolver(type_, index)
    assert (face.task_type, face.task_id) == (type_, index)
    assert face.cluster_spec().as_dict() == JOBS
    assert (face.rpc_layer, face.master()) == (None, "")


def test_cluster_spec() -> None:
    spec = resolver("worker", 0).cluster_spec()
    assert spec
    assert spec.jobs == ["chief", "worker", "evaluator"]
    assert spec.num_tasks("worker") == 2
    assert spec.task_indices("worker") == [0, 1]
    assert spec.job_tasks("worker") == ["w0:1", "[::1]:2"]
    assert spec.task_address("worker", 1) == "[::1]:2"
    assert spec == resolver("chief", 0).cluster_spec()


@pytest.mark.parametrize("index", [-1, 2])
def test_no_such_task(index: int) -> None:
    with pytest.raises(ValueError, match="no index"):
        resolver("worker", 0).cluster_spec().task_address("worker", index)


def test_no_such_role() -> None:
    with pytest.raises(ClusterError, match="no role 'ps'; its roles: chief, worker, evaluator"):
        resolver("worker", 0).cluster_spec().num_tasks("ps")


def test_alone() -> None:
    face = ClusterResolver(ALONE)
    assert (face.task_type, face.task_id) == ("worker", 0)
    assert face.cluster_spec().as_dict() == {}
    assert not face.cluster_spec()


def test_under_an_mpi_launcher_the_number_of_workers_is_known() -> None:
    cluster = mpi.resolve({"PMI_RANK": "1", "PMI_SIZE": "2", "PMI_FD": "9"})
    assert isinstance(cluster, Cluster)
    spec = ClusterResolver(cluster).cluster_spec()
    assert spec.num_tasks("worker") == 2
    assert spec.as_dict() == {"worker": ["", ""]}
