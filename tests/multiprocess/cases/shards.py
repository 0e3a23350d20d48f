"""Data in files: who reads what, and that all end together."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np

from cases.toy import outcome, sgd, toy_model
from cases.world import World

LINES = [30, 10, 0, 7]


class Seen(keras.metrics.Metric):
    """Counts examples and adds up which they were."""

    def __init__(self, name: str = "seen", **arguments: Any) -> None:
        super().__init__(name=name, **arguments)
        self.count = self.add_weight(name="count", shape=(), initializer="zeros")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        self.count.assign_add(keras.ops.sum(keras.ops.ones_like(y_true)))

    def result(self) -> Any:
        # Not the variable itself: what it holds later would change what was logged.
        return self.count + 0


class Which(Seen):
    """Adds up the labels, which are all different."""

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        self.count.assign_add(keras.ops.sum(keras.ops.cast(y_true, "float32")))


def folder_of_lines(world: World, counts: list[int]) -> Path:
    """Returns a folder with one text file for each count."""

    def write(folder: Path) -> None:
        number = 0
        for i, count in enumerate(counts):
            (folder / f"part-{i}.txt").write_text("".join(f"{number + j}\n" for j in range(count)))
            number += count

    return world.written_once(f"lines-{len(counts)}", write)


def _line(line: Any) -> tuple[Any, Any]:
    import tensorflow as tf

    number = tf.strings.to_number(line)
    return number[None] / 10, number[None]


def _with_policy(dataset: Any, name: str) -> Any:
    import tensorflow as tf

    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy[name]
    return dataset.with_options(options)


def _fits(strategy: Any, fits: dict[str, Callable[[], dict[str, Any]]]) -> dict[str, Any]:
    with strategy.scope():
        model = toy_model()
        model.compile(sgd(1e-3), loss="mse", metrics=[Seen(name="seen"), Which(name="which")])
    found: dict[str, Any] = {}
    for name, make in fits.items():
        model.set_weights([np.zeros((1, 1), "float32")])
        arguments = {"epochs": 2, "verbose": 0, **make()}
        found[name] = outcome(model, model.fit(**arguments))
        if name == "files":
            found["evaluated"] = model.evaluate(arguments["x"], verbose=0, return_dict=True)
            found["predicted"] = np.ravel(model.predict(arguments["x"].map(lambda x, y: x), verbose=0))
    return found


def r05_uneven_files(strategy: Any, world: World) -> dict[str, Any]:
    import tensorflow as tf

    folder = folder_of_lines(world, LINES)
    names = sorted(map(str, folder.glob("*.txt")))

    def lines(files: Any) -> Any:
        return tf.data.TextLineDataset(files).map(_line)

    def repeated() -> dict[str, Any]:
        return {"x": lines(names).repeat().batch(10), "steps_per_epoch": 4, "epochs": 3}

    told: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: told.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("unisono")
    if not world.plain:
        logger.addHandler(handler)
        os.environ["UNISONO_CHECK_DATA"] = "1"
    fits: dict[str, Callable[[], dict[str, Any]]] = (
        {
            "files": lambda: {"x": _with_policy(lines(names).batch(10), "FILE")},
            "auto": lambda: {"x": lines(names).shuffle(50).batch(10)},
            "one_file": lambda: {"x": lines(names[:1]).batch(10)},
            "records": lambda: {"x": _with_policy(lines(names).batch(10), "DATA")},
            "list_files": lambda: {
                "x": tf.data.Dataset.list_files(str(folder / "*.txt")).interleave(tf.data.TextLineDataset).map(_line)
                .batch(10, drop_remainder=False).prefetch(2)
            },
            "all_at_once": lambda: {"x": _with_policy(lines(names).batch(4 * sum(LINES)), "FILE")},
            "validation": lambda: {
                "x": _with_policy(lines(names).batch(10), "DATA"),
                "validation_data": _with_policy(lines(names[1:]).batch(5), "AUTO"),
            },
            "repeated": repeated,
        }
    )  # fmt: skip
    try:
        found = _fits(strategy, fits)
    finally:
        logger.removeHandler(handler)
        os.environ.pop("UNISONO_CHECK_DATA", None)
    return {**found, "told": [line for line in told if line.startswith("data of this epoch")]}


def r07_policy_off(strategy: Any, world: World) -> dict[str, Any]:
    import tensorflow as tf

    pairs = tf.data.Dataset.range(100).map(lambda i: (tf.cast(i, tf.float32)[None] / 100, tf.cast(i, tf.float32)[None]))
    return _fits(
        strategy,
        {
            "off": lambda: {"x": _with_policy(pairs.batch(20), "OFF"), "epochs": 1},
            "off_with_steps": lambda: {
                "x": _with_policy(pairs.batch(20).repeat(), "OFF"), "steps_per_epoch": 10, "epochs": 1,
            },
        },
    )  # fmt: skip


def r07_own_sharding(strategy: Any, world: World) -> dict[str, Any]:
    """Each worker makes its own data; and what a loop of the user's own sees."""
    import tensorflow as tf

    told: dict[str, Any] = {}

    def make(context: Any) -> Any:
        told["pipelines"], told["id"] = context.num_input_pipelines, context.input_pipeline_id
        told["batch"] = context.get_per_replica_batch_size(10 * world.size)
        numbers = tf.data.Dataset.range(103).shard(context.num_input_pipelines, context.input_pipeline_id)
        return numbers.map(lambda i: (tf.cast(i, tf.float32)[None] / 100, tf.cast(i, tf.float32)[None])).batch(10)

    own = strategy.distribute_datasets_from_function(make)
    fits = _fits(strategy, {"own": lambda: {"x": own}})
    names = sorted(map(str, folder_of_lines(world, LINES).glob("*.txt")))
    whole = strategy.experimental_distribute_dataset(tf.data.TextLineDataset(names).map(_line).batch(10))
    fits.update(_fits(strategy, {"whole": lambda: {"x": whole}}))
    seen = [[np.ravel(keras.ops.convert_to_numpy(y)).tolist() for _, y in whole] for _ in range(2)]
    return {**fits, "told": told, "seen": seen, "table": strategy.describe_data(whole)}


def functions_on_own_examples(strategy: Any, world: World) -> dict[str, Any]:
    """tf.data without files: the functions run on a worker's own examples, and the trajectory stays."""
    import tensorflow as tf

    numbers = np.arange(27, dtype="float32")

    def fit(batch: int, **options: Any) -> Callable[[], dict[str, Any]]:
        def make() -> dict[str, Any]:
            dataset = tf.data.Dataset.from_tensor_slices(numbers).shuffle(27, seed=4)
            dataset = dataset.map(lambda x: (x[None] / 10, x[None]), num_parallel_calls=2)
            return {"x": dataset.batch(batch, **options).prefetch(1)}

        return make

    return _fits(strategy, {"even": fit(12), "uneven": fit(7), "dropped": fit(12, drop_remainder=True)})


def one_file_by_file(strategy: Any, world: World) -> dict[str, Any]:
    """An explicit FILE policy that cannot be had."""
    import tensorflow as tf

    names = sorted(map(str, folder_of_lines(world, [30]).glob("*.txt")))
    return _fits(
        strategy, {"one": lambda: {"x": _with_policy(tf.data.TextLineDataset(names).map(_line).batch(10), "FILE")}}
    )
