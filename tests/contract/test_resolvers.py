"""What every way to describe a cluster must give: the same values, whoever was asked."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from unisono.cluster import resolve, tf_config
from unisono.cluster.resolver import ClusterResolver
from unisono.cluster.spec import Cluster


def _addresses(size: int) -> list[str]:
    return [f"h{i}:1000" for i in range(size)]


def by_tf_config(rank: int, size: int) -> Cluster:
    config = {"cluster": {"worker": _addresses(size)}, "task": {"type": "worker", "index": rank}}
    return resolve.decide({"TF_CONFIG": json.dumps(config)}).cluster


def by_tf_config_with_chief(rank: int, size: int) -> Cluster:
    task = {"type": "worker", "index": rank - 1} if rank else {"type": "chief", "index": 0}
    jobs = {"worker": _addresses(size)[1:], "chief": _addresses(size)[:1]}
    return resolve.decide({"TF_CONFIG": json.dumps({"cluster": jobs, "task": task})}).cluster


def by_mpiexec(rank: int, size: int) -> Cluster:
    return resolve.decide({"PMI_RANK": str(rank), "PMI_SIZE": str(size), "PMI_FD": "9"}).cluster


def by_own_resolver(rank: int, size: int) -> Cluster:
    class Mine:
        task_type = "worker"
        task_id = rank

        def cluster_spec(self) -> dict[str, list[str]]:
            return {"worker": _addresses(size)}

    return resolve.decide({}, Mine()).cluster


def by_our_resolver(rank: int, size: int) -> Cluster:
    return resolve.decide({}, ClusterResolver(by_tf_config(rank, size))).cluster


def by_tensorflow_resolver(rank: int, size: int) -> Cluster:
    tf = pytest.importorskip("tensorflow")
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec({"worker": _addresses(size)}), task_type="worker", task_id=rank
    )
    return resolve.decide({}, resolver).cluster


WAYS = [
    by_tf_config,
    by_tf_config_with_chief,
    by_mpiexec,
    by_own_resolver,
    by_our_resolver,
    by_tensorflow_resolver,
]

pytestmark = pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)

Way = Callable[[int, int], Cluster]


@pytest.mark.parametrize(("rank", "size"), [(0, 2), (1, 2), (2, 4)])
def test_rank_and_size(way: Way, rank: int, size: int) -> None:
    cluster = way(rank, size)
    assert (cluster.rank, cluster.size, cluster.is_evaluator) == (rank, size, False)
    assert cluster.bootstrap in ("coordinator", "pmi")
    assert cluster.source
    assert len(cluster.tasks) == size


@pytest.mark.parametrize("size", [2, 3])
def test_addresses_in_the_order_of_ranks(way: Way, size: int) -> None:
    for rank in range(size):
        addresses = [str(address) for address in way(rank, size).addresses]
        assert addresses == (_addresses(size) if way(rank, size).bootstrap == "coordinator" else [])


def test_one_worker_needs_no_meeting(way: Way) -> None:
    cluster = way(0, 1)
    assert (cluster.rank, cluster.size, cluster.bootstrap) == (0, 1, "none")


def test_every_process_sees_the_same_workers(way: Way) -> None:
    assert len({way(rank, 3).tasks for rank in range(3)}) == 1


def test_the_description_survives_tf_config(way: Way) -> None:
    cluster = way(1, 3)
    if cluster.bootstrap == "coordinator":
        read = tf_config.parse(tf_config.write(cluster))
        assert (read.tasks, read.addresses, read.rank) == (cluster.tasks, cluster.addresses, 1)


def test_the_resolver_face_names_this_process(way: Way) -> None:
    face = ClusterResolver(way(1, 3))
    tasks = face.cluster_spec().as_dict()
    assert 0 <= face.task_id < len(tasks[face.task_type])
    assert sum(len(addresses) for addresses in tasks.values()) == 3
