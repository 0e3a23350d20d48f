"""A convolutional network learns handwritten digits on as many workers as there are.

    unisono run -n 2 examples/digits_cnn.py

Alone (`python examples/digits_cnn.py`) it does the same with one worker, and logs the same numbers. Needs
scikit-learn for its 1,797 real digits of 8 x 8 pixels.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import keras
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import unisono

GLOBAL_BATCH = 128


def digits() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Returns images in [0, 1] of shape (n, 8, 8, 1) and labels, to learn from and to test with."""
    images, labels = load_digits(return_X_y=True)
    images = images.reshape(-1, 8, 8, 1).astype("float32") / 16
    x, x_test, y, y_test = train_test_split(images, labels, test_size=0.2, random_state=0, stratify=labels)
    return x, y, x_test, y_test


def network() -> keras.Model:
    """Returns two convolutions and two dense layers, with about 300,000 weights."""
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
            keras.layers.Conv2D(64, 3, padding="same", activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dense(256, activation="relu"),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )


class Stopwatch(keras.callbacks.Callback):
    """Notes the seconds each epoch takes."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []

    def on_epoch_begin(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        self.began = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        self.seconds.append(time.perf_counter() - self.began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--report", type=Path, help="file in which the chief writes accuracy and times, as JSON")
    options = parser.parse_args()

    keras.utils.set_random_seed(7)
    x, y, x_test, y_test = digits()

    strategy = unisono.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = network()
        model.compile(
            optimizer=keras.optimizers.Adam(2e-3), loss="sparse_categorical_crossentropy", metrics=["accuracy"]
        )

    stopwatch = Stopwatch()
    model.fit(x, y, batch_size=GLOBAL_BATCH, epochs=options.epochs, verbose=2, callbacks=[stopwatch])
    _, accuracy = model.evaluate(x_test, y_test, batch_size=GLOBAL_BATCH, verbose=0)

    if strategy.is_chief:
        print(f"test accuracy {accuracy:.2%} ({strategy.num_replicas_in_sync} worker(s), {keras.backend.backend()})")
        if options.report:
            report = {"accuracy": accuracy, "epoch_seconds": stopwatch.seconds}
            options.report.write_text(json.dumps(report), encoding="utf-8")


if __name__ == "__main__":
    main()
