"""A user's own resolver object, right and wrong."""

from __future__ import annotations

from typing import Any

import pytest

from unisono.cluster import custom, tf_config
from unisono.cluster.resolver import ClusterResolver
from unisono.errors import ClusterError

JOBS = {"worker": ["h0:1", "h1:1"]}


class Spec:
    def __init__(self, jobs: Any) -> None:
        self._jobs = jobs

    def as_dict(self) -> Any:
        return self._jobs


class Mine:
    def __init__(self, spec: Any, task_type: Any = "worker", task_id: Any = 1) -> None:
        self._spec = spec
        self.task_type = task_type
        self.task_id = task_id

    def cluster_spec(self) -> Any:
        return self._spec


@pytest.mark.parametrize("spec", [JOBS, Spec(JOBS), Spec({"worker": {0: "h0:1", 1: "h1:1"}})])
def test_accepted(spec: Any) -> None:
    cluster = custom.resolve(Mine(spec))
    assert (cluster.rank, cluster.size, cluster.source) == (1, 2, "Mine")


@pytest.mark.parametrize("spec", [{}, None, Spec({})])
def test_empty_is_alone(spec: Any) -> None:
    cluster = custom.resolve(Mine(spec, None, None))
    assert (cluster.size, cluster.bootstrap) == (1, "none")


def test_our_own_is_taken_as_it_is() -> None:
    cluster = tf_config.from_mapping({"cluster": JOBS, "task": {"type": "worker", "index": 0}})
    assert custom.resolve(ClusterResolver(cluster)) is cluster


def test_task_that_is_known_only_after_cluster_spec() -> None:
    class Late:
        task_type: str | None = None
        task_id: int | None = None

        def cluster_spec(self) -> dict[str, list[str]]:
            self.task_type, self.task_id = "worker", 1
            return JOBS

    assert custom.resolve(Late()).rank == 1


class NoTask:
    def cluster_spec(self) -> dict[str, list[str]]:
        return JOBS


@pytest.mark.parametrize(
    ("resolver", "part"),
    [
        (object(), r"object has no method cluster_spec\(\)"),
        ({"cluster": JOBS}, r"dict has no method cluster_spec\(\)"),
        (Mine, "not the class Mine"),
        (NoTask(), "NoTask has no task_type"),
        (Mine(["h0:1"]), r"cluster_spec\(\) of Mine must return"),
        (Mine(JOBS, "worker", None), "Mine lists 2 workers but gives no task index"),
        (Mine(JOBS, "worker", 5), "Mine says that this process is worker 5"),
        (Mine({"ps": ["p:1"]}), "Mine has the role"),
        (Mine({"worker": ["h0"]}), "worker 0 in Mine has no port"),
    ],
)
def test_malformed(resolver: Any, part: str) -> None:
    with pytest.raises(ClusterError, match=part):
        custom.resolve(resolver)
