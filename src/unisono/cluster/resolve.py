"""Which cluster this process belongs to: the first resolver that knows one, with the reasons of the others."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from unisono import log
from unisono.cluster import custom, mpi, tf_config, unused
from unisono.cluster.spec import ALONE, Cluster, Declined

Resolver = Callable[[Mapping[str, str]], Cluster | Declined]

RESOLVERS: tuple[tuple[str, Resolver], ...] = (
    ("TF_CONFIG", tf_config.resolve),
    ("MPI launcher", mpi.resolve),
)
"""In the order in which they are asked: what a user wrote by hand comes before what a launcher left."""


@dataclass(frozen=True)
class Decision:
    """The cluster that was found, and how.

    Args:
        cluster: Who is in the job.
        reasons: One line for each resolver that was asked, with its answer.
        warnings: Launchers that were seen but are not used.
    """

    cluster: Cluster
    reasons: tuple[str, ...]
    warnings: tuple[str, ...]


def decide(environ: Mapping[str, str], resolver: object | None = None) -> Decision:
    """Returns the cluster of an environment; reads the mapping and nothing else.

    Args:
        environ: Environment variables.
        resolver: A resolver object of the user, e.g. a `tf.distribute.cluster_resolver.ClusterResolver`;
            the environment is asked if None.

    Raises:
        ClusterError: If the description that was found is wrong.
    """
    if resolver is not None:
        cluster = custom.resolve(resolver)
        return Decision(cluster, (f"{cluster.source}: given by the script",), tuple(unused.warnings(environ, cluster)))
    reasons: list[str] = []
    cluster = ALONE
    for name, ask in RESOLVERS:
        answer = ask(environ)
        if isinstance(answer, Cluster):
            reasons.append(f"{name}: used")
            cluster = answer
            break
        reasons.append(f"{name}: {answer.reason}")
    else:
        reasons.append("alone: no cluster was found")
    return Decision(cluster, tuple(reasons), tuple(unused.warnings(environ, cluster)))


def resolve(environ: Mapping[str, str], resolver: object | None = None) -> Cluster:
    """Returns the cluster of an environment, logs why (at level debug), and warns of launchers that are not used.

    Args:
        environ: Environment variables.
        resolver: A resolver object of the user; the environment is asked if None.

    Raises:
        ClusterError: If the description that was found is wrong.
    """
    decision = decide(environ, resolver)
    cluster = decision.cluster
    log.set_up(cluster.rank, cluster.size)
    log.logger.debug("Cluster of %d from %s. %s", cluster.size, cluster.source, "; ".join(decision.reasons))
    for warning in decision.warnings:
        log.once(warning, warning, logging.WARNING)
    return cluster
