"""Processes of an MPI launcher are recognised by variables alone."""

from __future__ import annotations

import sys

import pytest

from unisono.cluster import mpi
from unisono.cluster.spec import Cluster, Declined, Task
from unisono.errors import ClusterError

HYDRA = {"PMI_RANK": "1", "PMI_SIZE": "3", "PMI_FD": "9", "MPI_LOCALNRANKS": "3", "PMI_HOSTNAME": "vm"}


def test_hydra() -> None:
    cluster = mpi.resolve(HYDRA)
    assert isinstance(cluster, Cluster)
    assert (cluster.rank, cluster.size, cluster.addresses, cluster.bootstrap) == (1, 3, (), "pmi")
    assert cluster.task == Task("worker", 1)
    assert cluster.name_of(1) == "worker 1"


def test_one_process_is_alone() -> None:
    cluster = mpi.resolve({**HYDRA, "PMI_SIZE": "1", "PMI_RANK": "0"})
    assert isinstance(cluster, Cluster)
    assert (cluster.size, cluster.bootstrap) == (1, "none")


@pytest.mark.parametrize("environ", [{}, {"PMI_SIZE": "2", "PMI_RANK": "0"}, {"OMPI_COMM_WORLD_SIZE": "1"}])
def test_declines(environ: dict[str, str]) -> None:
    assert isinstance(mpi.resolve(environ), Declined)


def test_open_mpi_is_refused_with_a_remedy() -> None:
    with pytest.raises(ClusterError, match=r"OMPI_COMM_WORLD_SIZE=2.*MPICH[\s\S]*Hint: .*mpiexec"):
        mpi.resolve({"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "0"})


@pytest.mark.parametrize(
    ("changed", "part"),
    [
        ({"PMI_RANK": "3"}, "PMI_RANK=3 does not fit PMI_SIZE=3"),
        ({"PMI_RANK": "-1"}, "PMI_RANK='-1'"),
        ({"PMI_SIZE": "two"}, "PMI_SIZE='two'"),
        ({"PMI_SIZE": "0"}, "PMI_SIZE='0'"),
        ({"PMI_SIZE": ""}, "PMI_RANK or PMI_SIZE is missing"),
    ],
)
def test_contradictions(changed: dict[str, str], part: str) -> None:
    with pytest.raises(ClusterError, match=part):
        mpi.resolve({**HYDRA, **changed})


def test_port_without_rank() -> None:
    with pytest.raises(ClusterError, match="without -pmi-port"):
        mpi.resolve({"PMI_PORT": "vm:43229", "PMI_ID": "1"})


def test_asking_does_not_import_mpi() -> None:
    before = "mpi4py.MPI" in sys.modules
    mpi.resolve(HYDRA)
    assert ("mpi4py.MPI" in sys.modules) == before
