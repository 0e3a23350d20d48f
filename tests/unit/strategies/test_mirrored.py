"""The strategy's surface, and what it says where training would silently not be distributed."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import pytest

import unisono
from unisono import log
from unisono.cluster.spec import Address, Cluster, Task
from unisono.collectives.loopback import Alone
from unisono.collectives.options import CommunicationOptions
from unisono.errors import ClusterError, ConfigurationError
from unisono.runtime import start
from unisono.runtime.job import Runtime
from unisono.training.adopt import adopted
from unisono.training.trainer import Trainer

# Keras hands its variables to NumPy 2 in an old way.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

TWO = '{"cluster": {"worker": ["a:2201", "b:2202"]}, "task": {"type": "worker", "index": 0}}'
OTHER = '{"cluster": {"worker": ["a:2201", "c:2202"]}, "task": {"type": "worker", "index": 0}}'
X = np.ones((4, 1), "float32")


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No cluster, nothing said yet; Keras as it was afterwards."""
    for name in ("TF_CONFIG", "PJRT_NPROC", "PMI_RANK", "SLURM_JOB_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(log, "_said", set())
    monkeypatch.setattr(log.logger, "propagate", True)
    own = {name: vars(keras.Model)[name] for name in ("fit", "__new__") if name in vars(keras.Model)}
    yield
    for handler in list(log.logger.handlers):
        log.logger.removeHandler(handler)
    if "fit" not in own and "fit" in vars(keras.Model):
        keras.Model.fit._unisono_watch()
        del keras.Model.fit
    assert vars(keras.Model)["__new__"] is own["__new__"]


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> Runtime:
    """A job with another worker that this process has joined already."""
    cluster = Cluster((Task("worker", 0), Task("worker", 1)), (Address("a", 2201), Address("b", 2202)), 0, "TF_CONFIG")
    alone = Alone()
    job = Runtime(cluster, alone, alone, None, 0.0)
    job.size = 2
    monkeypatch.setattr(start, "_live", [job])
    monkeypatch.setenv("TF_CONFIG", TWO)
    monkeypatch.setenv("PJRT_NPROC", "3")
    return job


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING and r.name == "unisono"]


def toy() -> keras.Model:
    return keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])


def test_alone():
    strategy = unisono.MultiWorkerMirroredStrategy()
    assert (strategy.num_replicas_in_sync, strategy.rank, strategy.is_chief) == (1, 0, True)
    assert strategy.communication_options == CommunicationOptions()
    with strategy.scope():
        model = toy()
        model.compile("sgd", "mse")
    assert np.isfinite(model.fit(X, X, verbose=0).history["loss"][0])


def test_a_second_strategy_shares_the_job(two: Runtime):
    first, second = unisono.MultiWorkerMirroredStrategy(), unisono.MultiWorkerMirroredStrategy()
    assert first._runtime is second._runtime is two
    assert second.num_replicas_in_sync == 2
    assert second.cluster_resolver.task_type == "worker" and second.cluster_resolver.task_id == 0


def test_another_cluster_afterwards_is_refused(two: Runtime, monkeypatch: pytest.MonkeyPatch):
    unisono.MultiWorkerMirroredStrategy()
    monkeypatch.setenv("TF_CONFIG", OTHER)
    with pytest.raises(ConfigurationError, match=r"worker 0 .* of 2 already"):
        unisono.MultiWorkerMirroredStrategy()


def test_a_wrong_tf_config_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TF_CONFIG", "{not json")
    with pytest.raises(ClusterError, match="TF_CONFIG"):
        unisono.MultiWorkerMirroredStrategy()


def test_a_tf_config_that_comes_too_late_is_spoken_of_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    strategy = unisono.MultiWorkerMirroredStrategy()
    with strategy.scope():
        toy()
    assert warnings(caplog) == []
    monkeypatch.setenv("TF_CONFIG", TWO)
    for _ in range(2):
        with strategy.scope():
            toy()
    (said,) = warnings(caplog)
    assert "TF_CONFIG was changed after the strategy was made" in said and "a:2201" in said


def test_a_model_outside_of_the_scope_is_spoken_of(two: Runtime, caplog: pytest.LogCaptureFixture):
    model = toy()
    model.compile("sgd", "mse")
    trainer = Trainer(two)
    trainer.watch()
    trainer.watch()
    model.fit(X, X, verbose=0)
    (said,) = warnings(caplog)
    assert "fitted outside of the strategy" in said and "ALONE" in said and model.name in said
    trainer.close()
    caplog.clear()
    model.fit(X, X, verbose=0)
    assert warnings(caplog) == []


def test_it_is_spoken_of_even_if_no_scope_was_ever_entered(two: Runtime, caplog: pytest.LogCaptureFixture):
    unisono.MultiWorkerMirroredStrategy()
    model = toy()
    model.compile("sgd", "mse")
    model.fit(X, X, verbose=0)
    assert any("outside of the strategy" in said for said in warnings(caplog))


def test_alone_any_model_may_be_fitted(caplog: pytest.LogCaptureFixture):
    strategy = unisono.MultiWorkerMirroredStrategy()
    with strategy.scope():
        toy()
    model = toy()
    model.compile("sgd", "mse")
    model.fit(X, X, verbose=0)
    assert warnings(caplog) == []


class Own(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.dense = keras.layers.Dense(1)

    def call(self, x: Any) -> Any:
        return self.dense(x)


def functional() -> keras.Model:
    x = keras.Input((1,))
    return keras.Model(x, keras.layers.Dense(1)(x))


@pytest.mark.parametrize("make", [toy, functional, Own])
def test_which_models_a_scope_takes_charge_of(make: Any):
    strategy = unisono.MultiWorkerMirroredStrategy()
    outside, late = make(), make()
    with strategy.scope():
        inside = make()
        late.compile("sgd", "mse")
    after = make()
    assert [adopted(m) is not None for m in (inside, late, outside, after)] == [True, True, False, False]
    assert late.compiled and not inside.compiled
    inside.compile("sgd", "mse")
    for model in (inside, late):
        model.fit(X, X, verbose=0)


def test_a_scope_that_fails_leaves_keras_as_it_was():
    strategy = unisono.MultiWorkerMirroredStrategy()
    compile_ = keras.Model.compile
    with pytest.raises(KeyError, match="own"), strategy.scope(), strategy.scope():
        raise KeyError("own")
    assert keras.Model.compile is compile_
    assert adopted(toy()) is None


def test_a_batch_does_not_become_a_constant_of_a_compiled_step():
    tf = pytest.importorskip("tensorflow")
    data = unisono.MultiWorkerMirroredStrategy().experimental_distribute_dataset(tf.data.Dataset.range(6).batch(2))

    @tf.function
    def loop() -> Any:
        total = tf.constant(0, tf.int64)
        for batch in data:
            total += tf.reduce_sum(batch)
        return total

    @tf.function
    def step(batches: Iterator[Any]) -> Any:
        return tf.reduce_sum(next(batches))

    batches = iter(data)
    assert int(tf.reduce_sum(next(batches))) == 1
    for call in (loop, lambda: step(batches), lambda: step(iter(data))):
        # AutoGraph wraps what it meets.
        with pytest.raises(Exception, match=r"inside tf.function(.|\n)*pass each batch to the function"):
            call()
    assert [int(tf.reduce_sum(batch)) for batch in data] == [1, 5, 9]
