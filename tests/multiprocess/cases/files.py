"""What a run writes, what is read back, and how a run goes on after an end."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np

from cases.toy import fingerprint, outcome, sgd, toy_model, weight
from cases.world import World

X = np.linspace(-1, 1, 11, dtype="float32")[:, None]

TURNS = 20

PLAIN_TURNS = 4
"""Enough to compare with."""


def r18_shared_paths(strategy: Any, world: World) -> dict[str, Any]:
    """Stock callbacks and saves with one path for all workers, many times over."""
    repeats = PLAIN_TURNS if world.plain else TURNS
    with strategy.scope():
        model = toy_model()
        model.compile(sgd(0.1), loss="mse")
    weights = []
    for turn in range(repeats):
        folder = world.shared / str(turn)
        callbacks = [
            keras.callbacks.ModelCheckpoint(folder / "best.keras", monitor="val_loss", save_best_only=True),
            keras.callbacks.CSVLogger(folder / "log.csv"),
        ]
        if turn == 0:
            callbacks.append(keras.callbacks.TensorBoard(folder / "tb"))
        if world.rank == 0:
            folder.mkdir(exist_ok=True)
        model.set_weights([np.full((1, 1), turn / 10, "float32")])
        history = model.fit(
            X, 2 * X, batch_size=4, epochs=3, shuffle=False, verbose=0, validation_data=(X, 2 * X), callbacks=callbacks
        )
        if turn % 2 == 0 or strategy.is_chief:
            model.save(folder / "final.keras")
        weights.append(weight(model))
    return outcome(model, history, weights=weights, folder=world.shared)


def _small_net() -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((1,)),
            keras.layers.Dense(3, activation="tanh"),
            keras.layers.BatchNormalization(),
            keras.layers.Dropout(0.2),
            keras.layers.Dense(1),
        ]
    )


def r32_write(strategy: Any, world: World) -> dict[str, Any]:
    """Saves in all formats, goes on training from the loaded file, and tells what it predicts."""
    with strategy.scope():
        model = _small_net()
        model.compile(keras.optimizers.Adam(0.05), loss="mse", metrics=["mae"])
    checkpoint = world.shared / "checkpoint.keras"
    weights = world.shared / "epoch{epoch}.weights.h5"
    history = model.fit(
        X, 2 * X, batch_size=4, epochs=2, shuffle=False, verbose=0,
        callbacks=[
            keras.callbacks.ModelCheckpoint(checkpoint),
            keras.callbacks.ModelCheckpoint(weights, save_weights_only=True),
        ],
    )  # fmt: skip
    model.save(world.shared / "saved.keras")
    model.save_weights(world.shared / "saved.weights.h5")
    keras.saving.save_model(model, world.shared / "function.keras")
    keras.saving.save_weights(model, world.shared / "function.weights.h5")
    keras.saving.save_model(model, world.shared / "legacy.h5")
    if world.backend != "torch":
        model.export(world.shared / "exported", verbose=False)
    predicted = model.predict(X, verbose=0)
    iterations = int(model.optimizer.iterations)
    with strategy.scope():
        loaded = keras.models.load_model(world.shared / "saved.keras")
    same = fingerprint(loaded) == fingerprint(model)
    after = loaded.fit(X, 2 * X, batch_size=4, epochs=1, shuffle=False, verbose=0)
    return {
        "predicted": predicted,
        "history": history.history,
        "after": after.history,
        "after_state": fingerprint(loaded),
        "after_iterations": int(loaded.optimizer.iterations),
        "iterations": iterations,
        "same": same,
        "folder": world.shared,
    }


def r32_read(strategy: Any, world: World) -> dict[str, Any]:
    """Reads in a process without unisono what `r32_write` and `r18_shared_paths` wrote."""
    folder = Path(world.arguments["r32"])
    found: dict[str, Any] = {}
    for name in ("saved.keras", "checkpoint.keras", "function.keras"):
        model = keras.models.load_model(folder / name)
        found[name] = {
            "predicted": model.predict(X, verbose=0),
            "iterations": int(model.optimizer.iterations),
            "momentum": sum(float(keras.ops.sum(keras.ops.abs(v))) for v in model.optimizer.variables[2:]),
        }
    for name in ("saved.weights.h5", "epoch2.weights.h5", "function.weights.h5"):
        model = _small_net()
        model.load_weights(folder / name)
        found[name] = {"predicted": model.predict(X, verbose=0)}
    # Keras itself cannot read back "mse" from this format.
    legacy = keras.models.load_model(folder / "legacy.h5", compile=False)
    found["legacy.h5"] = {"predicted": legacy.predict(X, verbose=0)}
    if (folder / "exported").exists():
        import tensorflow as tf

        exported = tf.saved_model.load(str(folder / "exported"))
        found["exported"] = {"predicted": exported.serve(X)}
    shared = Path(world.arguments["r18"])
    turns = sorted(shared.iterdir(), key=lambda path: int(path.name))
    found["final"] = {path.name: weight(keras.models.load_model(path / "final.keras")) for path in turns}
    found["best"] = [weight(keras.models.load_model(path / "best.keras")) for path in turns]
    found["logs"] = [len((path / "log.csv").read_text().splitlines()) for path in turns]
    return found


class _Epochs(keras.callbacks.Callback):
    """Keeps the epochs that begin; on one worker, ends the process in the middle of one."""

    def __init__(self, kill_in_epoch: int | None) -> None:
        super().__init__()
        self.kill_in_epoch = kill_in_epoch
        self.epochs: list[int] = []

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.epochs.append(epoch)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch == 1 and self.epochs[-1] == self.kill_in_epoch:
            os.kill(os.getpid(), signal.SIGKILL)


def r19_backup(strategy: Any, world: World) -> dict[str, Any]:
    """Four epochs with a backup each epoch; `kill` says which epoch the last worker does not survive."""
    kill = world.arguments.get("kill") if world.rank == world.size - 1 else None
    epochs = _Epochs(kill)
    keras.utils.set_random_seed(5)
    with strategy.scope():
        model = _small_net_without_noise()
        model.compile(keras.optimizers.Adam(0.05), loss="mse")
    backup = world.shared / "backup"
    history = model.fit(
        X, 2 * X, batch_size=4, epochs=4, shuffle=False, verbose=0,
        callbacks=[epochs, keras.callbacks.BackupAndRestore(backup)],
    )  # fmt: skip
    model.evaluate(X, 2 * X, batch_size=4, verbose=0)
    return outcome(
        model, history, seen=epochs.epochs, weights=[w.tolist() for w in model.get_weights()], left=backup.exists()
    )


def _small_net_without_noise() -> keras.Model:
    return keras.Sequential([keras.Input((1,)), keras.layers.Dense(3, activation="tanh"), keras.layers.Dense(1)])


def r27_slow_chief(strategy: Any, world: World) -> dict[str, Any]:
    """The chief takes its time at the end of training and saves; the others are gone long before."""

    class Slow(keras.callbacks.Callback):
        def on_train_end(self, logs: Any = None) -> None:
            if world.rank == 0:
                time.sleep(2.5)

    with strategy.scope():
        model = toy_model()
        model.compile(sgd(), loss="mse")
    history = model.fit(X, X, batch_size=4, shuffle=False, verbose=0, callbacks=[Slow()])
    if world.rank == 0:
        model.save(world.shared / "late.keras")
    return outcome(model, history, saved=world.shared / "late.keras")
