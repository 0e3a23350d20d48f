"""One process of `step.py`: trains an epoch whenever it is told to, and sleeps in between."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from typing import Any

import child

orders = child.begin()

import models  # noqa: E402
import numpy as np  # noqa: E402

LONG_REST = 1.0
"""Seconds; in a shorter rest, what a fit leaves to be tidied up would be taken for a spinning wait."""

Epoch = Callable[[int, bool], tuple[float, float]]
"""(steps, whether a callback reads the logs of each batch) -> seconds from the begin to the end of the epoch, loss."""


def plain(spec: dict[str, Any]) -> Epoch:
    """What a user writes who has one process."""
    import keras

    child.one_thread(spec["backend"])
    keras.utils.set_random_seed(0)
    return fitting(keras, models.compiled(keras, spec["model"]), spec, spec["batch"])


def unisono(spec: dict[str, Any]) -> Epoch:
    """The same with two lines more, and the global batch."""
    import keras

    from unisono import MultiWorkerMirroredStrategy

    child.one_thread(spec["backend"])
    keras.utils.set_random_seed(0)
    strategy = MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = models.compiled(keras, spec["model"])
    return fitting(keras, model, spec, spec["batch"] * strategy.num_replicas_in_sync)


def tensorflow_strategy(spec: dict[str, Any]) -> Epoch:
    """TensorFlow's MultiWorkerMirroredStrategy, which needs legacy Keras."""
    cluster = {"worker": [f"127.0.0.1:{port}" for port in spec["ports"]]}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": spec["rank"]}})
    import tensorflow as tf
    import tf_keras

    tf_keras.utils.set_random_seed(0)
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = models.compiled(tf_keras, spec["model"])
    return fitting(tf_keras, model, spec, spec["batch"] * strategy.num_replicas_in_sync)


def jax_data_parallel(spec: dict[str, Any]) -> Epoch:
    """`keras.distribution.DataParallel` over gloo; every process passes its own part of the examples."""
    import jax
    import keras

    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    keras.utils.set_random_seed(0)
    keras.distribution.initialize(f"127.0.0.1:{spec['ports'][0]}", spec["size"], spec["rank"])
    keras.distribution.set_distribution(keras.distribution.DataParallel(auto_shard_dataset=False))
    model = models.compiled(keras, spec["model"])
    return fitting(keras, model, spec, spec["batch"], mine=slice(spec["rank"], None, spec["size"]))


def torch_data_parallel(spec: dict[str, Any]) -> Epoch:
    """The Keras model in torch's DistributedDataParallel, in a plain loop; loss and metric are this process's own."""
    import keras
    import torch
    from torch import distributed

    child.one_thread("torch")
    rank, size, batch = spec["rank"], spec["size"], spec["batch"]
    distributed.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{spec['ports'][0]}", rank=rank, world_size=size
    )
    keras.utils.set_random_seed(0)
    model = models.build(keras, spec["model"])
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    all_x, all_y = (torch.from_numpy(array) for array in models.data(spec["model"], spec["steps"] * batch * size))
    if spec["model"] == "MLP":
        metric = keras.metrics.AUC()
        optimizer: Any = torch.optim.RMSprop(parallel.parameters(), lr=0.001, alpha=0.9, eps=1e-7)
        loss_of: Any = torch.nn.BCELoss()
    else:
        metric = keras.metrics.SparseCategoricalAccuracy()
        optimizer = torch.optim.SGD(parallel.parameters(), lr=0.01)
        all_y = all_y[:, 0].long()
        loss_of = torch.nn.CrossEntropyLoss()
    shuffle = torch.Generator().manual_seed(0)

    def epoch(steps: int, batch_logs: bool) -> tuple[float, float]:
        began = time.perf_counter()
        metric.reset_state()
        total = torch.zeros(())
        order = torch.randperm(steps * batch * size, generator=shuffle)[rank::size]
        for mine in order.split(batch):
            x, y = all_x[mine], all_y[mine]
            optimizer.zero_grad()
            outputs = parallel(x, training=True)
            loss = loss_of(outputs, y)
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                total += loss.detach()
                metric.update_state(y, outputs.detach())
        loss_now = float(total) / steps
        float(metric.result())
        return time.perf_counter() - began, loss_now

    return epoch


def fitting(keras: Any, model: Any, spec: dict[str, Any], batch: int, mine: slice = slice(None)) -> Epoch:
    """Returns an epoch of `model.fit` on numpy arrays.

    Args:
        keras: `keras` or `tf_keras`.
        model: Compiled.
        spec: What this process was told.
        batch: The batch size for `fit`.
        mine: The examples that this process passes.
    """

    class BatchReader(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.loss = float(logs["loss"])

    x, y = (array[mine] for array in models.data(spec["model"], spec["steps"] * spec["batch"] * spec["size"]))
    x, y = np.ascontiguousarray(x), np.ascontiguousarray(y)
    if spec["kind"] == "plain":
        x, y = x[: spec["steps"] * batch], y[: spec["steps"] * batch]

    def epoch(steps: int, batch_logs: bool) -> tuple[float, float]:
        clock = child.epoch_clock(keras)
        readers = [BatchReader()] if batch_logs else []
        model.fit(
            x[: steps * batch], y[: steps * batch], batch_size=batch, epochs=1, verbose=0, callbacks=[clock, *readers]
        )
        return clock.seconds, clock.loss

    return epoch


def main() -> None:
    kinds = {
        "plain": plain,
        "unisono": unisono,
        "stock tensorflow": tensorflow_strategy,
        "stock jax": jax_data_parallel,
        "stock torch": torch_data_parallel,
    }
    epoch = kinds[orders.spec["kind"]](orders.spec)
    _, loss = epoch(min(3, orders.spec["steps"]), False)
    orders.answer(loss=loss)
    rested, used = time.perf_counter(), time.process_time()
    for order in orders:
        began = time.perf_counter()
        idle = (time.process_time() - used) / (began - rested) if began - rested > LONG_REST else None
        seconds, loss = epoch(order["steps"], order["batch_logs"])
        around = time.perf_counter() - began - seconds
        orders.answer(seconds=seconds, loss=loss, around=around, idle=idle)
        rested, used = time.perf_counter(), time.process_time()


if __name__ == "__main__":
    main()
