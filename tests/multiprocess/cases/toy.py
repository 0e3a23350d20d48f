"""The toy set-up of most cases: one weight, mse, plain SGD; and fingerprints of model state."""

from __future__ import annotations

import hashlib
from typing import Any

import keras
import numpy as np


def column(*values: float) -> np.ndarray:
    """Returns values as a float32 array of shape (n, 1)."""
    return np.array(values, "float32")[:, None]


def toy_model(cls: type[keras.Model] = keras.Model) -> keras.Model:
    """Returns Dense(1, use_bias=False) from zero, on (n, 1) input."""
    inputs = keras.Input((1,))
    outputs = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros", name="dense")(inputs)
    return cls(inputs, outputs)


def sgd(rate: float = 0.01, **arguments: Any) -> keras.optimizers.Optimizer:
    return keras.optimizers.SGD(rate, **arguments)


def weight(model: keras.Model) -> float:
    """Returns the one weight of the toy model."""
    return float(np.ravel(keras.ops.convert_to_numpy(model.trainable_variables[0].value))[0])


def is_seed(variable: Any) -> bool:
    return "seed_generator" in variable.path or "seed_generator" in variable.name


def state(model: keras.Model) -> list[Any]:
    """Returns all variables of model and optimizer that must agree between workers."""
    variables = [v for v in model.variables if not is_seed(v)]
    optimizer = getattr(model, "optimizer", None)
    return variables + (list(optimizer.variables) if optimizer is not None else [])


def fingerprint(model: keras.Model) -> str:
    """Returns a hash of every bit of the state of model and optimizer, without seed generators."""
    digest = hashlib.sha256()
    for variable in state(model):
        array = np.ascontiguousarray(keras.ops.convert_to_numpy(variable.value))
        digest.update(f"{array.shape}{array.dtype}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def seeds(model: keras.Model) -> list[Any]:
    """Returns the states of the seed generators."""
    return [keras.ops.convert_to_numpy(v.value).tolist() for v in model.variables if is_seed(v)]


def outcome(model: keras.Model, history: keras.callbacks.History | None = None, **more: Any) -> dict[str, Any]:
    """Returns what every case reports: weight, history, fingerprint."""
    found: dict[str, Any] = {"weight": weight(model), "state": fingerprint(model)}
    if model.optimizer is not None:
        found["iterations"] = int(model.optimizer.iterations)
    if history is not None:
        found["history"] = {key: [float(v) for v in values] for key, values in history.history.items()}
        found["epochs"] = list(history.epoch)
    return {**found, **more}
