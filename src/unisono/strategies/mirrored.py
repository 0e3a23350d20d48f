"""MultiWorkerMirroredStrategy: every worker holds the whole model and takes its part of each global batch."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from unisono import env, log
from unisono.cluster.resolve import resolve
from unisono.cluster.resolver import ClusterResolver
from unisono.collectives.options import CommunicationOptions
from unisono.data.distributed import InputContext
from unisono.runtime.start import connect
from unisono.strategies import collective, reductions
from unisono.strategies.reductions import Axis, ReduceOp

if TYPE_CHECKING:
    from unisono.training.custom import CustomLoops
    from unisono.training.distributed import DistributedDataset
    from unisono.training.trainer import Trainer

_JAX_THREADS = 3
"""With fewer threads in its pool, JAX deadlocks when a host callback gets a large array."""


class MultiWorkerMirroredStrategy:
    """Synchronous data parallelism over many processes and hosts.

    Args:
        cluster_resolver: An object with `cluster_spec()`, `task_type` and `task_id`, as TensorFlow's resolvers
            have them. None reads TF_CONFIG, or a launcher's variables; without any, there is one worker.
        communication_options: How the workers exchange arrays.

    Raises:
        ClusterError: If the description of the cluster is wrong.
        StartupError: If the workers do not all meet in time; names the missing ones.
    """

    def __init__(
        self,
        cluster_resolver: object | None = None,
        communication_options: CommunicationOptions | None = None,
    ) -> None:
        options = communication_options or CommunicationOptions()
        self._tf_config = env.read("TF_CONFIG")
        cluster = resolve(env.snapshot(), cluster_resolver)
        log.set_up(cluster.rank, cluster.size)
        self._options = options
        if cluster.size > 1 and len(os.sched_getaffinity(0)) < _JAX_THREADS:
            env.export({"PJRT_NPROC": str(_JAX_THREADS)}, overwrite=False)
        self._runtime = connect(cluster, options)
        self._resolver = ClusterResolver(cluster)
        collective.activate(lambda: self._loops)
        if self._runtime.size > 1 and self.is_chief:
            log.once(
                "draws alike",
                "random, numpy.random and torch draw the same on all workers from here on, as each runs the whole "
                "script; seed them after the strategy is made to have it otherwise",
            )
        # A model that no scope ever sees must not pass unnoticed.
        if self._runtime.size > 1 and "keras" in sys.modules:
            self._trainer.watch()

    @property
    def num_replicas_in_sync(self) -> int:
        """Number of workers that train together."""
        return self._runtime.size

    @property
    def cluster_resolver(self) -> ClusterResolver:
        """Who is in the job, under TensorFlow's names: `task_type`, `task_id`, `cluster_spec()`."""
        return self._resolver

    @property
    def communication_options(self) -> CommunicationOptions:
        """How the workers exchange arrays."""
        return self._options

    @property
    def rank(self) -> int:
        """This worker's number, counted from 0; the chief is 0."""
        return self._runtime.rank

    @property
    def is_chief(self) -> bool:
        """Whether this worker writes files and prints."""
        return self._runtime.rank == 0

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """Takes charge of the models that are made or compiled inside.

        Example:

            with strategy.scope():
                model = build_model()
                model.compile(optimizer="adam", loss="mse")
        """
        self._check_unchanged()
        with self._trainer.scope():
            yield

    def experimental_distribute_dataset(self, dataset: Any) -> DistributedDataset:
        """Shares a data set of global batches among the workers, for `fit` or for a loop of your own.

        Iterated, it yields this worker's part of each global batch, as tensors, and ends on all workers after the
        same step; a worker whose data has ended gets batches without rows until then.

        Args:
            dataset: A `tf.data.Dataset`, a file data set of `unisono.data`, a `PyDataset`, a torch `DataLoader` or a
                Grain data set; the same on all workers.
        """
        return self._trainer.distribute(dataset, own=False)

    def distribute_datasets_from_function(self, dataset_fn: Callable[[InputContext], Any]) -> DistributedDataset:
        """Lets each worker make the data that it trains on, for `fit` or for a loop of your own.

        Args:
            dataset_fn: Gets an `InputContext` and returns this worker's data, in batches of one worker
                (`context.get_per_replica_batch_size(global_batch_size)` examples).
        """
        size = self.num_replicas_in_sync
        return self._trainer.distribute(dataset_fn(InputContext(size, self.rank, size)), own=True)

    def describe_data(self, data: Any, **arguments: Any) -> str:
        """Tells who reads what: a small table, with the policy, the reason and the part of each worker.

        All workers must call it alike.

        Args:
            data: What `fit` takes as `x`.
            **arguments: `y`, `sample_weight`, `batch_size` for arrays.

        Example:

            print(strategy.describe_data(dataset))
        """
        return self._trainer.describe(data, **arguments)

    def run(self, fn: Callable[..., Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        """Calls a step of your own loop, as this worker's replica; all workers must do so alike.

        Inside, Keras optimizers sum the gradients of all workers (so divide the loss by the size of the global batch),
        and metrics count this worker's examples. The first call gives all workers the chief's weights; after each
        call all workers hold bit-identical ones. Works eagerly, inside `tf.function` and inside `jax.jit`.

        Args:
            fn: The step.
            args: Its arguments. If an array among them has 0 rows, this worker has no examples: it adds zeros to the
                gradients, leaves metrics as they are, and makes the same update as the others.
            kwargs: Its named arguments.

        Returns:
            What `fn` returns on this worker; NaN of a step without examples is 0.
        """
        return self._loops.run(fn, args, kwargs)

    def reduce(self, reduce_op: ReduceOp | str | object, value: Any, axis: Axis | None = None) -> Any:
        """Adds or averages values of all workers; a collective call, also inside `tf.function` and `jax.jit`.

        Args:
            reduce_op: `unisono.ReduceOp.SUM` or `MEAN`, TensorFlow's, or their names in any case.
            value: A tensor, array or number, or a nested structure of them; floats or integers.
            axis: None adds or averages the values as they are, of the same shapes on all workers. Otherwise
                dimensions along which each worker's value is reduced first; their lengths may differ, a worker with 0
                rows adds nothing, and the mean is that of all elements.

        Returns:
            The same structure of tensors, equal on all workers. Means of integers are floats.

        Raises:
            ConfigurationError: If a value is no number, or has no such axis.
        """
        return self._loops.as_written(reductions.reduce)(self._loops, ReduceOp.of(reduce_op), value, axis)

    def gather(self, value: Any, axis: int) -> Any:
        """Concatenates values of all workers in the order of ranks; a collective call, not inside `jax.jit`.

        Args:
            value: A tensor or array with at least one dimension, or a nested structure of them; any dtype.
            axis: The dimension; its length may differ between workers.

        Returns:
            The same structure of tensors, equal on all workers.

        Raises:
            ConfigurationError: If a value has no such axis.
            DivergenceError: On all workers, if other dimensions differ.
        """
        return self._loops.as_written(reductions.gather)(self._loops, value, axis)

    def experimental_local_results(self, value: Any) -> tuple[Any, ...]:
        """Returns the values of this worker's replicas, of which there is one.

        Args:
            value: Anything that `run` has returned.

        Returns:
            A tuple of that value alone.
        """
        return (value,)

    @property
    def _loops(self) -> CustomLoops:
        return self._trainer.loops

    @functools.cached_property
    def _trainer(self) -> Trainer:
        from unisono.training.trainer import Trainer

        trainer = Trainer(self._runtime, self._options.bytes_per_pack)
        trainer.watch()
        return trainer

    def _check_unchanged(self) -> None:
        now = env.read("TF_CONFIG")
        if now != self._tf_config:
            log.once(
                "TF_CONFIG changed",
                f"TF_CONFIG was changed after the strategy was made, to {now!r}; the strategy keeps the cluster it "
                "has. Set TF_CONFIG first, then make the strategy.",
                logging.WARNING,
            )
