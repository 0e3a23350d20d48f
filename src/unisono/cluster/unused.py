"""Launchers that were seen but are not used: a job of N processes must not train N copies in silence."""

from __future__ import annotations

import json
from collections.abc import Mapping

from unisono.cluster.spec import Cluster

_USE = "set TF_CONFIG in each process, or start with `mpiexec -n N` or `unisono run -n N`"

COUNTS: tuple[tuple[str, str], ...] = (
    ("SLURM_STEP_NUM_TASKS", "srun"),
    ("SLURM_NTASKS", "Slurm"),
    ("WORLD_SIZE", "torchrun or a like launcher"),
    ("PMI_SIZE", "an MPI launcher without a connection for MPICH"),
    ("HOROVOD_SIZE", "horovodrun"),
    ("JAX_NUM_PROCESSES", "a launcher for JAX"),
)
"""Variables that hold a number of processes, and who sets them."""

LISTS: tuple[tuple[str, str], ...] = (
    ("SM_HOSTS", "SageMaker"),
    ("CLUSTER_SPEC", "Vertex AI"),
    ("TF_CLUSTER_DEF", "XLearning"),
)
"""Variables that hold a JSON list of hosts, or an object of such lists by role, and who sets them."""


def warnings(environ: Mapping[str, str], cluster: Cluster) -> list[str]:
    """Returns a sentence for each launcher whose variables promise more workers than the cluster has.

    Args:
        environ: The environment the cluster was resolved from.
        cluster: What was resolved.

    Returns:
        Sentences that name the variable, say what happens and what to do; empty if all is well.
    """
    if cluster.is_evaluator:
        return []
    if cluster.size > 1:
        return _contradictions(environ, cluster)
    promised = [(name, who, _count(environ.get(name, ""))) for name, who in COUNTS]
    promised += [(name, who, _listed(environ.get(name, ""))) for name, who in LISTS]
    return [
        f"{name}={_short(environ[name])} says that {who} started {count} workers, but this process found no "
        f"cluster it can use ({cluster.source}) and trains ALONE: {count} processes would train {count} separate "
        f"copies. To train together {_USE}; if alone is right, unset {name}."
        for name, who, count in promised
        if count > 1
    ]


def _contradictions(environ: Mapping[str, str], cluster: Cluster) -> list[str]:
    """Returns a warning when mpiexec started several processes that may all hold one and the same TF_CONFIG."""
    size, rank = _count(environ.get("PMI_SIZE", "")), environ.get("PMI_RANK", "").strip()
    if cluster.bootstrap == "pmi" or size < 2 or (size == cluster.size and rank == str(cluster.rank)):
        return []
    return [
        f"{cluster.source} says that this process is worker {cluster.rank} of {cluster.size}, mpiexec says "
        f"PMI_RANK={rank}, PMI_SIZE={size}. {cluster.source} is used. If all processes hold the same TF_CONFIG, "
        "unset it and let mpiexec tell them apart."
    ]


def _count(text: str) -> int:
    """Returns the number that a text holds; 0 if it holds none."""
    text = text.strip()
    return int(text) if text.isascii() and text.isdecimal() else 0


def _listed(text: str) -> int:
    """Returns how many hosts a JSON text lists; 0 if it lists none or is not JSON."""
    try:
        value = json.loads(text)
    except ValueError:
        return 0
    if isinstance(value, dict):
        value = value.get("cluster", value)
    if isinstance(value, dict):
        return sum(len(entry) for entry in value.values() if isinstance(entry, list))
    return len(value) if isinstance(value, list) else 0


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."
