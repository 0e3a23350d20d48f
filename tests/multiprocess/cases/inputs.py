"""Every kind of data that `fit` takes, and its arguments about data."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np

from cases.toy import column, fingerprint, outcome, sgd, toy_model, weight
from cases.world import World

X = column(1, 2, 3, 4, 5)
Y = 2 * X


class Sequence(keras.utils.PyDataset):
    """Batches of up to `size` rows of two arrays; remembers which were asked for."""

    def __init__(self, x: np.ndarray, y: np.ndarray, size: int, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.x, self.y, self.size = x, y, size

    def __len__(self) -> int:
        return -(-len(self.x) // self.size)

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        rows = slice(index * self.size, (index + 1) * self.size)
        return self.x[rows], self.y[rows]


def _arrays() -> dict[str, Any]:
    return {"x": X, "y": Y, "batch_size": 4}


def _tensors() -> dict[str, Any]:
    return {"x": keras.ops.convert_to_tensor(X), "y": keras.ops.convert_to_tensor(Y), "batch_size": 4}


def _pandas() -> dict[str, Any]:
    import pandas

    return {"x": pandas.DataFrame({"a": X[:, 0]}), "y": pandas.Series(Y[:, 0], name="y"), "batch_size": 4}


def _tf_data() -> dict[str, Any]:
    import tensorflow as tf

    return {"x": tf.data.Dataset.from_tensor_slices((X, Y)).batch(4)}


def _py_dataset() -> dict[str, Any]:
    return {"x": Sequence(X, Y, 4)}


def _generator() -> dict[str, Any]:
    def batches() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        yield X[:4], Y[:4]
        yield X[4:], Y[4:]

    return {"x": batches()}


def _endless_generator() -> dict[str, Any]:
    def batches() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        while True:
            yield X[:4], Y[:4]
            yield X[4:], Y[4:]

    return {"x": batches(), "steps_per_epoch": 2}


def _data_loader() -> dict[str, Any]:
    import torch

    return {"x": torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*map(torch.tensor, (X, Y))), batch_size=4)}


def _grain() -> dict[str, Any]:
    import grain

    return {"x": grain.MapDataset.source(list(zip(X, Y, strict=True))).to_iter_dataset().batch(4)}


KINDS: dict[str, Callable[[], dict[str, Any]]] = {
    "arrays": _arrays,
    "tensors": _tensors,
    "pandas": _pandas,
    "tf_data": _tf_data,
    "py_dataset": _py_dataset,
    "generator": _generator,
    "endless_generator": _endless_generator,
    "data_loader": _data_loader,
    "grain": _grain,
}


def kinds(strategy: Any, world: World) -> dict[str, Any]:
    """Trains one epoch on 4 + 1 examples from each kind of source; evaluates and predicts on it."""
    with strategy.scope():
        model = toy_model()
        model.compile(sgd(), loss="mse", metrics=["mae"])
    found: dict[str, Any] = {}
    for name, make in KINDS.items():
        model.set_weights([np.zeros((1, 1), "float32")])
        try:
            history = model.fit(**make(), epochs=1, shuffle=False, verbose=0)
            found[name] = outcome(model, history)
            if name in ("tf_data", "py_dataset", "data_loader"):
                found[name]["evaluated"] = model.evaluate(**make(), verbose=0, return_dict=True)
            if name in ("pandas", "py_dataset", "generator"):
                arguments = make()
                arguments.pop("y", None)
                found[name]["predicted"] = np.ravel(model.predict(**arguments, verbose=0))
        except Exception:  # noqa: BLE001 - the test shows it
            # What came before has its result; what comes after cannot run in a job that has failed.
            found[name] = traceback.format_exc()
            world.problems.append(name)
            break
    return found


def _recorder(world: World) -> type[keras.Model]:
    """A model class whose (eager) training step appends the examples it sees to a file of this worker."""

    class Recorder(keras.Model):
        folder = world.shared
        label = ""

        def _record(self, x: Any) -> None:
            ids = np.ravel(keras.ops.convert_to_numpy(x)).astype(int)
            with open(self.folder / f"{self.label}.{world.rank}", "a") as file:
                file.write("".join(f"{i}\n" for i in ids))

        def train_step(self, *arguments: Any) -> Any:
            data = arguments[-1]
            self._record(data[0] if isinstance(data, (tuple, list)) else data)
            return super().train_step(*arguments)

    return Recorder


def r06_each_sample_once(strategy: Any, world: World) -> dict[str, Any]:
    import tensorflow as tf

    numbers = np.arange(100, dtype="float32")[:, None]
    dataset = tf.data.Dataset.range(100).map(lambda i: (tf.cast(i, tf.float32)[None], 0.0))

    def batches() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for first in range(0, 100, 20):
            yield numbers[first : first + 20], np.zeros((20, 1), "float32")

    class OwnShuffle(Sequence):
        """Shuffles as many examples of Keras do, with NumPy's global generator, which differs between workers."""

        def on_epoch_end(self) -> None:
            self.x = np.random.permutation(self.x)

    sources: dict[str, dict[str, Any]] = {
        "tf_data": {"x": dataset.batch(20)},
        "tf_data_shuffled": {"x": dataset.shuffle(100).batch(20)},
        "arrays": {"x": numbers, "y": 0 * numbers, "batch_size": 20},
        "py_dataset": {"x": Sequence(numbers, 0 * numbers, 20)},
        "py_dataset_that_shuffles": {"x": OwnShuffle(numbers, 0 * numbers, 20)},
        "generator": {"x": batches(), "epochs": 1},
    }
    return _seen(strategy, world, sources)


def r06_data_loader(strategy: Any, world: World) -> dict[str, Any]:
    import torch

    torch.manual_seed(5)
    numbers = torch.arange(100, dtype=torch.float32)[:, None]
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(numbers, torch.zeros(100, 1)), batch_size=20, shuffle=True
    )
    return _seen(strategy, world, {"data_loader_shuffled": {"x": loader}})


def _seen(strategy: Any, world: World, sources: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Returns, by source, the examples that this worker has trained on."""
    with strategy.scope():
        model = toy_model(_recorder(world))
        model.compile(sgd(0.0), loss="mse", run_eagerly=True)
    for label, arguments in sources.items():
        model.label = label
        model.fit(**{"epochs": 2, "verbose": 0, **arguments})
    return {label: (world.shared / f"{label}.{world.rank}").read_text().split() for label in sources}


def r04_more_steps_than_data(strategy: Any, world: World) -> dict[str, Any]:
    import tensorflow as tf

    class Steps(keras.callbacks.Callback):
        def __init__(self) -> None:
            super().__init__()
            self.counts: list[int] = []

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.counts.append(0)

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.counts[-1] += 1

    import warnings

    x = np.linspace(0, 1, 40, dtype="float32")[:, None]
    found: dict[str, Any] = {}
    with strategy.scope():
        model = toy_model()
        model.compile(sgd(), loss="mse")
    for name, arguments in (
        ("arrays", {"x": x, "y": x, "batch_size": 4, "shuffle": False}),
        ("tf_data", {"x": tf.data.Dataset.from_tensor_slices((x, x)).batch(4)}),
    ):
        model.set_weights([np.zeros((1, 1), "float32")])
        steps = Steps()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            history = model.fit(**arguments, steps_per_epoch=6, epochs=3, verbose=0, callbacks=[steps])
        told = [str(each.message) for each in caught if "ran out of data" in str(each.message)]
        found[name] = outcome(model, history, steps=steps.counts, warnings=told)
    return found


def fit_arguments(strategy: Any, world: World) -> dict[str, Any]:
    """validation_split, validation_freq, validation_steps, steps_per_epoch, initial_epoch, tuples with weights."""
    import tensorflow as tf

    x = np.linspace(-1, 1, 11, dtype="float32")[:, None]
    y = 2 * x + 0.5
    weights = np.linspace(0.5, 2, 11, dtype="float32")
    repeated = tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(4)
    calls: dict[str, dict[str, Any]] = {
        "validation_split": {"x": x, "y": y, "batch_size": 3, "validation_split": 0.4},
        "validation_freq": {
            "x": x, "y": y, "batch_size": 4, "epochs": 4, "initial_epoch": 1, "validation_data": (x[:3], y[:3]),
            "validation_freq": 2,
        },
        "validation_steps": {
            "x": repeated, "steps_per_epoch": 3, "epochs": 2, "validation_data": repeated, "validation_steps": 2,
        },
        "validation_of_another_kind": {
            "x": Sequence(x, y, 4), "validation_data": tf.data.Dataset.from_tensor_slices((x, y)).batch(5),
        },
        "weights_in_the_dataset": {"x": tf.data.Dataset.from_tensor_slices((x, y, weights)).batch(4)},
        "two_epochs_of_a_dataset": {"x": tf.data.Dataset.from_tensor_slices((x, y)).batch(4), "epochs": 2},
    }  # fmt: skip
    with strategy.scope():
        model = toy_model()
        model.compile(sgd(0.1), loss="mse", metrics=["mae"])
    found: dict[str, Any] = {}
    for name, arguments in calls.items():
        model.set_weights([np.zeros((1, 1), "float32")])
        found[name] = outcome(model, model.fit(**{"shuffle": False, "verbose": 0, **arguments}))
    return found


def seeded_shuffles(strategy: Any, world: World) -> dict[str, Any]:
    """tf.data shuffles with a seed of their own: the same trajectory as one process."""
    import tensorflow as tf

    x = np.linspace(-1, 1, 11, dtype="float32")[:, None]
    with strategy.scope():
        model = toy_model()
        model.compile(sgd(0.1), loss="mse")
    history = model.fit(tf.data.Dataset.from_tensor_slices((x, x**2)).shuffle(11, seed=5).batch(4), epochs=2, verbose=0)
    return outcome(model, history)


def seeded_shuffles_go_on(strategy: Any, world: World) -> dict[str, Any]:
    """One shuffled data set, or parts of it, in several loops, looked at in between: as in one process."""
    import tensorflow as tf

    x = np.linspace(-1, 1, 11, dtype="float32")[:, None]
    shuffled = tf.data.Dataset.from_tensor_slices((x, x**2)).shuffle(11, seed=5)
    data, uncounted = shuffled.batch(4), shuffled.filter(lambda x, y: x[0] < 2).batch(4)
    with strategy.scope():
        model = toy_model()
        model.compile(optimizer=sgd(0.3), loss="mse")
    if world.rank == 0:
        next(iter(data))
    weights = []
    for each, epochs in ((data, 1), (data, 2), (uncounted, 1), (uncounted, 1)):
        model.fit(each, epochs=epochs, validation_data=data.take(1) if epochs == 2 else None, verbose=0)
        weights.append(weight(model))
    next(iter(data))
    model.evaluate(data, verbose=0)
    history = model.fit(data, verbose=0)
    return {"weights": weights, **outcome(model, history)}


def unseeded_array_shuffle(strategy: Any, world: World) -> dict[str, Any]:
    """`fit(shuffle=True)` on arrays without any seed, from random states that differ on purpose."""
    import random

    random.seed(world.rank)
    np.random.seed(world.rank)
    x = np.linspace(-1, 1, 11, dtype="float32")[:, None]
    with strategy.scope():
        model = toy_model()
        model.compile(sgd(0.1), loss="mse")
    return outcome(model, model.fit(x, x**2, batch_size=4, epochs=2, verbose=0))


def r23_predict(strategy: Any, world: World) -> dict[str, Any]:
    import tensorflow as tf

    x = np.arange(10, dtype="float32")[:, None]
    with strategy.scope():
        inputs = keras.Input((1,))
        outputs = {"same": keras.layers.Identity()(inputs), "twice": keras.layers.Rescaling(2.0)(inputs)}
        model = keras.Model(inputs, outputs)
        plain = keras.Model(inputs, outputs["same"])
    found: dict[str, Any] = {}
    for name, argument in (("ten", x), ("one", x[3:4]), ("tf_data", tf.data.Dataset.from_tensor_slices(x).batch(4))):
        batch = {} if name == "tf_data" else {"batch_size": 4}
        predicted = model.predict(argument, verbose=0, **batch)
        found[name] = {key: np.asarray(rows) for key, rows in predicted.items()}
    single = plain.predict(x, batch_size=3, verbose=0)
    found["shape"], found["single"] = list(single.shape), single
    return found


def slow_py_dataset(strategy: Any, world: World) -> dict[str, Any]:
    """A PyDataset that takes its time, and which batches it is asked for."""
    x = np.arange(40, dtype="float32")[:, None] / 40

    asked: list[int] = []

    class Slow(Sequence):
        def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
            asked.append(index)
            time.sleep(0.001)
            return super().__getitem__(index)

    with strategy.scope():
        model = toy_model()
        model.compile(sgd(), loss="mse")
    history = model.fit(Slow(x, x, 4), shuffle=False, verbose=0)
    return outcome(model, history, asked=sorted(set(asked)))


def text(strategy: Any, world: World) -> dict[str, Any]:
    """Strings that layers of the model look up; TensorFlow has tensors of them."""
    import tensorflow as tf

    words = np.array(["red cat", "green dog", "red dog", "blue cat", "cat cat"])
    y = column(1, 0, 0, 1, 1)
    found: dict[str, Any] = {}
    for way, eager in (("compiled", False), ("eager", True)):
        with strategy.scope():
            layers = [
                keras.layers.TextVectorization(vocabulary=["cat", "dog", "red"], output_sequence_length=2),
                keras.layers.Embedding(6, 2, embeddings_initializer="ones"),
                keras.layers.Flatten(),
                keras.layers.Dense(1, kernel_initializer="ones"),
            ]
            model = keras.Sequential(layers)
            model.compile(keras.optimizers.Adam(0.1), loss="mse", run_eagerly=eager)
        data = tf.data.Dataset.from_tensor_slices((words, y)).batch(4)
        first = model.evaluate(data, verbose=0)
        logs = [model.fit(data, verbose=0), model.fit(tf.constant(words), y, batch_size=4, shuffle=False, verbose=0)]
        found[way] = {
            "losses": [first, *(each.history["loss"][0] for each in logs)],
            "predicted": np.ravel(model.predict(data, verbose=0)),
            "state": fingerprint(model),
        }
    return found


def batch_methods(strategy: Any, world: World) -> dict[str, Any]:
    """train_on_batch, test_on_batch, predict_on_batch take the global batch."""
    x = column(1, 2, 3, 4)
    with strategy.scope():
        model = toy_model()
        model.compile(sgd(), loss="mse", metrics=["mae"])
    found: dict[str, Any] = {}
    found["first"] = model.train_on_batch(x, 2 * x, return_dict=True)
    found["first_weight"] = weight(model)
    found["second"] = model.train_on_batch(x[:1], 2 * x[:1], return_dict=True)
    found["tested"] = model.test_on_batch(x[:3], 2 * x[:3], return_dict=True)
    found["predicted"] = np.ravel(model.predict_on_batch(x[:3]))
    found["predicted_one"] = np.ravel(model.predict_on_batch(x[:1]))
    return {**found, "weight": weight(model), "state": fingerprint(model)}
