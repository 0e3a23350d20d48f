"""Keras's loops on several workers, here threads: what ends them, what `train_on_batch` takes."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest

from unisono.collectives import loopback
from unisono.errors import DivergenceError, UnisonoError, WorkerFailedError
from unisono.training.trainer import Trainer

# Keras hands its variables to NumPy 2 in an old way.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

X = np.arange(8, dtype="float32")[:, None]


class Job:
    """Stands in for the runtime of one worker."""

    def __init__(self, channel: Any) -> None:
        self.data, self.agreement = channel, channel.channel("agreement")
        self.rank, self.size, self.cluster = channel.rank, channel.size, self
        self.failed: BaseException | None = None

    def name_of(self, rank: int) -> str:
        return f"worker {rank}"

    def report(self, step: int, phase: str) -> None:
        pass

    @property
    def closed(self) -> bool:
        return self.failed is not None

    def fail(self, error: BaseException) -> None:
        self.failed = error
        known = error if isinstance(error, UnisonoError) else WorkerFailedError(repr(error), rank=self.rank)
        self.data.abandon(known)


def on_workers(work: Callable[[Any, Job], Any], size: int = 2) -> list[Any]:
    """Runs `work(model, job)` on each worker, eagerly: threads of TensorFlow's graphs would wait for each other."""

    def one(channel: Any) -> Any:
        job = Job(channel)
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, kernel_initializer="zeros")])
        Trainer(job).adopt(model)  # type: ignore[arg-type]
        model.compile(keras.optimizers.SGD(0.01), "mse", run_eagerly=True)
        try:
            return work(model, job)
        except UnisonoError as error:
            return error

    with concurrent.futures.ThreadPoolExecutor(size) as pool:
        return list(pool.map(one, loopback.group(size, timeout=60.0)))


def test_a_wish_to_stop_is_not_about_the_next_fit():
    def work(model: Any, job: Job) -> Any:
        stops = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: setattr(model, "stop_training", True))
        first = model.fit(X, X, epochs=3, batch_size=4, verbose=0, callbacks=[stops])
        assert model.stop_training
        model.train_on_batch(X, X)
        second = model.fit(X, X, epochs=2, batch_size=4, verbose=0)
        return len(first.epoch), len(second.epoch), int(model.optimizer.iterations)

    assert on_workers(work) == [(1, 2, 2 + 1 + 4)] * 2


def test_a_step_that_wants_to_stop_ends_all_workers_before_the_next():
    def work(model: Any, job: Job) -> Any:
        def stop(batch: int, logs: Any) -> None:
            model.stop_training = job.rank == 1 and batch == 1

        history = model.fit(
            X, X, epochs=3, batch_size=2, verbose=0, callbacks=[keras.callbacks.LambdaCallback(on_train_batch_end=stop)]
        )
        return len(history.epoch), int(model.optimizer.iterations)

    assert on_workers(work) == [(1, 2)] * 2


def test_train_on_batch_takes_the_global_batch():
    def work(model: Any, job: Job) -> Any:
        loss = float(model.train_on_batch(X, 2 * X))
        return loss, np.asarray(keras.ops.convert_to_numpy(model.weights[0])).item()

    mean = float(np.mean((2 * X) ** 2))
    step = 0.01 * float(np.mean(2 * X * 2 * X))
    for loss, weight in on_workers(work, 3):
        assert loss == pytest.approx(mean) and weight == pytest.approx(step)


def test_different_batches_for_train_on_batch_are_noticed():
    errors = on_workers(lambda model, job: model.train_on_batch(X + job.rank, X))
    assert all(isinstance(e, DivergenceError) and "different data" in str(e) for e in errors), errors


def test_weights_without_targets():
    def work(model: Any, job: Job) -> Any:
        seen: list[Any] = []
        model.compute_loss = lambda x, y, y_pred, sample_weight, training=True: (
            seen.append((y is None, sample_weight is None)) or keras.ops.mean(y_pred * 0)
        )
        model.train_on_batch(X, sample_weight=np.ones(8, "float32"))
        return seen[-1]

    assert on_workers(work) == [(True, False)] * 2


def test_an_error_of_one_worker_is_told_and_raised_as_it_is():
    def work(model: Any, job: Job) -> Any:
        def fails(batch: int, logs: Any = None) -> None:
            if job.rank == 1 and batch == 1:
                raise KeyError("row 5")

        stop = keras.callbacks.LambdaCallback(on_train_batch_begin=fails)
        try:
            model.fit(X, X, batch_size=2, verbose=0, callbacks=[stop])
        except KeyError as error:
            return error, job.failed
        return None

    first, second = on_workers(work)
    assert isinstance(first, WorkerFailedError) and "row 5" in str(first)
    raised, told = second
    assert raised is told and raised.args == ("row 5",)


def test_predict_gives_the_whole_to_all():
    def work(model: Any, job: Job) -> Any:
        model.layers[0].set_weights([np.array([[2.0]]), np.array([1.0])])
        return [model.predict(X[:n], batch_size=3, verbose=0)[:, 0].tolist() for n in (1, 8)]

    right = [[1.0], (2 * X + 1)[:, 0].tolist()]
    assert on_workers(work, 3) == [right] * 3
