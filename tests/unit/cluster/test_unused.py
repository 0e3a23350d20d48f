"""A launcher that was seen but is not used is named; one that is used is not."""

from __future__ import annotations

import pytest

from unisono.cluster import mpi, tf_config, unused
from unisono.cluster.spec import ALONE, Cluster

TWO = '{"cluster": {"worker": ["h:1", "h:2"]}, "task": {"type": "worker", "index": 1}}'


@pytest.mark.parametrize(
    ("name", "text", "count"),
    [
        ("SLURM_NTASKS", "4", 4),
        ("SLURM_STEP_NUM_TASKS", "4", 4),
        ("WORLD_SIZE", "2", 2),
        ("PMI_SIZE", "2", 2),
        ("HOROVOD_SIZE", "8", 8),
        ("SM_HOSTS", '["algo-1", "algo-2"]', 2),
        ("CLUSTER_SPEC", '{"cluster": {"workerpool0": ["a:1"], "workerpool1": ["b:1", "c:1"]}}', 3),
        ("TF_CLUSTER_DEF", '{"worker": ["a:1", "b:1"]}', 2),
    ],
)
def test_named_with_what_to_do(name: str, text: str, count: int) -> None:
    (warning,) = unused.warnings({name: text}, ALONE)
    assert warning.startswith(f"{name}=")
    for part in ("ALONE", f"{count} separate copies", "unisono run", f"unset {name}"):
        assert part in warning


@pytest.mark.parametrize(
    "environ",
    [{}, {"WORLD_SIZE": "1"}, {"SLURM_NTASKS": ""}, {"WORLD_SIZE": "many"}, {"SM_HOSTS": "[1"}, {"SM_HOSTS": '["a"]'}],
)
def test_nothing_to_say(environ: dict[str, str]) -> None:
    assert unused.warnings(environ, ALONE) == []


def test_nothing_to_say_when_there_is_a_cluster() -> None:
    assert unused.warnings({"SLURM_NTASKS": "2", "WORLD_SIZE": "2"}, tf_config.parse(TWO)) == []
    hydra = {"PMI_RANK": "0", "PMI_SIZE": "2", "PMI_FD": "9"}
    cluster = mpi.resolve(hydra)
    assert isinstance(cluster, Cluster)
    assert unused.warnings(hydra, cluster) == []


def test_one_tf_config_under_mpiexec() -> None:
    assert unused.warnings({"PMI_RANK": "1", "PMI_SIZE": "2"}, tf_config.parse(TWO)) == []
    (warning,) = unused.warnings({"PMI_RANK": "0", "PMI_SIZE": "2"}, tf_config.parse(TWO))
    assert "worker 1 of 2" in warning
    assert "PMI_RANK=0" in warning


def test_an_evaluator_is_not_a_copy() -> None:
    evaluator = tf_config.parse(TWO.replace('"type": "worker"', '"type": "evaluator"'))
    assert unused.warnings({"SLURM_NTASKS": "3", "PMI_SIZE": "3"}, evaluator) == []
