"""What layers see of the other workers while a step of TensorFlow runs.

Layers that compute over the whole global batch, such as `BatchNormalization(synchronized=True)`, ask TensorFlow's
replica context for a sum. In a step of an adopted model that sum is ours.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from unisono.backends.base import Backend, StepScope, Tensor
from unisono.errors import ConfigurationError


class WorkerContext(tf.distribute.ReplicaContext):  # type: ignore[misc]
    """TensorFlow's default replica context, with sums over all workers.

    Args:
        backend: Does the exchange.
        scope: Of the running step.
    """

    def __init__(self, backend: Backend, scope: StepScope) -> None:
        super().__init__(tf.distribute.get_strategy(), replica_id_in_sync_group=0)
        self._backend = backend
        self._scope = scope

    def all_reduce(self, reduce_op: Any, value: Any, options: Any = None) -> Any:
        """Sums a structure of tensors over all workers; see `tf.distribute.ReplicaContext`."""
        if reduce_op not in (tf.distribute.ReduceOp.SUM, "SUM"):
            raise ConfigurationError(f"all_reduce in a step sums. Received: reduce_op={reduce_op}.")
        # Keras's optimizers ask too, for gradients that are global already.
        return value if self._scope.inner else tf.nest.map_structure(self._total, value)

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
