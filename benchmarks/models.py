"""The two models that are measured, and data on which they learn."""

from __future__ import annotations

from typing import Any

import numpy as np

MODELS = ("MLP", "CNN")
BATCH = 64
"""Examples a worker and step."""

FLIPPED = 0.1
"""Share of wrong labels: the loss falls, but never to zero, where numbers would get too small to be usual."""


def build(keras: Any, model: str) -> Any:
    """Returns a model that is built, not compiled: MLP of 32-32-16-1, or CNN of 225 thousand weights.

    Args:
        keras: The module `keras` or `tf_keras`.
        model: "MLP" or "CNN".
    """
    layers = keras.layers
    if model == "MLP":
        return keras.Sequential(
            [
                keras.Input((32,)),
                layers.Dense(32, activation="relu"),
                layers.Dense(16, activation="relu"),
                layers.Dense(1, activation="sigmoid"),
            ]
        )
    return keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(64, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(128, activation="relu"),
            layers.Dense(10),
        ]
    )


def compiled(keras: Any, model: str) -> Any:
    """Returns the model, compiled as in a tutorial; the arguments are as for `build`."""
    made = build(keras, model)
    if model == "MLP":
        made.compile(optimizer="rmsprop", loss="binary_crossentropy", metrics=[keras.metrics.AUC()])
    else:
        made.compile(
            optimizer=keras.optimizers.SGD(0.01),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
        )
    return made


def data(model: str, examples: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns x (float32) and y of shape (examples, 1), the same on every call.

    Args:
        model: "MLP" (x of 32 numbers, y float32 0 or 1) or "CNN" (x of 28 x 28 x 1, y int32 0 to 9).
        examples: How many.
    """
    rng = np.random.default_rng(0)
    wrong = rng.random((examples, 1)) < FLIPPED
    if model == "MLP":
        x = rng.standard_normal((examples, 32), np.float32)
        y = (x @ rng.standard_normal((32, 1), np.float32) > 0).astype(np.float32)
        return x, np.where(wrong, 1 - y, y).astype(np.float32)
    patterns = rng.random((10, 28, 28, 1), np.float32)
    y = rng.integers(0, 10, (examples, 1), np.int32)
    x = (patterns[y[:, 0]] + rng.random((examples, 28, 28, 1), np.float32)) / 2
    return x, np.where(wrong, (y + 1) % 10, y).astype(np.int32)
