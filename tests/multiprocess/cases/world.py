"""What a case knows about where it runs, and the strategy of a process without unisono."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

WRITE_SECONDS = 90.0


@dataclasses.dataclass(frozen=True)
class World:
    """Where a case runs.

    Args:
        backend: "tensorflow", "jax" or "torch".
        kind: "plain", "alone" or "cluster".
        size: Number of workers.
        rank: This worker.
        shared: Folder all workers of the group share, one a case.
        early: What `early_work` returned, if it was asked for before the strategy was made.
        arguments: Further values from the test.
        problems: What a case puts here instead of raising it ends the group all the same.
    """

    backend: str
    kind: str
    size: int
    rank: int
    shared: Path
    early: Any
    arguments: dict[str, Any]
    problems: list[str] = dataclasses.field(default_factory=list)

    def written_once(self, name: str, write: Callable[[Path], None]) -> Path:
        """Returns a folder that the chief fills and the others wait for.

        Args:
            name: Of the folder.
            write: Fills an empty folder.
        """
        folder = self.shared / name
        if self.rank == 0:
            unfinished = self.shared / f"unfinished-{name}"
            unfinished.mkdir()
            write(unfinished)
            os.rename(unfinished, folder)
        deadline = time.monotonic() + WRITE_SECONDS
        while not folder.exists():
            if time.monotonic() > deadline:
                raise TimeoutError(f"the chief did not write {folder}")
            time.sleep(0.01)
        return folder

    @property
    def plain(self) -> bool:
        return self.kind == "plain"


class PlainStrategy:
    """Stands for a strategy in one Keras process: does nothing."""

    num_replicas_in_sync = 1
    rank = 0
    is_chief = True

    def scope(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def run(self, fn: Callable[..., Any], args: Sequence[Any] = ()) -> Any:
        return fn(*args)

    def reduce(self, reduce_op: Any, value: Any, axis: None = None) -> Any:
        return value


def early_work() -> Any:
    """Runs some tensor operations and makes a model, as a notebook may before it makes the strategy."""
    import keras
    import numpy as np

    total = float(keras.ops.sum(keras.ops.ones((3, 3)) * 2.0))
    assert total == 18.0
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")])
    model(np.ones((2, 1), "float32"))
    return model
