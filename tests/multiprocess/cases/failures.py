"""Cases in which something goes wrong on purpose; each gets processes of its own."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np

from cases.toy import outcome, sgd, toy_model, weight
from cases.world import World

X = np.linspace(-1, 1, 48, dtype="float32")[:, None]


def _fit(strategy: Any, data: Any, **arguments: Any) -> dict[str, Any]:
    with strategy.scope():
        model = toy_model()
        model.compile(sgd(), loss="mse", metrics=["mae"])
    try:
        return outcome(model, model.fit(data, verbose=0, **arguments))
    except Exception:
        print(f"left with {weight(model)}, {model.metrics[0].name} {float(model.metrics[0].result())}", file=sys.stderr)
        raise


def r20_one_raises(strategy: Any, world: World) -> dict[str, Any]:
    def batches() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for step in range(12):
            if step == 5 and world.rank == 1:
                raise ValueError("the picture in row 5 is broken")
            yield X[4 * step : 4 * step + 4], X[4 * step : 4 * step + 4]

    return _fit(strategy, batches())


def r21_one_stuck(strategy: Any, world: World) -> dict[str, Any]:
    class Stuck(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            if batch == 5 and world.rank == 1:
                time.sleep(world.arguments["timeout"] + 1)

    return _fit(strategy, X, y=X, batch_size=4, shuffle=False, callbacks=[Stuck()])


def r25_alone_at_the_door(strategy: Any, world: World) -> dict[str, Any]:
    return _fit(strategy, X, y=X, batch_size=4)


def one_core(strategy: Any, world: World) -> dict[str, Any]:
    """A model of a million weights, with both workers on one core."""
    x = np.ones((8, 1000), "float32")
    with strategy.scope():
        model = keras.Sequential([keras.Input((1000,)), keras.layers.Dense(1000), keras.layers.Dense(1)])
        model.compile(sgd(1e-5), loss="mse")
    return outcome(model, model.fit(x, x[:, :1], batch_size=4, epochs=2, verbose=0))


def r33_alone(strategy: Any, world: World) -> dict[str, Any]:
    """One worker: no sockets, no child process, no MPI."""
    import sys

    import psutil

    found = _fit(strategy, X, y=X, batch_size=4, shuffle=False)
    process = psutil.Process()
    return {
        **found,
        "sockets": [str(each) for each in process.net_connections(kind="all") if each.laddr or each.raddr],
        "children": [child.name() for child in process.children(recursive=True)],
        "mpi": "mpi4py.MPI" in sys.modules,
    }
