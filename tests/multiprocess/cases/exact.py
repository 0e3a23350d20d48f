"""Cases whose right answer is a number that one process computes."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from cases.toy import column, fingerprint, outcome, sgd, state, toy_model, weight
from cases.world import World


def _fit_toy(strategy: Any, x: np.ndarray, y: np.ndarray, *, batch: int = 4, **fit: Any) -> dict[str, Any]:
    with strategy.scope():
        model = toy_model()
        model.compile(sgd(), loss="mse")
    history = model.fit(x, y, batch_size=batch, epochs=1, shuffle=False, verbose=0, **fit)
    return outcome(model, history)


def r01_parity(strategy: Any, world: World) -> dict[str, Any]:
    x = column(1, 2, 3, 4)
    return _fit_toy(strategy, x, 2 * x)


def r02_partial_batch(strategy: Any, world: World) -> dict[str, Any]:
    x = column(1, 2, 3, 4, 5)
    return _fit_toy(strategy, x, 2 * x)


def r03_unequal_halves(strategy: Any, world: World) -> dict[str, Any]:
    x = column(1, 2, 3)
    return _fit_toy(strategy, x, 2 * x)


def r29_seven_samples(strategy: Any, world: World) -> dict[str, Any]:
    x = column(1, 2, 3, 4, 5, 6, 7) / 4
    return _fit_toy(strategy, x, 2 * x, batch=6)


def r11_sample_weights(strategy: Any, world: World) -> dict[str, Any]:
    x = column(1, 2, 3, 4)
    y, weights = 2 * x, np.array([1, 1, 0, 4], "float32")
    found: dict[str, Any] = {}
    for reduction in ("sum_over_batch_size", "mean_with_sample_weight"):
        with strategy.scope():
            model = toy_model()
            model.compile(
                sgd(),
                loss=keras.losses.MeanSquaredError(reduction=reduction),
                weighted_metrics=["mse"],
                metrics=["mae"],
            )
        history = model.fit(x, y, sample_weight=weights, batch_size=4, shuffle=False, verbose=0)
        found[reduction] = outcome(model, history)
    return found


def r11_uneven_sample_weights(strategy: Any, world: World) -> dict[str, Any]:
    """All reductions on a batch of 5 and one of 2, with weights that differ between the parts."""
    x = column(1, 2, 3, 4, 5, 1, 2)
    y, weights = 2 * x, np.array([1, 0.5, 0, 4, 2, 3, 0.25], "float32")
    found: dict[str, Any] = {}
    for reduction in ("sum_over_batch_size", "mean_with_sample_weight", "sum"):
        with strategy.scope():
            model = toy_model()
            model.compile(sgd(), loss=keras.losses.MeanSquaredError(reduction=reduction), weighted_metrics=["mse"])
        validation = (x, y, weights) if reduction == "mean_with_sample_weight" else None
        history = model.fit(
            x, y, sample_weight=weights, batch_size=5, shuffle=False, verbose=0, validation_data=validation
        )
        found[reduction] = outcome(model, history)
    return found


def r11_class_weight(strategy: Any, world: World) -> dict[str, Any]:
    x, labels = column(1, 2, 3, 4), np.array([0, 1, 1, 0], "int32")
    with strategy.scope():
        inputs = keras.Input((1,))
        model = keras.Model(inputs, keras.layers.Dense(2, kernel_initializer="zeros", activation="softmax")(inputs))
        model.compile(sgd(0.1), loss="sparse_categorical_crossentropy", weighted_metrics=["accuracy"])
    history = model.fit(x, labels, class_weight={0: 1.0, 1: 3.0}, batch_size=3, shuffle=False, verbose=0)
    return outcome(model, history)


def r08_auc_and_precision(strategy: Any, world: World) -> dict[str, Any]:
    def evaluate(scores: np.ndarray, labels: np.ndarray, metric: keras.metrics.Metric, batch: int) -> dict[str, float]:
        with strategy.scope():
            model = keras.Sequential([keras.Input((1,)), keras.layers.Identity()])
            model.compile(sgd(), loss="mse", metrics=[metric])
        return model.evaluate(scores, labels, batch_size=batch, verbose=0, return_dict=True)

    auc = evaluate(column(0.1, 0.2, 0.8, 0.9), column(0, 1, 0, 1), keras.metrics.AUC(num_thresholds=200, name="m"), 4)
    # Worker 0: one true positive. Worker 1: one true and three false ones.
    scores, labels = column(1, 0, 0, 0, 1, 1, 1, 1), column(1, 0, 0, 0, 1, 0, 0, 0)
    precision = evaluate(scores, labels, keras.metrics.Precision(name="m"), 8)
    return {"auc": auc, "precision": precision}


class Counter(keras.metrics.Metric):
    """Counts examples in an integer weight."""

    def __init__(self, name: str = "seen") -> None:
        super().__init__(name=name)
        self.total = self.add_weight(shape=(), initializer="zeros", dtype="int32", name="total")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        self.total.assign_add(keras.ops.cast(keras.ops.shape(y_true)[0], "int32"))

    def result(self) -> Any:
        # Not the variable itself: what it holds later would change what was logged.
        return self.total + 0


def r09_counter_metric(strategy: Any, world: World) -> dict[str, Any]:
    x = np.arange(121, dtype="float32")[:, None] / 121
    with strategy.scope():
        model = toy_model()
        model.compile(sgd(), loss="mse", metrics=[Counter()])
    twice = [model.evaluate(x[:120], x[:120], batch_size=12, verbose=0, return_dict=True) for _ in range(2)]
    history = model.fit(
        x, x, batch_size=12, epochs=2, verbose=0, validation_data=(x[:5], x[:5]), validation_batch_size=4
    )
    return outcome(model, history, evaluate=twice)


def r10_batch_norm(strategy: Any, world: World) -> dict[str, Any]:
    x = column(0, 0, 0, 0, 10, 10, 10, 10)
    found: dict[str, Any] = {}
    for synchronized in (False, True):
        try:
            with strategy.scope():
                layer = keras.layers.BatchNormalization(momentum=0.9, synchronized=synchronized)
                model = keras.Sequential([keras.Input((1,)), layer])
                model.compile(sgd(), loss="mse")
            model.fit(x, x, batch_size=8, shuffle=False, verbose=0)
        except ValueError as error:
            found[f"synchronized={synchronized}"] = f"{type(error).__name__}: {error}"
            continue
        found[f"synchronized={synchronized}"] = {
            "mean": float(keras.ops.convert_to_numpy(layer.moving_mean)[0]),
            "variance": float(keras.ops.convert_to_numpy(layer.moving_variance)[0]),
            "state": fingerprint(model),
        }
    return found


def r13_clip_after_reduce(strategy: Any, world: World) -> dict[str, Any]:
    x, y = column(1, 2, 1, 0), column(2, 4, -0.5, 0)
    found: dict[str, Any] = {}
    for clip in ("global_clipnorm", "clipnorm", "clipvalue"):
        with strategy.scope():
            model = toy_model()
            model.compile(sgd(0.1, **{clip: 1.0}), loss="mse")
        history = model.fit(x, y, batch_size=4, shuffle=False, verbose=0)
        found[clip] = outcome(model, history)
    return found


class WeightLog(keras.callbacks.Callback):
    """Keeps the weight and the number of updates after every batch."""

    def __init__(self) -> None:
        super().__init__()
        self.weights: list[float] = []
        self.iterations: list[int] = []
        self.scales: list[float] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        model = self.model
        self.weights.append(weight(model))
        self.iterations.append(int(model.optimizer.iterations))
        if hasattr(model.optimizer, "dynamic_scale"):
            self.scales.append(float(model.optimizer.dynamic_scale))


def r14_accumulation(strategy: Any, world: World) -> dict[str, Any]:
    x, log = column(1, 2, 3, 4), WeightLog()
    with strategy.scope():
        model = toy_model()
        model.compile(sgd(gradient_accumulation_steps=2), loss="mse")
    history = model.fit(x, 2 * x, batch_size=2, shuffle=False, verbose=0, callbacks=[log])
    return outcome(model, history, weights=log.weights, updates=log.iterations)


def r15_loss_scale(strategy: Any, world: World) -> dict[str, Any]:
    x = np.tile(column(1, 2, 1, 2), (5, 1))
    x[11] = np.inf
    log = WeightLog()
    with strategy.scope():
        model = toy_model()
        model.compile(keras.optimizers.LossScaleOptimizer(sgd(), initial_scale=2.0**15), loss="mse")
    history = model.fit(x, np.ones_like(x), batch_size=4, shuffle=False, verbose=0, callbacks=[log])
    return outcome(model, history, weights=log.weights, scales=log.scales)


def r15_mixed_precision(strategy: Any, world: World) -> dict[str, Any]:
    x = np.linspace(-1, 1, 11, dtype="float32")[:, None]
    with strategy.scope():
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, kernel_initializer="zeros")])
        for layer in model.layers:
            layer.dtype_policy = "mixed_float16"
        model.compile(keras.optimizers.LossScaleOptimizer(sgd(0.1), initial_scale=2.0**10), loss="mse")
    history = model.fit(x, 2 * x, batch_size=4, shuffle=False, verbose=0, epochs=2)
    return outcome(model, history, scale=float(model.optimizer.dynamic_scale))


def r16_sparse_gradients(strategy: Any, world: World) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with strategy.scope():
        inputs = keras.Input((1,), dtype="int32")
        hidden = keras.layers.Embedding(6, 1, embeddings_initializer="zeros")(inputs)
        model = keras.Model(inputs, keras.layers.Reshape((1,))(hidden))
        model.compile(sgd(0.1), loss="mse")
    for name, ids, batch in (
        ("even", [0, 1, 1, 2], 4),
        ("unequal", [0, 0, 1, 2, 3], 5),
        ("empty", [0, 1, 1, 2, 2], 4),
    ):
        model.set_weights([np.zeros((6, 1), "float32")])
        rows = np.array(ids, "int32")[:, None]
        model.fit(rows, np.ones(rows.shape, "float32"), batch_size=batch, shuffle=False, verbose=0)
        found[name] = {"rows": model.get_weights()[0].ravel(), "state": fingerprint(model)}
    # Adam squares the rows of each example by itself, also those of the same id.
    with strategy.scope():
        inputs = keras.Input((3,), dtype="int32")
        hidden = keras.layers.Embedding(6, 2, embeddings_initializer="zeros")(inputs)
        model = keras.Model(inputs, keras.layers.Dense(1, kernel_initializer="ones")(keras.layers.Flatten()(hidden)))
        model.compile(keras.optimizers.Adam(0.1), loss="mse")
    ids = np.array([[0, 1, 1], [1, 2, 0], [1, 1, 1], [0, 2, 1], [1, 5, 5]], "int32")
    history = model.fit(ids, column(1, 2, 3, 4, 5), batch_size=4, epochs=3, shuffle=False, verbose=0)
    found["repeated"] = {"rows": model.get_weights()[0].ravel(), "state": fingerprint(model), **history.history}
    # A large table, of which a batch touches a few rows.
    with strategy.scope():
        inputs = keras.Input((2,), dtype="int32")
        hidden = keras.layers.Embedding(200_000, 8, embeddings_initializer="zeros")(inputs)
        model = keras.Model(inputs, keras.layers.Dense(1, kernel_initializer="ones")(keras.layers.Flatten()(hidden)))
        model.compile(keras.optimizers.Adam(0.1), loss="mse")
    ids = np.array([[0, 5], [199_999, 5], [7, 7], [5, 100_000], [0, 7]], "int32")
    history = model.fit(ids, np.ones((5, 1), "float32"), batch_size=4, epochs=2, shuffle=False, verbose=0)
    table = model.get_weights()[0]
    touched = np.flatnonzero(np.any(table != 0, axis=1))
    found["large"] = {
        "touched": touched,
        "rows": table[touched].ravel(),
        "state": fingerprint(model),
        **history.history,
    }
    return found


def r17_two_outputs(strategy: Any, world: World) -> dict[str, Any]:
    a, b = column(1, 2, 3, 4, 5, 6, 7, 8), column(5, 4, 3, 2, 1, 0, 1, 2) / 2
    with strategy.scope():
        inputs = {"a": keras.Input((1,), name="a"), "b": keras.Input((1,), name="b")}
        joined = keras.layers.Concatenate()([inputs["a"], inputs["b"]])
        outputs = {
            "y": keras.layers.Dense(1, kernel_initializer="zeros", name="y")(joined),
            "z": keras.layers.Dense(1, kernel_initializer="zeros", name="z")(joined),
        }
        model = keras.Model(inputs, outputs)
        model.compile(
            sgd(0.005), loss={"y": "mse", "z": "mae"}, loss_weights={"y": 1.0, "z": 0.5}, metrics={"y": ["mae"]}
        )
    history = model.fit(
        {"a": a, "b": b}, {"y": 2 * a, "z": a - b}, batch_size=4, epochs=2, shuffle=False, verbose=0,
        validation_data=({"a": a[:3], "b": b[:3]}, {"y": a[:3], "z": b[:3]}),
    )  # fmt: skip
    more = model.fit(
        {"a": a[:5], "b": b[:5]}, {"y": 2 * a[:5], "z": (a - b)[:5]}, batch_size=4, shuffle=False, verbose=0
    )  # fmt: skip
    predicted = model.predict({"a": a[:5], "b": b[:5]}, batch_size=4, verbose=0)
    import tensorflow as tf

    dataset = tf.data.Dataset.from_tensor_slices(({"a": a, "b": b}, {"y": 2 * a, "z": a - b})).batch(3)
    last = model.fit(dataset, verbose=0)
    return outcome(model, history, predicted=predicted, uneven=more.history, dataset=last.history["loss"])


def losses_once(strategy: Any, world: World) -> dict[str, Any]:
    """Regularisers, activity regularisers and add_loss, on an uneven last batch."""

    class Extra(keras.layers.Layer):
        def call(self, x: Any) -> Any:
            self.add_loss(0.1 * keras.ops.mean(x**2))
            return x

    x = column(1, 2, 3, 4, 5) / 2
    with strategy.scope():
        inputs = keras.Input((1,))
        hidden = Extra()(
            keras.layers.Dense(
                1, kernel_initializer="ones", kernel_regularizer=keras.regularizers.L2(0.3),
                bias_regularizer="l1", activity_regularizer=keras.regularizers.L2(0.05),
            )(inputs)
        )  # fmt: skip
        model = keras.Model(inputs, hidden)
        model.compile(sgd(), loss="mse")
    history = model.fit(x, 2 * x, batch_size=4, epochs=2, shuffle=False, verbose=0, validation_data=(x, x))
    return outcome(model, history)


def weights_assigned_in_the_forward_pass(strategy: Any, world: World) -> dict[str, Any]:
    """SpectralNormalization sets its kernel in each forward pass, also where a worker has no examples."""
    x = np.random.default_rng(0).normal(size=(9, 4)).astype("float32")
    found: dict[str, Any] = {}
    for way in ("compiled", "eager"):
        with strategy.scope():
            dense = keras.layers.Dense(3, kernel_initializer=keras.initializers.Orthogonal(gain=2.0, seed=1))
            normal = keras.layers.SpectralNormalization(dense)
            model = keras.Sequential([keras.Input((4,)), normal, keras.layers.Dense(1)])
            model.compile(sgd(0.05), loss="mse", run_eagerly=way == "eager")
        model.set_weights([np.linspace(-1, 1, w.size, dtype="float32").reshape(w.shape) for w in model.get_weights()])
        history = model.fit(x, x[:, :1], batch_size=4, epochs=3, shuffle=False, verbose=0)
        found[way] = outcome(model, history, sums=[float(np.sum(w)) for w in model.get_weights()])
    return found


def ignored_class(strategy: Any, world: World) -> dict[str, Any]:
    """A loss that leaves examples out by a mask of its own, as in segmentation; parts hold different numbers."""
    x = np.random.default_rng(3).normal(size=(7, 5, 4)).astype("float32")
    y = np.random.default_rng(4).integers(0, 3, (7, 5))
    y[:2, 2:], y[6, 1:] = 0, 0
    with strategy.scope():
        model = keras.Sequential([keras.Input((5, 4)), keras.layers.Dense(3, kernel_initializer="ones")])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=0)
        model.compile(sgd(0.05), loss)
    history = model.fit(x, y, batch_size=4, epochs=2, shuffle=False, verbose=0, validation_data=(x, y))
    return outcome(model, history)


def own_trackers(strategy: Any, world: World) -> dict[str, Any]:
    """A `train_step` and a `compute_loss` of the user's own that give a `Mean` one number for each batch."""

    class Tracked(keras.Model):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.own = keras.metrics.Mean(name="own")

        @property
        def metrics(self) -> Any:
            return [*super().metrics, self.own]

        def compute_loss(
            self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, training: bool = True
        ) -> Any:
            loss = keras.ops.mean((y - y_pred) ** 2)
            self.own.update_state(loss)
            return loss

    x = column(1, 2, 3, 4, 5)
    with strategy.scope():
        inputs = keras.Input((1,))
        model = Tracked(inputs, keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")(inputs))
        model.compile(sgd(0.01), "mse")
    history = model.fit(x, 2 * x, batch_size=4, epochs=2, shuffle=False, verbose=0, validation_data=(x[:3], x[:3]))
    return outcome(model, history)


def optimizers(strategy: Any, world: World) -> dict[str, Any]:
    """Optimizers with state of their own: AdamW with decay and EMA, accumulation with clipping, Lion, schedules."""
    x = np.linspace(-1, 1, 11, dtype="float32")[:, None]
    makers = {
        "adamw_ema": lambda: keras.optimizers.AdamW(
            0.05, weight_decay=0.1, use_ema=True, ema_momentum=0.8, ema_overwrite_frequency=2
        ),
        "accumulate_clip": lambda: keras.optimizers.Adam(0.05, gradient_accumulation_steps=2, global_clipnorm=0.5),
        "schedule": lambda: keras.optimizers.RMSprop(keras.optimizers.schedules.CosineDecay(0.1, 6), clipvalue=0.3),
    }
    found: dict[str, Any] = {}
    for name, make in makers.items():
        with strategy.scope():
            model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, kernel_initializer="zeros")])
            model.compile(make(), loss="mse")
        history = model.fit(x, 2 * x + 1, batch_size=4, epochs=2, shuffle=False, verbose=0)
        found[name] = outcome(model, history, weights=[np.asarray(w) for w in model.get_weights()])
    return found


class StateLog(keras.callbacks.Callback):
    """Keeps a fingerprint after every batch."""

    def __init__(self) -> None:
        super().__init__()
        self.states: list[str] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.states.append(fingerprint(self.model))


def r31_state_is_one(strategy: Any, world: World) -> dict[str, Any]:
    from cases.toy import seeds

    x = np.random.default_rng(0).normal(size=(25, 4)).astype("float32")
    log = StateLog()
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input((4,)),
                keras.layers.Dense(3),
                keras.layers.BatchNormalization(),
                keras.layers.Dropout(0.5),
                keras.layers.Dense(1),
            ]
        )
        model.compile(keras.optimizers.Adam(0.01, use_ema=True), loss="mse")
    history = model.fit(x, x[:, :1], batch_size=8, epochs=2, verbose=0, callbacks=[log])
    return outcome(model, history, states=log.states, seeds=seeds(model), variables=len(state(model)))


def _images(count: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(7)
    labels = generator.integers(0, 4, count)
    images = generator.normal(size=(count, 6, 6, 1)).astype("float32")
    images += labels[:, None, None, None] * 0.3
    return images, labels.astype("int32")


def r30_world_size_invariant(strategy: Any, world: World) -> dict[str, Any]:
    images, labels = _images(1101)
    keras.utils.set_random_seed(3)
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input((6, 6, 1)),
                keras.layers.Conv2D(4, 3, activation="relu"),
                keras.layers.Flatten(),
                keras.layers.Dense(4),
            ]
        )
        model.compile("adam", loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    history = model.fit(
        images[:1000], labels[:1000], batch_size=96, epochs=2, verbose=0, shuffle=True,
        validation_data=(images[1000:], labels[1000:]),
    )  # fmt: skip
    return outcome(model, history, weights=[np.asarray(w) for w in model.get_weights()])


def batch_logs(strategy: Any, world: World) -> dict[str, Any]:
    """What a user's batch callback is told, in fit and in evaluate."""

    class Logs(keras.callbacks.Callback):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[Any] = []

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.seen.append([batch, {key: float(value) for key, value in logs.items()}])

        def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
            self.seen.append([-1 - batch, {key: float(value) for key, value in logs.items()}])

    class Several(keras.metrics.Metric):
        """Gives two results."""

        def __init__(self) -> None:
            super().__init__(name="several")
            self.total = self.add_weight(name="total", initializer="zeros")
            self.count = self.add_weight(name="count", initializer="zeros")

        def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
            self.total.assign_add(keras.ops.sum(y_pred - y_true))
            self.count.assign_add(keras.ops.cast(keras.ops.size(y_true), "float32"))

        def result(self) -> Any:
            return {"sum": 1.0 * self.total, "mean": keras.ops.divide_no_nan(self.total, self.count)}

    x, logs = column(1, 2, 3, 4, 5, 6, 7), Logs()
    with strategy.scope():
        model = toy_model()
        model.compile(sgd(0.001), loss="mse", metrics=["mae", Several()])
    history = model.fit(
        x, 2 * x, batch_size=3, epochs=2, shuffle=False, verbose=0, callbacks=[logs], validation_data=(x, x),
        validation_batch_size=4,
    )  # fmt: skip
    return outcome(model, history, seen=logs.seen)
