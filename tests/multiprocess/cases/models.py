"""Ways to write, build and compile a model, and what user code inside it may do."""

from __future__ import annotations

import contextlib
import io
import random
import threading
from typing import Any

import keras
import numpy as np

from cases.toy import column, fingerprint, outcome, sgd, toy_model, weight
from cases.world import World


class Subclassed(keras.Model):
    """The toy model as a subclass, built by its first batch."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")

    def call(self, x: Any) -> Any:
        return self.dense(x)


def _unbuilt() -> keras.Model:
    return keras.Sequential([keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")])


def kinds(strategy: Any, world: World) -> dict[str, Any]:
    """Trains the toy, however it is written, on 4 + 1 examples."""
    x = column(1, 2, 3, 4, 5)

    def compiled(make: Any, **arguments: Any) -> keras.Model:
        with strategy.scope():
            model = make()
            model.compile(sgd(), loss="mse", **arguments)
        return model

    def compiled_outside() -> keras.Model:
        with strategy.scope():
            model = toy_model()
        model.compile(sgd(), loss="mse")
        return model

    def compiled_twice() -> keras.Model:
        model = compiled(toy_model)
        with strategy.scope():
            model.compile(sgd(), loss="mse")
        return model

    makers: dict[str, Any] = {
        "sequential_unbuilt": lambda: compiled(_unbuilt),
        "subclassed_unbuilt": lambda: compiled(Subclassed),
        "compiled_outside": compiled_outside,
        "compiled_twice": compiled_twice,
        "run_eagerly": lambda: compiled(toy_model, run_eagerly=True),
        "jit_compile": lambda: compiled(toy_model, jit_compile=True) if world.backend != "torch" else None,
        "no_jit_compile": lambda: compiled(toy_model, jit_compile=False),
    }
    found: dict[str, Any] = {}
    for name, make in makers.items():
        model = make()
        if model is None:
            continue
        history = model.fit(x, 2 * x, batch_size=4, shuffle=False, verbose=0)
        found[name] = outcome(model, history)
    return found


def steps_per_execution(strategy: Any, world: World) -> dict[str, Any]:
    """Three steps an execution, seven steps an epoch, an uneven last batch."""
    x = np.linspace(-1, 1, 27, dtype="float32")[:, None]
    with strategy.scope():
        model = toy_model()
        model.compile(sgd(0.05), loss="mse", steps_per_execution=3)
    history = model.fit(x, 2 * x, batch_size=4, epochs=2, shuffle=False, verbose=0, validation_data=(x, x))
    predicted = model.predict(x, batch_size=4, verbose=0)
    return outcome(model, history, predicted=np.ravel(predicted))


def _own_train_step(backend: str) -> type[keras.Model]:
    """A model class with a training step written by hand, as Keras's guides show it for each backend."""

    if backend == "tensorflow":
        import tensorflow as tf

        class Own(keras.Model):
            def train_step(self, data: Any) -> Any:
                x, y = data
                with tf.GradientTape() as tape:
                    loss = keras.ops.mean((y - self(x, training=True)) ** 2)
                gradients = tape.gradient(loss, self.trainable_variables)
                self.optimizer.apply(gradients, self.trainable_variables)
                return {"own_loss": loss}

    elif backend == "jax":
        import jax

        class Own(keras.Model):  # type: ignore[no-redef]
            def train_step(self, state: Any, data: Any) -> Any:
                trainable, other, optimizer, metrics = state
                x, y = data

                def loss_of(trainable: Any, other: Any) -> Any:
                    y_pred, other = self.stateless_call(trainable, other, x, training=True)
                    return keras.ops.mean((y - y_pred) ** 2), other

                (loss, other), gradients = jax.value_and_grad(loss_of, has_aux=True)(trainable, other)
                trainable, optimizer = self.optimizer.stateless_apply(optimizer, gradients, trainable)
                return {"own_loss": loss}, (trainable, other, optimizer, metrics)

    else:
        import torch

        class Own(keras.Model):  # type: ignore[no-redef]
            def train_step(self, data: Any) -> Any:
                x, y = data
                self.zero_grad()
                loss = keras.ops.mean((y - self(x, training=True)) ** 2)
                loss.backward()
                gradients = [variable.value.grad for variable in self.trainable_weights]
                with torch.no_grad():
                    self.optimizer.apply(gradients, self.trainable_weights)
                return {"own_loss": loss}

    return Own


def r12_custom_train_step(strategy: Any, world: World) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with strategy.scope():
        model = toy_model(_own_train_step(world.backend))
        model.compile(sgd())
    for name, count in (("even", 4), ("unequal", 3)):
        x = column(1, 2, 3, 4)[:count]
        model.set_weights([np.zeros((1, 1), "float32")])
        history = model.fit(x, 2 * x, batch_size=4, shuffle=False, verbose=0)
        found[name] = outcome(model, history)
    return found


class Pair(keras.Model):
    """Two networks, each with an optimizer of its own, trained in turn in one step, as GANs are."""

    def __init__(self, backend: str) -> None:
        super().__init__()
        self.first = keras.layers.Dense(1, kernel_initializer="ones")
        self.second = keras.layers.Dense(1, kernel_initializer="ones")
        self.backend = backend

    def build(self, shape: Any) -> None:
        self.first.build(shape)
        self.second.build(shape)
        self.built = True

    def call(self, x: Any) -> Any:
        return self.first(x) + self.second(x)

    def compile(self, first: Any, second: Any) -> None:
        super().compile(loss="mse")
        self.first_optimizer, self.second_optimizer = first, second

    def train_step(self, data: Any) -> Any:
        x, y = data
        return {
            "first": self._turn(self.first, self.first_optimizer, lambda: keras.ops.mean((self.first(x) - y) ** 2)),
            "second": self._turn(self.second, self.second_optimizer, lambda: keras.ops.mean((self(x) - y) ** 2)),
        }

    def _turn(self, network: Any, optimizer: Any, loss_of: Any) -> Any:
        variables = network.trainable_variables
        if self.backend == "tensorflow":
            import tensorflow as tf

            with tf.GradientTape() as tape:
                loss = loss_of()
            optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        else:
            import torch

            self.zero_grad()
            loss = loss_of()
            loss.backward()
            with torch.no_grad():
                optimizer.apply([v.value.grad for v in variables], variables)
        return loss


def loops_of_its_own(strategy: Any, world: World) -> dict[str, Any]:
    """A class whose loops take parameters of their own, and call Keras's."""

    class Own(keras.Model):
        def fit(self, pairs: Any, rounds: int = 1, *, rate: float = 0.0) -> Any:
            x, y = pairs
            self.optimizer.learning_rate.assign(rate)
            return super().fit(x, y, 4, rounds, verbose=0, shuffle=False, validation_data=(x[:3], y[:3]))

        def evaluate(self, x: Any, y: Any = None, factor: float = 1.0, **more: Any) -> Any:
            found = super().evaluate(x, y, **more)
            return found if isinstance(found, dict) else factor * found

        def predict(self, x: Any, minus: float = 0.0) -> Any:
            return super().predict(x, batch_size=4, verbose=0) - minus

        def train_on_batch(self, pairs: Any) -> Any:
            return super().train_on_batch(*pairs)

        def make_train_function(self, force: bool = False) -> None:
            super().make_train_function(force)
            made.append(self.train_function)

        def save(self, *, folder: Any, tag: str) -> None:
            super().save(folder / f"{tag}.keras")

    made: list[Any] = []
    x = column(1, 2, 3, 4, 5)
    with strategy.scope():
        model = toy_model(Own)
        model.compile(sgd(), loss="mse")
    history = model.fit((x, 2 * x), rounds=2, rate=0.02)
    model.save(folder=world.shared, tag="own")
    return outcome(
        model,
        history,
        made=len(made) > 0 and all(callable(each) for each in made),
        saved=world.rank > 0 or (world.shared / "own.keras").exists(),
        evaluated=model.evaluate(x, 2 * x, 3.0, batch_size=4, verbose=0),
        predicted=np.ravel(model.predict(x, minus=1.0)),
        once=float(model.train_on_batch((x, 2 * x))),
        later=weight(model),
    )


def _own_logs(backend: str) -> type[keras.Model]:
    """A model class that returns metrics as Keras's guides do, one under another name, and two plain numbers."""

    def logs(metrics: dict[str, Any], weight: Any, loss: Any) -> dict[str, Any]:
        metrics["mean_of_losses"] = metrics.pop("tracker")
        return {**metrics, "loss": loss, "norm": keras.ops.sum(weight)}

    class Tracked(keras.Model):
        def __init__(self, *arguments: Any, **more: Any) -> None:
            super().__init__(*arguments, **more)
            self.tracker = keras.metrics.Mean(name="tracker")

    if backend == "jax":
        import jax

        class Own(Tracked):
            def train_step(self, state: Any, data: Any) -> Any:
                trainable, other, optimizer, values = state
                x, y = data

                def loss_of(trainable: Any, other: Any) -> Any:
                    y_pred, other = self.stateless_call(trainable, other, x, training=True)
                    return keras.ops.mean((y - y_pred) ** 2), (y_pred, other)

                (loss, (y_pred, other)), gradients = jax.value_and_grad(loss_of, has_aux=True)(trainable, other)
                trainable, optimizer = self.optimizer.stateless_apply(optimizer, gradients, trainable)
                results, new = {}, []
                for metric in self.metrics:
                    mine = values[len(new) : len(new) + len(metric.variables)]
                    seen = (loss,) if metric.name in ("loss", "tracker") else (y, y_pred)
                    mine = metric.stateless_update_state(mine, *seen)
                    new += mine
                    if metric.name != "loss":
                        results[metric.name] = metric.stateless_result(mine)
                return logs(results, trainable[0], loss), (trainable, other, optimizer, new)

        return Own

    import importlib

    framework = importlib.import_module(backend)

    class OwnEager(Tracked):
        def train_step(self, data: Any) -> Any:
            x, y = data
            if backend == "torch":
                self.zero_grad()
                y_pred = self(x, training=True)
                loss = keras.ops.mean((y - y_pred) ** 2)
                loss.backward()
                with framework.no_grad():
                    self.optimizer.apply([v.value.grad for v in self.trainable_weights], self.trainable_weights)
            else:
                with framework.GradientTape() as tape:
                    y_pred = self(x, training=True)
                    loss = keras.ops.mean((y - y_pred) ** 2)
                self.optimizer.apply(tape.gradient(loss, self.trainable_weights), self.trainable_weights)
            for metric in self.metrics:
                metric.update_state(*((loss,) if metric.name in ("loss", "tracker") else (y, y_pred)))
            results = {m.name: m.result() for m in self.metrics if m.name != "loss"}
            return logs(results, self.trainable_weights[0], loss)

    return OwnEager


def logs_of_its_own(strategy: Any, world: World) -> dict[str, Any]:
    """Six examples in batches of four: in the last each worker has one, with another loss."""
    x = column(1, 2, 3, 4, 5, 1)
    with strategy.scope():
        model = toy_model(_own_logs(world.backend))
        model.compile(sgd(), loss="mse", metrics=["mae"])
    history = model.fit(x, 2 * x, batch_size=4, epochs=2, shuffle=False, verbose=0)
    return outcome(model, history)


def several_optimizers(strategy: Any, world: World) -> dict[str, Any]:
    x = np.random.default_rng(0).random((9, 2), np.float32)
    y = 3 * x.sum(1, keepdims=True)
    with strategy.scope():
        model = Pair(world.backend)
        model.build((None, 2))
        model.compile(keras.optimizers.Adam(0.1), sgd(0.1))
    history = model.fit(x, y, batch_size=4, epochs=2, shuffle=False, verbose=0)
    return {
        "weights": np.concatenate([np.ravel(w) for w in model.get_weights()]),
        "history": history.history,
        "state": fingerprint(model),
        "updates": [int(model.first_optimizer.iterations), int(model.second_optimizer.iterations)],
    }


class Counts(keras.layers.Layer):
    """Counts the steps it was trained for, and notes whether it ever was."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = self.add_weight(shape=(), dtype="int32", initializer="zeros", trainable=False, name="steps")
        self.used = self.add_weight(shape=(), dtype="bool", initializer="zeros", trainable=False, name="used")

    def call(self, x: Any, training: bool = False) -> Any:
        if training:
            self.steps.assign(self.steps + 1)
            self.used.assign(keras.ops.ones((), "bool"))
        return x


def counting_layer(strategy: Any, world: World) -> dict[str, Any]:
    """A last batch of one example leaves a worker without data; its counter must not stay behind."""
    x = column(1, 2, 3, 4, 5)
    found: dict[str, Any] = {}
    for name, eager in (("compiled", False), ("eager", True)):
        with strategy.scope():
            counts = Counts()
            dense = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
            model = keras.Sequential([keras.Input((1,)), counts, dense])
            model.compile(sgd(), loss="mse", run_eagerly=eager)
        history = model.fit(x, 2 * x, batch_size=4, epochs=3, shuffle=False, verbose=0)
        found[name] = outcome(model, history, steps=int(counts.steps.value), used=bool(counts.used.value))
    return found


def loss_without_reduction(strategy: Any, world: World) -> dict[str, Any]:
    x = column(1, 2, 3, 4, 5, 6, 7, 8)
    with strategy.scope():
        model = toy_model()
        model.compile(sgd(0.001), loss=keras.losses.MeanSquaredError(reduction=None))
    history = model.fit(x, 2 * x, batch_size=4, epochs=2, shuffle=False, verbose=0, validation_data=(x, x))
    return outcome(model, history)


def custom_compute_loss(strategy: Any, world: World) -> dict[str, Any]:
    """A model that overrides compute_loss and compute_metrics and keeps a tracker of its own."""

    class Own(keras.Model):
        def __init__(self, *arguments: Any, **more: Any) -> None:
            super().__init__(*arguments, **more)
            self.tracker = keras.metrics.Mean(name="own")

        @property
        def metrics(self) -> list[Any]:
            return [*super().metrics, self.tracker]

        def compute_loss(self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, **_: Any):
            errors = keras.ops.abs(y - y_pred)
            self.tracker.update_state(errors)
            return keras.ops.mean(errors)

    x = column(1, 2, 3, 4, 5)
    with strategy.scope():
        model = toy_model(Own)
        model.compile(sgd())
    history = model.fit(x, 2 * x, batch_size=4, epochs=2, shuffle=False, verbose=0)
    return outcome(model, history)


class Mask(keras.layers.Layer):
    """Passes its input on and keeps the values it saw: in eager execution, on JAX also when compiled."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    def call(self, x: Any) -> Any:
        if keras.backend.backend() == "jax":
            import jax

            jax.debug.callback(lambda value: self.seen.append(np.asarray(value).tolist()), x)
        elif not isinstance(x, keras.KerasTensor) and hasattr(x, "numpy"):
            self.seen.append(keras.ops.convert_to_numpy(x).tolist())
        return x


def r28_equal_start_unequal_noise(strategy: Any, world: World) -> dict[str, Any]:
    ones = np.ones((4 * world.size, 16), "float32")
    found: dict[str, Any] = {}
    for name in ("unseeded", "seeded"):
        if name == "seeded":
            keras.utils.set_random_seed(0)
        else:
            random.seed(1000 + world.rank)
            np.random.seed(1000 + world.rank)

        class Starts(keras.callbacks.Callback):
            def __init__(self) -> None:
                super().__init__()
                self.state: list[Any] = []

            def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
                if not self.state:
                    self.state = [np.asarray(w).tolist() for w in self.model.get_weights()[:2]]

        starts = Starts()
        with strategy.scope():
            mask = Mask()
            model = keras.Sequential([keras.Input((16,)), keras.layers.Dropout(0.5), mask, keras.layers.Dense(1)])
            model.compile(sgd(), loss="mse", run_eagerly=world.backend != "jax")
        model.fit(ones, ones[:, :1], batch_size=len(ones), shuffle=False, verbose=0, callbacks=[starts])
        masks = [seen for seen in mask.seen if 0.0 in np.ravel(seen)]
        found[name] = {"start": starts.state, "mask": masks[-1], "state": fingerprint(model)}
    return found


def r22_stop_on_one_rank(strategy: Any, world: World) -> dict[str, Any]:
    class Stop(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            if epoch == 1 and world.rank == world.size - 1:
                self.model.stop_training = True

    class StopInside(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch == 2 and world.rank == world.size - 1:
                self.model.stop_training = True

    class StopBefore(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            if batch == 2 and world.rank == world.size - 1:
                self.model.stop_training = True

    x = np.linspace(-1, 1, 20, dtype="float32")[:, None]
    with strategy.scope():
        model = toy_model()
        model.compile(sgd(0.01), loss="mse")

    class StopEarly(keras.callbacks.Callback):
        def __init__(self, epoch: int) -> None:
            super().__init__()
            self.at = epoch

        def on_train_begin(self, logs: Any = None) -> None:
            if self.at < 0 and world.rank == world.size - 1:
                self.model.stop_training = True

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            if epoch == self.at and world.rank == world.size - 1:
                self.model.stop_training = True

    stops = {
        "at_epoch_end": Stop(), "inside_an_epoch": StopInside(), "before_a_batch": StopBefore(),
        "before_an_epoch": StopEarly(1), "before_all": StopEarly(-1),
    }  # fmt: skip
    found = {}
    for where, stop in stops.items():
        history = model.fit(x, x, batch_size=4, epochs=5, shuffle=False, verbose=0, callbacks=[stop])
        found[where] = outcome(model, history)
    # The validation loss rises as the weight leaves zero.
    early = keras.callbacks.EarlyStopping(monitor="val_loss", patience=1, restore_best_weights=True)
    model.set_weights([np.zeros((1, 1), "float32")])
    history = model.fit(
        x, x, batch_size=4, epochs=6, shuffle=False, verbose=0, callbacks=[early], validation_data=(x[:3], 0 * x[:3])
    )
    found["early_stopping"] = outcome(model, history)
    return found


def outputs_of_any_rows(strategy: Any, world: World) -> dict[str, Any]:
    """`predict` of a model with more rows than examples, of one in bfloat16, and of one that answers in words."""
    x = np.arange(60, dtype="float32").reshape(5, 3, 4)
    with strategy.scope():
        inputs = keras.Input((3, 4))
        rows = keras.layers.Lambda(lambda t: keras.ops.reshape(t, (-1, 4)), output_shape=(4,))(inputs)
        many = keras.Model(inputs, rows)
        half = keras.Sequential([keras.Input((3, 4)), keras.layers.Activation("relu", dtype="bfloat16")])
    found: dict[str, Any] = {
        "rows": many.predict(x, batch_size=4, verbose=0).ravel()[::4].tolist(),
        "half": keras.ops.convert_to_numpy(keras.ops.cast(half.predict(x, batch_size=4, verbose=0), "float32"))
        .ravel()[::7]
        .tolist(),
        "words": None,
    }
    if keras.backend.backend() == "tensorflow":
        with strategy.scope():
            numbers = keras.Input((1,), dtype="int64")
            words = keras.layers.StringLookup(vocabulary=["a", "b", "c"], invert=True)(numbers)
            model = keras.Model(numbers, words)
        found["words"] = (
            model.predict(np.array([[1], [2], [3], [0], [1]]), batch_size=4, verbose=0).astype(str).tolist()
        )
    return found


def stops_outside_of_training(strategy: Any, world: World) -> dict[str, Any]:
    """One worker's callback ends `evaluate`, the validation of `fit` and `predict`."""
    x = np.linspace(-1, 1, 20, dtype="float32")[:, None]
    with strategy.scope():
        model = toy_model()
        model.compile(sgd(0.01), loss="mse")

    class Stop(keras.callbacks.Callback):
        tested = 0

        def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
            self.tested += 1
            if batch == 2 and world.rank == world.size - 1:
                self.model.stop_evaluating = True

        def on_predict_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch == 1 and world.rank == world.size - 1:
                self.model.stop_predicting = True

    stop = Stop()
    history = model.fit(
        x, x, batch_size=4, epochs=2, shuffle=False, verbose=0, callbacks=[stop], validation_data=(x, x)
    )
    return outcome(
        model,
        history,
        evaluated=model.evaluate(x, x, batch_size=4, verbose=0, callbacks=[stop]),
        tested=stop.tested,
        predicted=len(model.predict(x, batch_size=4, verbose=0, callbacks=[stop])),
    )


def callbacks_stay_in_the_loop(strategy: Any, world: World) -> dict[str, Any]:
    """A callback that Keras may call in another thread says in which it was called."""
    own = threading.get_ident()
    called: list[bool] = []

    class Notes(keras.callbacks.Callback):
        async_safe = True

        def note(self, batch: int, logs: Any = None) -> None:
            called.append(threading.get_ident() == own)

        on_train_batch_end = on_test_batch_end = on_predict_batch_end = note

    x = np.linspace(-1, 1, 8, dtype="float32")[:, None]
    with strategy.scope():
        model = toy_model()
        model.compile(sgd(0.1), loss="mse")
    model.fit(x, x, batch_size=4, shuffle=False, verbose=0, callbacks=[Notes()])
    model.evaluate(x, x, batch_size=4, verbose=0, callbacks=[Notes()])
    model.predict(x, batch_size=4, verbose=0, callbacks=[Notes()])
    return {"called": called}


def callbacks_agree(strategy: Any, world: World) -> dict[str, Any]:
    """ReduceLROnPlateau, TerminateOnNaN and a learning rate that one worker's callback changes by global logs."""
    x = np.linspace(-1, 1, 10, dtype="float32")[:, None]
    with strategy.scope():
        model = toy_model()
        model.compile(sgd(0.1), loss="mse")
    plateau = keras.callbacks.ReduceLROnPlateau(monitor="val_loss", factor=0.5, patience=0, min_delta=10.0)
    seen: list[Any] = []
    each = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: seen.append([epoch, sorted(logs)]))
    history = model.fit(
        x, x, batch_size=4, epochs=3, shuffle=False, verbose=0, callbacks=[plateau, each], validation_data=(x, x)
    )
    found = {"plateau": outcome(model, history), "seen": seen}
    # The not-a-number is in the slice of one worker only.
    x = x.copy()
    x[3] = np.nan
    terminated = model.fit(
        x, x, batch_size=4, epochs=3, shuffle=False, verbose=0, callbacks=[keras.callbacks.TerminateOnNaN()]
    )
    found["terminated"] = {"epochs": len(terminated.epoch), "updates": int(model.optimizer.iterations)}
    return found


def printed(strategy: Any, world: World) -> dict[str, Any]:
    """What `fit`, `evaluate` and `predict` print with default verbosity."""
    x = column(1, 2, 3, 4, 5)
    with strategy.scope():
        model = toy_model()
        model.compile(sgd(), loss="mse")
    found: dict[str, Any] = {}
    for name, call in (
        ("fit", lambda: model.fit(x, 2 * x, batch_size=4)),
        ("evaluate", lambda: model.evaluate(x, 2 * x, batch_size=4)),
        ("predict", lambda: model.predict(x, batch_size=4)),
    ):
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            call()
        found[name] = text.getvalue()
    return found


def r26_late_strategy(strategy: Any, world: World) -> dict[str, Any]:
    """A strategy made (again) after tensors and models; and a model that no scope ever saw."""
    x = column(1, 2, 3, 4)
    if not world.plain:
        import unisono

        again = unisono.MultiWorkerMirroredStrategy()
        assert again.num_replicas_in_sync == strategy.num_replicas_in_sync == world.size
        strategy = again
    with strategy.scope():
        model = toy_model()
        model.compile(sgd(), loss="mse")
    history = model.fit(x, 2 * x, batch_size=4, shuffle=False, verbose=0)
    found = {"again": outcome(model, history), "late": world.early is not None}
    if world.early is not None:
        model = world.early
        with strategy.scope():
            model.compile(sgd(), loss="mse")
        history = model.fit(x, 2 * x, batch_size=4, shuffle=False, verbose=0)
        found["made_before"] = outcome(model, history)
    return found


def never_in_scope(strategy: Any, world: World) -> dict[str, Any]:
    """Law 6: a model fitted outside any scope while several workers are connected is no silent accident."""
    x = column(1, 2, 3, 4)
    model = toy_model()
    model.compile(sgd(), loss="mse")
    text = io.StringIO()
    import logging

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            text.write(record.getMessage() + "\n")

    handler = Keep()
    logging.getLogger("unisono").addHandler(handler)
    try:
        with contextlib.redirect_stderr(text), contextlib.redirect_stdout(text):
            model.fit(x, 2 * x, batch_size=4, shuffle=False, verbose=0)
    except Exception as error:  # noqa: BLE001 - a refusal is an answer too
        text.write(f"{type(error).__name__}: {error}")
    finally:
        logging.getLogger("unisono").removeHandler(handler)
    return {"told": text.getvalue(), "weight": weight(model)}


def strategy_surface(strategy: Any, world: World) -> dict[str, Any]:
    """Names that scripts written for tf.distribute use."""
    resolver = strategy.cluster_resolver
    return {
        "replicas": strategy.num_replicas_in_sync,
        "rank": strategy.rank,
        "chief": strategy.is_chief,
        "type": resolver.task_type,
        "id": resolver.task_id,
        "workers": len(resolver.cluster_spec().as_dict().get("worker", [])),
    }
