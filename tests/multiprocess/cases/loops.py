"""Cases of training loops that a user writes: `strategy.run`, `reduce`, `gather`, `unisono.all_reduce`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np

from cases.toy import column, fingerprint, outcome, sgd, toy_model, weight
from cases.world import World

Step = Callable[[np.ndarray, np.ndarray, int], float]


def _part(world: World, rows: np.ndarray) -> np.ndarray:
    return np.array_split(rows, world.size)[world.rank]


def _batches(world: World, x: np.ndarray, size: int) -> Iterator[tuple[np.ndarray, np.ndarray, int]]:
    """Yields this worker's part of each global batch, and the size of that."""
    for start in range(0, len(x), size):
        rows = x[start : start + size]
        mine = _part(world, rows)
        yield mine, 2 * mine, len(rows)


def _toy_in_scope(strategy: Any) -> tuple[keras.Model, Any, Any]:
    with strategy.scope():
        return toy_model(), sgd(), keras.metrics.MeanAbsoluteError()


def _tensorflow_step(strategy: Any, model: Any, optimizer: Any, metric: Any) -> Step:
    import tensorflow as tf

    with strategy.scope():
        loss = keras.losses.MeanSquaredError(reduction=None)

    def train_step(batch: Any, total: Any) -> Any:
        x, y = batch
        with tf.GradientTape() as tape:
            predictions = model(x, training=True)
            value = tf.nn.compute_average_loss(loss(y, predictions), global_batch_size=total)
        gradients = tape.gradient(value, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        metric.update_state(y, predictions)
        return value

    @tf.function
    def step(batch: Any, total: Any) -> Any:
        losses = strategy.run(train_step, args=(batch, total))
        return strategy.reduce("SUM", losses, axis=None)

    return lambda x, y, total: float(step((x, y), tf.constant(total)))


def _jax_step(strategy: Any, model: Any, optimizer: Any, metric: Any) -> Step:
    import jax
    import jax.numpy as jnp

    optimizer.build(model.trainable_variables)
    variables = [model.trainable_variables, optimizer.variables, metric.variables]
    state = [[v.value for v in group] for group in variables]

    @jax.jit
    def train_step(state: Any, x: Any, y: Any, total: Any) -> Any:
        trainable, of_optimizer, of_metric = state

        def objective(trainable: Any) -> Any:
            predictions, _ = model.stateless_call(trainable, [], x, training=True)
            return jnp.sum((predictions - y) ** 2) / total, predictions

        (value, predictions), gradients = jax.value_and_grad(objective, has_aux=True)(trainable)
        trainable, of_optimizer = optimizer.stateless_apply(of_optimizer, gradients, trainable)
        of_metric = metric.stateless_update_state(of_metric, y, predictions)
        return value, [trainable, of_optimizer, of_metric]

    def step(x: np.ndarray, y: np.ndarray, total: int) -> float:
        nonlocal state
        value, state = strategy.run(train_step, args=(state, x, y, total))
        for group, values in zip(variables, state, strict=True):
            for variable, tensor in zip(group, values, strict=True):
                variable.assign(tensor)
        return float(strategy.reduce("SUM", value))

    return step


def _torch_step(strategy: Any, model: Any, optimizer: Any, metric: Any) -> Step:
    import torch

    def train_step(x: Any, y: Any, total: int) -> Any:
        model.zero_grad()
        predictions = model(x, training=True)
        value = torch.sum((predictions - y) ** 2) / total
        value.backward()
        with torch.no_grad():
            optimizer.apply([v.value.grad for v in model.trainable_variables], model.trainable_variables)
        metric.update_state(y, predictions.detach())
        return value.detach()

    def step(x: np.ndarray, y: np.ndarray, total: int) -> float:
        value = strategy.run(train_step, args=(torch.from_numpy(x), torch.from_numpy(y), total))
        return float(strategy.reduce("SUM", value))

    return step


STEPS = {"tensorflow": _tensorflow_step, "jax": _jax_step, "torch": _torch_step}


def _train_toy(strategy: Any, world: World, x: np.ndarray, batch: int = 4) -> dict[str, Any]:
    model, optimizer, metric = _toy_in_scope(strategy)
    step = STEPS[world.backend](strategy, model, optimizer, metric)
    losses = [step(*each) for each in _batches(world, x, batch)]
    found = {"losses": losses, "weight": weight(model), "state": fingerprint(model)}
    found |= {"updates": int(optimizer.iterations), "metric": float(metric.result()), "again": float(metric.result())}
    metric.reset_state()
    return {**found, "reset": float(metric.result()), "rates": [float(v) for v in optimizer.variables]}


def toy(strategy: Any, world: World) -> dict[str, Any]:
    """R01, R02 (the last batch is empty on all workers but one) and R03."""
    return {
        "R01": _train_toy(strategy, world, column(1, 2, 3, 4)),
        "R02": _train_toy(strategy, world, column(1, 2, 3, 4, 5)),
        "R03": _train_toy(strategy, world, column(1, 2, 3)),
    }


def initial_weights(strategy: Any, world: World) -> dict[str, Any]:
    """Workers that begin with other weights, and make some only in their first step, take the chief's."""
    keras.utils.set_random_seed(world.rank)
    with strategy.scope():
        built = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
        unbuilt = keras.Sequential([keras.layers.Dense(4), keras.layers.Dense(2)])
    first = np.ravel(keras.ops.convert_to_numpy(built.weights[0])).tolist()
    x = np.ones((2, 3), "float32")
    outputs = keras.ops.convert_to_numpy(strategy.run(lambda: keras.ops.stop_gradient(built(x) + unbuilt(x))))
    seeds = [float(np.ravel(keras.ops.convert_to_numpy(keras.random.normal((1,))))[0])]
    return {"first": first, "states": [fingerprint(built), fingerprint(unbuilt)], "out": outputs, "seeds": seeds}


def values(strategy: Any, world: World) -> dict[str, Any]:
    """Reductions and concatenations of what differs between workers; worker 2 has no rows."""
    import unisono

    rank, rows = world.rank, [3, 1, 0, 2][world.rank]
    mine = np.arange(rows * 2, dtype="float32").reshape(rows, 2) + 10 * rank
    tensor = keras.ops.convert_to_tensor(mine)
    shown: Callable[[Any], Any] = keras.ops.convert_to_numpy
    nested = strategy.reduce(unisono.ReduceOp.SUM, {"a": rank + 1, "b": (tensor[:0], [1.5])})
    means = strategy.reduce("mean", {"f": np.float32(rank), "i": np.int32(rank), "none": None})
    return {
        "mean": shown(strategy.reduce("MEAN", tensor, axis=0)),
        "mean_all": shown(strategy.reduce("MEAN", tensor, axis=(0, 1))),
        "mean_integers": shown(strategy.reduce("MEAN", keras.ops.cast(tensor, "int32"), axis=0)),
        "mean_half": shown(strategy.reduce("MEAN", keras.ops.cast(tensor, "float16"), axis=0)).astype("float32"),
        "sum": shown(strategy.reduce("SUM", tensor, axis=0)),
        "sum_integers": shown(strategy.reduce("SUM", keras.ops.cast(tensor, "int32"), axis=-2)),
        "nested": [int(nested["a"]), list(nested["b"][0].shape), [float(v) for v in nested["b"][1]]],
        "means": [float(means["f"]), float(means["i"]), means["none"]],
        "rows": shown(strategy.gather(tensor, axis=0)),
        "columns": shown(strategy.gather(keras.ops.transpose(tensor), axis=-1)),
        "flags": shown(strategy.gather({"x": keras.ops.convert_to_tensor(np.ones(rows, "bool"))}, axis=0)["x"]),
        "half": shown(strategy.gather(keras.ops.cast(tensor, "float16"), axis=0)).astype("float32"),
        "sums": [float(v) for v in unisono.all_reduce([1.0, float(rank)])],
        "average": float(unisono.all_reduce(keras.ops.convert_to_tensor(float(rank)), "mean")),
        "chief": [float(v) for v in unisono.broadcast([float(rank), rank + 7])],
        "local": [len(strategy.experimental_local_results(tensor)), strategy.num_replicas_in_sync],
    }


def refused(strategy: Any, world: World) -> list[str]:
    """What cannot be meant, and what is said then."""
    import unisono

    model, optimizer, _ = _toy_in_scope(strategy)
    variables = model.trainable_variables
    optimizer.build(variables)
    summed = unisono.all_reduce([keras.ops.ones((1, 1))])
    tries = [
        lambda: optimizer.apply(summed, variables),
        lambda: strategy.reduce("MAX", 1.0),
        lambda: strategy.reduce("SUM", 1.0, axis=0),
        lambda: strategy.reduce("SUM", np.ones(2, "bool")),
        lambda: strategy.gather(np.float32(1), axis=0),
    ]
    said = []
    for each in tries:
        try:
            each()
        except unisono.ConfigurationError as error:
            said.append(str(error))
    return said


def own_optimizer(strategy: Any, world: World) -> dict[str, Any]:
    """R02 with an update that Keras knows nothing of: gradients are summed by `unisono.all_reduce`."""
    total: Callable[[Any], Any] = (lambda value: value) if world.plain else __import__("unisono").all_reduce
    w, losses = np.zeros((1, 1), "float32"), []
    for x, y, count in _batches(world, column(1, 2, 3, 4, 5), 4):
        if world.backend == "jax":
            import jax
            import jax.numpy as jnp

            def objective(w: Any, x: Any = x, y: Any = y, count: int = count) -> Any:
                return jnp.sum((x @ w - y) ** 2) / count

            @jax.jit
            def update(w: Any, objective: Any = objective) -> Any:
                value, gradient = jax.value_and_grad(objective)(w)
                # Two exchanges of one compiled function.
                return total(value), w - 0.01 * total({"w": gradient})["w"]

            value, w = update(w)
        elif world.backend == "torch":
            import torch

            parameter = torch.nn.Parameter(torch.from_numpy(np.array(w)))
            optimizer = torch.optim.SGD([parameter], 0.01)
            value = torch.sum((torch.from_numpy(x) @ parameter - torch.from_numpy(y)) ** 2) / count
            value.backward()
            parameter.grad = total([parameter.grad])[0]
            optimizer.step()
            value, w = total(value.detach()), parameter.detach().numpy()
        else:
            import tensorflow as tf

            variable = tf.Variable(w)

            @tf.function
            def update(x: Any, y: Any, count: int, variable: Any = variable) -> Any:
                with tf.GradientTape() as tape:
                    value = tf.reduce_sum((x @ variable - y) ** 2) / count
                variable.assign_sub(0.01 * total(tape.gradient(value, variable)))
                return total(value)

            value, w = update(x, y, count), variable.numpy()
        losses.append(float(value))
    return {"losses": losses, "weight": float(np.ravel(w)[0])}


def tutorial(strategy: Any, world: World) -> dict[str, Any]:
    """TensorFlow's page "Custom training with tf.distribute.Strategy", with small images."""
    import tensorflow as tf

    keras.utils.set_random_seed(3)
    data = np.random.default_rng(0)
    images = data.random((20, 8, 8, 1)).astype("float32")
    labels = data.integers(0, 10, 20)
    batch = 8

    with strategy.scope():
        loss_object = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=None)

        def compute_loss(labels: Any, predictions: Any, model_losses: Any) -> Any:
            per_example_loss = loss_object(labels, predictions)
            loss = tf.nn.compute_average_loss(per_example_loss)
            if model_losses:
                loss += tf.nn.scale_regularization_loss(tf.add_n(model_losses))
            return loss

    with strategy.scope():
        test_loss = keras.metrics.Mean(name="test_loss")
        train_accuracy = keras.metrics.SparseCategoricalAccuracy(name="train_accuracy")
        test_accuracy = keras.metrics.SparseCategoricalAccuracy(name="test_accuracy")

    with strategy.scope():
        model = keras.Sequential(
            [
                keras.layers.Conv2D(4, 3, activation="relu", kernel_regularizer=keras.regularizers.L2(1e-2)),
                keras.layers.Flatten(),
                keras.layers.Dense(10),
            ]
        )
        optimizer = keras.optimizers.Adam(learning_rate=0.01)

    def train_step(inputs: Any) -> Any:
        images, labels = inputs
        with tf.GradientTape() as tape:
            predictions = model(images, training=True)
            loss = compute_loss(labels, predictions, model.losses)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))  # noqa: B905 - as on that page
        train_accuracy.update_state(labels, predictions)
        return loss

    def test_step(inputs: Any) -> None:
        images, labels = inputs
        predictions = model(images, training=False)
        test_loss.update_state(loss_object(labels, predictions))
        test_accuracy.update_state(labels, predictions)

    @tf.function
    def distributed_train_step(dataset_inputs: Any) -> Any:
        per_replica_losses = strategy.run(train_step, args=(dataset_inputs,))
        return strategy.reduce(tf.distribute.ReduceOp.SUM, per_replica_losses, axis=None)

    @tf.function
    def distributed_test_step(dataset_inputs: Any) -> Any:
        return strategy.run(test_step, args=(dataset_inputs,))

    def part(start: int) -> Any:
        chosen = slice(start, start + batch)
        return tf.constant(_part(world, images[chosen])), tf.constant(_part(world, labels[chosen]))

    history: dict[str, list[float]] = {"loss": [], "accuracy": [], "test_loss": [], "test_accuracy": []}
    for _ in range(2):
        total_loss = 0.0
        for start in (0, 8, 16):
            total_loss += distributed_train_step(part(start))
        for start in (0, 8, 16):
            distributed_test_step(part(start))
        history["loss"].append(float(total_loss / 3))
        history["accuracy"].append(float(train_accuracy.result() * 100))
        history["test_loss"].append(float(test_loss.result()))
        history["test_accuracy"].append(float(test_accuracy.result() * 100))
        for metric in (test_loss, train_accuracy, test_accuracy):
            metric.reset_state()
    return {"numbers": history, "state": fingerprint(model), "updates": int(optimizer.iterations)}


def lazy_and_empty(strategy: Any, world: World) -> dict[str, Any]:
    """A step that is a `tf.function` of open shape, a model built in it without a seed, NaN where there is no data."""
    import tensorflow as tf

    with strategy.scope():
        model = keras.Sequential([keras.layers.Dense(4), keras.layers.BatchNormalization(), keras.layers.Dense(1)])
        optimizer = keras.optimizers.Adam(0.1, global_clipnorm=1.0)
        average = keras.metrics.Mean()

    @tf.function(reduce_retracing=True)
    def train_step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x, training=True) - y) ** 2) / strategy.num_replicas_in_sync
        optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))  # noqa: B905
        average.update_state(tf.reduce_mean(x))
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        return loss, replicas, tf.distribute.get_replica_context().replica_id_in_sync_group

    x = np.random.default_rng(1).normal(size=(11, 3)).astype("float32")
    losses, moving = [], []
    for rows in (slice(0, 4), slice(4, 10), slice(10, 11), slice(0, 5)):
        mine = tf.constant(_part(world, x[rows]))
        loss, replicas, number = strategy.run(train_step, args=(mine, tf.reduce_sum(mine, 1, keepdims=True)))
        losses.append(float(strategy.reduce("SUM", loss)))
        moving.append(fingerprint(model))
    return {
        "losses": losses,
        "states": moving,
        "replicas": int(replicas),
        "number": int(number),
        "average": float(average.result()),
        "outside": tf.distribute.get_strategy().num_replicas_in_sync,
        "weights": [np.ravel(w) for w in model.get_weights()],
    }


def compiled_model(strategy: Any, world: World) -> dict[str, Any]:
    """A loop over a compiled model between two calls of `fit`: neither disturbs the other."""
    x = column(1, 2, 3, 4)
    with strategy.scope():
        model = toy_model()
        model.compile(sgd(), "mse", metrics=["mae"])
        metric = keras.metrics.MeanAbsoluteError()
    first = model.fit(x, 2 * x, batch_size=4, shuffle=False, verbose=0).history
    step = STEPS[world.backend](strategy, model, model.optimizer, metric)
    loss = step(*next(_batches(world, x, 4)))
    after, between = weight(model), float(metric.result())
    last = model.fit(x, 2 * x, batch_size=4, shuffle=False, verbose=0)
    return {**outcome(model, last), "first": first, "own": [loss, after, between]}
