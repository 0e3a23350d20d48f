"""What layers and TensorFlow's own functions see of the other workers while a step of TensorFlow runs.

Layers that compute over the whole global batch, such as `BatchNormalization(synchronized=True)`, ask TensorFlow's
replica context for a sum. In a step of an adopted model that sum is ours. `tf.nn.compute_average_loss` and
`tf.nn.scale_regularization_loss` ask its strategy for the number of replicas.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from unisono.backends.base import Backend, StepScope, Tensor
from unisono.errors import ConfigurationError


class ReplicaStrategy(tf.distribute.Strategy):  # type: ignore[misc]
    """TensorFlow's default strategy, which knows how many workers there are.

    Args:
        size: Number of workers.
    """

    def __init__(self, size: int) -> None:
        super().__init__(tf.distribute.get_strategy().extended)
        self._size = size

    @property
    def num_replicas_in_sync(self) -> int:
        """Number of workers."""
        return self._size


class WorkerContext(tf.distribute.ReplicaContext):  # type: ignore[misc]
    """TensorFlow's default replica context, with sums over all workers.

    Args:
        backend: Does the exchange.
        scope: Of the running step.
        strategy: What `tf.distribute.get_strategy` returns meanwhile; TensorFlow's default one if None.
        rank: Number of this replica.
    """

    def __init__(self, backend: Backend, scope: StepScope, strategy: Any = None, rank: int = 0) -> None:
        super().__init__(strategy or tf.distribute.get_strategy(), replica_id_in_sync_group=rank)
        self._backend = backend
        self._scope = scope

    def all_reduce(self, reduce_op: Any, value: Any, options: Any = None) -> Any:
        """Sums a structure of tensors over all workers; see `tf.distribute.ReplicaContext`."""
        op = getattr(reduce_op, "name", reduce_op)
        if op not in ("SUM", "MEAN") or (op == "MEAN" and not self._scope.custom):
            raise ConfigurationError(f"all_reduce in a step sums. Received: reduce_op={reduce_op}.")
        # Keras's optimizers ask too, for gradients that are global already.
        if self._scope.inner:
            return value
        total = tf.nest.map_structure(self._total, value)
        return total if op == "SUM" else tf.nest.map_structure(lambda t: t / self._backend.size, total)

    def _total(self, value: Tensor) -> Tensor:
        backend, scope = self._backend, self._scope
        share, inverse = scope.share, scope.inverse
        scope.count_total()

        @tf.custom_gradient  # type: ignore[untyped-decorator]
        def total(tensor: Tensor) -> Any:
            def gradient(upstream: Tensor) -> Tensor:
                # The global loss sums share * loss over the workers, and this worker's gradients will be
                # multiplied by its own share.
                return backend.weighted_sum([upstream], share, scope)[0] * tf.cast(inverse, upstream.dtype)

            return backend.weighted_sum([tensor], scope.presence, scope)[0], gradient

        return total(value)
