"""A resolver object of the user: TensorFlow's, a subclass, or anything of that shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unisono.cluster import tf_config
from unisono.cluster.resolver import ClusterResolver
from unisono.cluster.spec import Cluster
from unisono.errors import ClusterError

_SHAPE = "cluster_spec() (addresses by role), task_type and task_id"


def resolve(resolver: object) -> Cluster:
    """Returns the cluster that a resolver object describes.

    Args:
        resolver: Has `cluster_spec()`, which returns a mapping from role to addresses or an object with
            `as_dict()`, and the attributes `task_type` and `task_id`. An empty cluster means one worker.

    Raises:
        ClusterError: If it has not that shape, or describes no cluster that can work.
    """
    if isinstance(resolver, ClusterResolver):
        return resolver.cluster
    source = type(resolver).__name__
    if isinstance(resolver, type):
        raise ClusterError(
            f"cluster_resolver must be an object, not the class {resolver.__name__}.",
            remedy=f"pass cluster_resolver={resolver.__name__}(...).",
        )
    cluster_spec = getattr(resolver, "cluster_spec", None)
    if not callable(cluster_spec):
        raise ClusterError(
            f"cluster_resolver must have {_SHAPE}; {source} has no method cluster_spec(). Received: {resolver!r}.",
            remedy="pass a tf.distribute.cluster_resolver.ClusterResolver, or leave the argument out to use TF_CONFIG.",
        )
    # Some of TensorFlow's resolvers know their task only after this call.
    jobs = _as_dict(cluster_spec(), source)
    for name in ("task_type", "task_id"):
        if not hasattr(resolver, name):
            raise ClusterError(f"cluster_resolver must have {_SHAPE}; {source} has no {name}.")
    task: dict[str, Any] = {"type": getattr(resolver, "task_type"), "index": getattr(resolver, "task_id")}  # noqa: B009
    return tf_config.from_mapping({"cluster": jobs, "task": task}, source=source)


def _as_dict(spec: Any, source: str) -> Mapping[str, Any]:
    as_dict = getattr(spec, "as_dict", None)
    jobs = as_dict() if callable(as_dict) else spec
    if jobs is None:
        return {}
    if not isinstance(jobs, Mapping):
        raise ClusterError(
            f"cluster_spec() of {source} must return a ClusterSpec or a mapping from role to addresses. "
            f"Received: {spec!r}.",
            remedy='return for example {"worker": ["host0:2222", "host1:2222"]}.',
        )
    return jobs
