"""One process of `startup.py`: imports, builds, trains one step, and says when each was done."""

from __future__ import annotations

import child

orders = child.begin()


def main() -> None:
    spec = orders.spec
    marks = {"python": child.now()}
    import keras

    child.one_thread(spec["backend"])
    marks["keras"] = child.now()
    import models

    keras.utils.set_random_seed(0)
    batch = models.BATCH
    if spec["kind"] == "unisono":
        from unisono import MultiWorkerMirroredStrategy

        strategy = MultiWorkerMirroredStrategy()
        batch *= strategy.num_replicas_in_sync
        marks["strategy"] = child.now()
        with strategy.scope():
            model = models.compiled(keras, "MLP")
    else:
        marks["strategy"] = child.now()
        model = models.compiled(keras, "MLP")
    x, y = models.data("MLP", batch)
    model.fit(x, y, batch_size=batch, verbose=0)
    marks["step"] = child.now()
    orders.answer(**marks)
    for _ in orders:
        pass


if __name__ == "__main__":
    main()
