"""The same script on TensorFlow, JAX and torch: the losses are the same.

    unisono run -n 2 examples/three_backends.py --backend tensorflow
    unisono run -n 2 examples/three_backends.py --backend jax
    unisono run -n 2 examples/three_backends.py --backend torch

The initial weights come from NumPy, since each backend draws random numbers in its own way.
"""

from __future__ import annotations

import argparse
import os


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", choices=["tensorflow", "jax", "torch"], default="tensorflow")
    options = parser.parse_args()

    # Before Keras is imported.
    os.environ["KERAS_BACKEND"] = options.backend
    import keras
    import numpy as np

    import unisono

    random = np.random.default_rng(0)
    x = random.normal(size=(1000, 20)).astype("float32")
    y = np.sin(x.sum(axis=1, keepdims=True))

    strategy = unisono.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = keras.Sequential([keras.Input((20,)), keras.layers.Dense(64, activation="tanh"), keras.layers.Dense(1)])
        model.set_weights([0.2 * random.normal(size=weight.shape) for weight in model.get_weights()])
        model.compile(optimizer=keras.optimizers.Adam(1e-2), loss="mse")

    # 1000 = 10 x 96 + 40: the last batch is smaller, and nobody has to care.
    history = model.fit(x, y, batch_size=96, epochs=3, shuffle=False, verbose=0)
    if strategy.is_chief:
        losses = "  ".join(f"{loss:.5f}" for loss in history.history["loss"])
        print(f"{options.backend:10}  {strategy.num_replicas_in_sync} worker(s)  loss {losses}")


if __name__ == "__main__":
    main()
