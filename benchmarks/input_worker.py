"""One process of `input.py`: reads an epoch whenever it is told to."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import child

orders = child.begin()

import input_data  # noqa: E402
import models  # noqa: E402
import numpy as np  # noqa: E402

SHUFFLED = 2048
"""Examples of the buffer out of which they are drawn."""


def pipeline(spec: dict[str, Any], part: tuple[int, int] | None, batch: int) -> Any:
    """Returns the batches of a data set.

    Args:
        spec: What this process was told.
        part: Which half of how many a plain process reads; None for all.
        batch: Examples of a batch.
    """
    import tensorflow as tf

    folder = Path(spec["folder"])
    if spec["form"] == "text":
        names = sorted(map(str, folder.glob("*.tsv")))
        rank, size = part or (0, 1)
        data = tf.data.TextLineDataset(names[rank::size])
    else:
        data = tf.data.TFRecordDataset(str(folder / "all.tfrecord"))
        if part is not None:
            framed = input_data.RECORD + 16
            whole = (folder / "all.tfrecord").stat().st_size // framed
            # Each plain process reads the first half: that there is no cheap way to the second is another matter.
            data = data.take(whole // part[1])
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy[spec["policy"]]
    if not spec["tuned"]:
        # On one core its thread sleeps ever longer, and the end of an epoch waits for it.
        options.autotune.enabled = False
    return data.batch(batch).prefetch(4).with_options(options)


def reader(spec: dict[str, Any]) -> Iterable[Any]:
    """Returns what yields this process's batches, an epoch each time it is iterated."""
    size, batch = spec["size"], input_data.BATCH
    if spec["kind"] == "plain":
        return pipeline(spec, (spec["rank"], size), batch // size)
    if spec["kind"] == "unisono":
        from unisono import MultiWorkerMirroredStrategy

        return MultiWorkerMirroredStrategy().experimental_distribute_dataset(pipeline(spec, None, batch))
    import tensorflow as tf

    cluster = {"worker": [f"127.0.0.1:{port}" for port in spec["ports"]]}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": spec["rank"]}})
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    return strategy.experimental_distribute_dataset(pipeline(spec, None, batch))


def bytes_read() -> int:
    """Returns the bytes that this process has asked for so far."""
    return int(Path("/proc/self/io").read_text().split("rchar:")[1].split()[0])


def read() -> None:
    batches = reader(orders.spec)
    for _ in orders:
        before, began, examples = bytes_read(), time.perf_counter(), 0
        for batch in batches:
            # What TensorFlow's strategy yields is sometimes a tensor and sometimes a bundle of one.
            examples += int(getattr(batch, "values", (batch,))[0].shape[0])
        orders.answer(seconds=time.perf_counter() - began, examples=examples, bytes=bytes_read() - before)


def parsed(names: list[str], batch: int) -> Any:
    """Returns the examples of the MLP by tf.data."""
    import tensorflow as tf

    shapes = {"x": tf.io.FixedLenFeature([32], tf.float32), "y": tf.io.FixedLenFeature([1], tf.float32)}

    def parse(records: Any) -> tuple[Any, Any]:
        found = tf.io.parse_example(records, shapes)
        return found["x"], found["y"]

    return tf.data.TFRecordDataset(names).shuffle(SHUFFLED).batch(batch).map(parse).prefetch(4)


def examples(pattern: str, batch: int) -> Any:
    """Returns the same by the readers of Unisono, which need no TensorFlow."""
    from unisono.data import tfrecord

    rows = tfrecord(pattern, features={"x": ("float32", (32,)), "y": ("float32", (1,))}, label="y")
    return rows.map(lambda features, label: (features["x"], label)).shuffle(SHUFFLED).batch(batch)


def step() -> None:
    import keras

    spec = orders.spec
    keras.utils.set_random_seed(0)
    scope: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
    # A plain process takes its half of the data in batches of one worker.
    workers, mine = 1, slice(spec["rank"], None, spec["size"])
    if spec["kind"] == "unisono":
        from unisono import MultiWorkerMirroredStrategy

        strategy = MultiWorkerMirroredStrategy()
        scope, workers, mine = strategy.scope(), strategy.num_replicas_in_sync, slice(None)
    with scope:
        model = models.compiled(keras, "MLP")
    batch = models.BATCH * workers
    if spec["form"] == "memory":
        x, y = models.data("MLP", input_data.STEPS * batch)
        arguments: dict[str, Any] = {"x": x, "y": y, "batch_size": batch}
    elif spec["form"] == "unisono.data":
        arguments = {"x": examples(f"{spec['folder']}/examples-*", batch)}
    else:
        dataset = parsed(sorted(map(str, Path(spec["folder"]).glob("examples-*")))[mine], batch)
        arguments = {"x": dataset}
    clock = child.epoch_clock(keras)
    for _ in orders:
        if spec["form"] == "alone":
            import tensorflow as tf

            untuned = tf.data.Options()
            untuned.autotune.enabled = False
            began = time.perf_counter()
            for _ in dataset.with_options(untuned):
                pass
            seconds = time.perf_counter() - began
        else:
            model.fit(**arguments, verbose=0, callbacks=[clock])
            seconds = clock.seconds
        orders.answer(step=seconds / input_data.STEPS)


def arrays() -> None:
    import keras

    x = np.empty((orders.spec["rows"], input_data.ARRAY_COLUMNS), np.float32)
    x[:] = np.random.default_rng(0).random(input_data.ARRAY_COLUMNS, np.float32)
    y = np.zeros((len(x), 1), np.float32)
    batch = models.BATCH

    def compiled() -> Any:
        model = keras.Sequential([keras.Input((input_data.ARRAY_COLUMNS,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        return model

    if orders.spec["kind"] == "unisono":
        from unisono import MultiWorkerMirroredStrategy

        strategy = MultiWorkerMirroredStrategy()
        batch *= strategy.num_replicas_in_sync
        with strategy.scope():
            model = compiled()
    else:
        model = compiled()

    class First(keras.callbacks.Callback):
        at = 0.0

        def on_train_batch_end(self, step: int, logs: Any = None) -> None:
            self.at = self.at or time.perf_counter()
            self.model.stop_training = step >= 20

    for _ in orders:
        first, before = First(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        began = time.perf_counter()
        model.fit(x, y, batch_size=batch, shuffle=True, verbose=0, callbacks=[first])
        more = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
        orders.answer(first=first.at - began, more=more, array=x.nbytes)


{"read": read, "step": step, "arrays": arrays}[orders.spec["what"]]()
