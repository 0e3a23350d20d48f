"""One process of `memory.py`: trains a model of ten million weights for some steps and says its peak of memory."""

from __future__ import annotations

from pathlib import Path

import child

orders = child.begin()

BATCH, STEPS = 64, 8
WIDTHS = (1024, 2816, 2432, 10)
"""Of the input and the layers: 9.8 million weights."""


def peak() -> int:
    """Returns the most memory this process has held so far, in bytes."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM"))


def main() -> None:
    spec = orders.spec
    import keras
    import numpy as np

    child.one_thread(spec["backend"])
    keras.utils.set_random_seed(0)

    def compiled() -> keras.Model:
        first, *hidden, last = WIDTHS
        dense = [keras.layers.Dense(width, activation="relu") for width in hidden]
        model = keras.Sequential([keras.Input((first,)), *dense, keras.layers.Dense(last)])
        model.compile(
            optimizer=keras.optimizers.SGD(0.01), loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        )
        return model

    batch = BATCH
    if spec["kind"] == "unisono":
        from unisono import MultiWorkerMirroredStrategy

        strategy = MultiWorkerMirroredStrategy()
        batch *= strategy.num_replicas_in_sync
        with strategy.scope():
            model = compiled()
    else:
        model = compiled()
    rng = np.random.default_rng(0)
    x = rng.standard_normal((STEPS * batch, WIDTHS[0]), np.float32)
    y = rng.integers(0, WIDTHS[-1], (STEPS * batch, 1), np.int32)
    model.fit(x, y, batch_size=batch, verbose=0, epochs=2)
    weights = sum(int(np.prod(variable.shape)) for variable in model.trainable_variables)
    orders.answer(peak=peak(), gradients=4 * weights)
    for _ in orders:
        pass


if __name__ == "__main__":
    main()
