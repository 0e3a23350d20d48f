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

R05_FOR_MANY = ("files", "one_file", "records", "all_at_once", "repeated")
"""What three and four workers do of R05: the ways of sharing, but not all that can be asked of each."""


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
    if world.size > 2:
        fits = {name: fits[name] for name in R05_FOR_MANY}
    try:
        found = _fits(strategy, fits)
    finally:
        logger.removeHandler(handler)
        os.environ.pop("UNISONO_CHECK_DATA", None)
    return {**found, "told": [line for line in told if line.startswith("data of this epoch")]}


def r07_policy_off(strategy: Any, world: World) -> dict[str, Any]:
    import tensorflow as tf

    pairs = tf.data.Dataset.range(100).map(lambda i: (tf.cast(i, tf.float32)[None] / 100, tf.cast(i, tf.float32)[None]))
    batch = 10 * world.size
    return _fits(
        strategy,
        {
            "off": lambda: {"x": _with_policy(pairs.batch(batch), "OFF"), "epochs": 1},
            "off_with_steps": lambda: {
                "x": _with_policy(pairs.batch(batch).repeat(), "OFF"), "steps_per_epoch": 10, "epochs": 1,
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


def pipelines(strategy: Any, world: World) -> dict[str, Any]:
    """Pipelines without files, or with an order to keep: the numbers of one worker."""
    import tensorflow as tf

    x = np.arange(27, dtype="float32")[:, None]
    slices = tf.data.Dataset.from_tensor_slices
    lengths = tf.data.Dataset.range(27).map(lambda i: tf.cast(tf.range(i % 5 + 1), tf.float32))
    labels = slices(x)

    def first_and_width(rows: Any, y: Any) -> tuple[Any, Any]:
        # The width shows where a batch was padded to the longest row of a part of it.
        dense = rows.to_tensor() if isinstance(rows, tf.RaggedTensor) else rows
        return y / 10 + tf.cast(tf.shape(dense)[1], tf.float32), y

    def generated() -> Any:
        for i in range(27):
            yield [i / 10], [float(i)]

    column = tf.TensorSpec((1,), tf.float32)
    fixed = world.written_once("fixed", lambda folder: (folder / "all.bin").write_bytes(x.tobytes()))
    pairs = slices((x / 10, x))
    thin = tf.sparse.from_dense(np.where(x % 3 == 0, x / 10, 0))
    return _fits(
        strategy,
        {
            "sparse": lambda: {
                "x": slices((thin, x)).batch(8).map(lambda rows, y: (tf.sparse.to_dense(rows), y)),
            },
            "ragged": lambda: {"x": tf.data.Dataset.zip((lengths, labels)).ragged_batch(8).map(first_and_width)},
            "padded": lambda: {
                "x": tf.data.Dataset.zip((lengths, labels)).padded_batch(8, ([None], [1])).map(first_and_width),
            },
            "zip": lambda: {"x": tf.data.Dataset.zip((slices(x / 10).shuffle(9, seed=2), labels)).batch(8)},
            "concatenate": lambda: {"x": pairs.take(10).concatenate(pairs.skip(10)).batch(8)},
            "window": lambda: {
                "x": pairs.window(3).flat_map(lambda a, b: tf.data.Dataset.zip((a, b))).batch(8),
            },
            "generator": lambda: {
                "x": tf.data.Dataset.from_generator(generated, output_signature=(column, column)).batch(8),
            },
            "split": lambda: {
                "x": pairs.enumerate().filter(lambda i, row: i % 4 != 0).map(lambda i, row: row).batch(8),
                "validation_data": pairs.enumerate().filter(lambda i, row: i % 4 == 0).map(lambda i, row: row).batch(3),
            },
            "fixed_length": lambda: {
                "x": tf.data.FixedLengthRecordDataset(str(fixed / "all.bin"), 4)
                .map(lambda line: tf.io.decode_raw(line, tf.float32)).map(lambda y: (y / 10, y)).enumerate()
                .map(lambda i, row: row).batch(8),
            },
            "cached_and_repeated": lambda: {
                "x": pairs.cache().shuffle(27, seed=3).repeat(2).batch(8, drop_remainder=True),
            },
        },
    )  # fmt: skip


def hint(strategy: Any, world: World) -> dict[str, Any]:
    """`shard(SHARD_HINT)` says itself where the data is shared."""
    import tensorflow as tf

    here = tf.data.experimental.SHARD_HINT
    names = sorted(map(str, folder_of_lines(world, LINES).glob("*.txt")))
    lines = tf.data.TextLineDataset(names)
    return _fits(
        strategy,
        {
            "hint": lambda: {"x": _with_policy(lines.shard(here, here).map(_line).batch(10), "HINT")},
            "hint_in_the_middle": lambda: {
                "x": _with_policy(lines.map(_line).shuffle(50).shard(here, here).batch(10).prefetch(1), "HINT"),
            },
        },
    )  # fmt: skip


def readers(strategy: Any, world: World) -> dict[str, Any]:
    """The readers that need no TensorFlow, over files of uneven sizes."""
    import fsspec
    import pyarrow
    import pyarrow.parquet
    import tensorflow as tf

    import unisono

    data = unisono.data

    def write(folder: Path) -> None:
        number = 0
        for i, count in enumerate(LINES):
            rows = list(range(number, number + count))
            number += count
            (folder / f"{i}.txt").write_text("".join(f"{row}\n" for row in rows))
            (folder / f"{i}.tsv").write_text("".join(f"{row / 10}\t{row}\n" for row in rows))
            columns = {"x": [row / 10 for row in rows], "y": [float(row) for row in rows]}
            table = pyarrow.table({name: pyarrow.array(each, pyarrow.float32()) for name, each in columns.items()})
            pyarrow.parquet.write_table(table, folder / f"{i}.parquet", row_group_size=4)
            with tf.io.TFRecordWriter(str(folder / f"{i}.tfrecord")) as writer:
                for row in rows:
                    value = tf.train.Feature(float_list=tf.train.FloatList(value=[float(row)]))
                    example = tf.train.Example(features=tf.train.Features(feature={"y": value}))
                    writer.write(example.SerializeToString())

    folder = world.written_once("readers", write)
    memory = fsspec.filesystem("memory")
    for path in folder.glob("*.txt"):
        memory.pipe(f"/{world.shared.name}/{path.name}", path.read_bytes())

    def column(values: Any) -> np.ndarray:
        return np.asarray(values, "float32").reshape(-1, 1)

    def numbers(lines: Any) -> tuple[np.ndarray, np.ndarray]:
        y = column([float(line) for line in lines])
        return y / 10, y

    def joined(features: Any, label: Any) -> tuple[np.ndarray, np.ndarray]:
        return column(features["x"]), column(label)

    sources = {
        "text": data.text_lines(folder / "*.txt").shuffle(20).map(numbers),
        "csv": data.csv(folder / "*.tsv", separator="\t", header=False, column_names=["x", "y"], label="y").map(joined),
        "tfrecord": data.tfrecord(folder / "*.tfrecord", features={"y": ("float32", ())}).map(
            lambda found: (column(found["y"]) / 10, column(found["y"]))
        ),
        "parquet": data.parquet(folder / "*.parquet", label="y").map(joined, workers=2).shuffle(30, seed=5),
        "memory": data.text_lines(f"memory://{world.shared.name}/*.txt").map(numbers),
        "by_file": data.text_lines(folder / "*.txt").map(numbers).with_options("FILE"),
        "by_record": data.text_lines(folder / "*.txt").map(numbers).with_options("DATA"),
    }
    fits: dict[str, Callable[[], dict[str, Any]]] = {}
    for name, rows in sources.items():
        fits[name] = lambda rows=rows: {"x": rows.batch(8).prefetch(2)}
        # One step holds everything, so how it is shared must not show.
        fits[f"{name} at once"] = lambda rows=rows: {"x": rows.batch(4 * sum(LINES))}
    return _fits(strategy, fits)
