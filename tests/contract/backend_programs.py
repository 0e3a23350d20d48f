"""What every backend must do with a step, tried in a process of its own; run with the names of the programs.

The engine is either a `Partner`, which stands for the other workers and writes down what it is asked, or workers as
threads of this process.
"""

from __future__ import annotations

import concurrent.futures
import json
import sys
import traceback
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from unisono.backends.base import StepScope
from unisono.collectives import loopback
from unisono.collectives.loopback import Alone
from unisono.errors import DivergenceError, UnisonoError, WorkerFailedError, WorkerLostError
from unisono.training import state
from unisono.training.adopt import Adoption
from unisono.training.agreement import Verdict
from unisono.training.trainer import Trainer

BACKEND = keras.backend.backend()
WIRE = {"float16": "float32", "bfloat16": "float32"}

PROGRAMS: dict[str, Callable[[], None]] = {}


def weights(local: int, total: int) -> np.ndarray:
    return Verdict(False, False, False, local, total).weights


def program(function: Callable[[], None]) -> Callable[[], None]:
    PROGRAMS[function.__name__] = function
    return function


class Cluster:
    def name_of(self, rank: int) -> str:
        return f"worker {rank}"


class Job:
    """Stands in for the runtime."""

    def __init__(self, data: Any, agreement: Any) -> None:
        self.data, self.agreement = data, agreement
        self.rank, self.size = data.rank, data.size
        self.cluster = Cluster()
        self.sums: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        self.failed: BaseException | None = None

    def report(self, step: int, phase: str) -> None:
        pass

    @property
    def closed(self) -> bool:
        return self.failed is not None

    def fail(self, error: BaseException) -> None:
        self.failed = error
        known = isinstance(error, UnisonoError)
        self.data.abandon(error if known else WorkerFailedError(repr(error), rank=self.rank))


class Partner:
    """The channel of worker 0 of 2; the other worker is played.

    Args:
        adds: What the other worker contributes to each sum.
        script: Results of sums made elsewhere, which are given out instead, in order.
        error: Raised by every operation.
    """

    rank, size = 0, 2

    def __init__(
        self, adds: float = 0.0, script: Sequence[np.ndarray] | None = None, error: Exception | None = None
    ) -> None:
        self.adds, self.script, self.error = adds, None if script is None else list(script), error
        self.asked: list[np.ndarray] = []
        self.gives: np.ndarray | None = None
        """What the other worker gives to a gathering."""
        self.results: list[np.ndarray] = []

    def all_reduce(self, array: np.ndarray) -> np.ndarray:
        if self.error is not None:
            raise self.error
        self.asked.append(array.copy())
        if self.script is None:
            array += np.asarray(self.adds, array.dtype)
        else:
            right = self.script.pop(0)
            assert (right.shape, right.dtype) == (array.shape, array.dtype), f"{right.shape} is due, not {array.shape}"
            array[...] = right
        self.results.append(array.copy())
        return array

    def all_gather(self, array: np.ndarray) -> list[np.ndarray]:
        if self.error is not None:
            raise self.error
        self.asked.append(array.copy())
        return [array.copy(), np.full_like(array[:1], self.adds) if self.gives is None else self.gives]

    def abandon(self, error: UnisonoError) -> None:
        pass


def backend_with(partner: Partner) -> Any:
    return Trainer(Job(partner, Alone()))._backend


def numbers(tensor: Any) -> np.ndarray:
    if BACKEND == "torch" and str(tensor.dtype) == "torch.bfloat16":
        return tensor.float().numpy()
    return np.asarray(keras.ops.convert_to_numpy(tensor)).astype("float64")


def dtype_of(tensor: Any) -> str:
    return keras.backend.standardize_dtype(tensor.dtype)


def ways(backend: Any) -> list[Callable[[Callable[..., Any]], Callable[..., Any]]]:
    """Returns how a function of tensors may be run: as it is, and compiled."""
    return [lambda f: f] if BACKEND == "torch" else [lambda f: f, backend.compile]


def summing(backend: Any, scope: StepScope, weight: float) -> Callable[..., Any]:
    return lambda *given: backend.weighted_sum(given, weight, scope)


def exchanging(backend: Any, scope: StepScope, gradient: Callable[[], Any]) -> Callable[..., Any]:
    return lambda weight: backend.exchange_gradients([gradient()], weight, scope)


@program
def sums_of_mixed_dtypes() -> None:
    kinds = ["float32", "float16", "float64", "bfloat16", "float32"]
    if BACKEND == "jax":
        kinds.remove("float64")  # JAX has none unless it is told so before it starts
    shapes = [(2, 3), (4,), (), (0, 2), (1, 1, 2)]
    tensors = [keras.ops.cast(keras.ops.ones(s) * 8, k) for s, k in zip(shapes, kinds, strict=False)]
    for way in ways(backend_with(Partner())):
        partner = Partner(adds=1.0)
        backend, scope = backend_with(partner), StepScope(2)
        results = way(summing(backend, scope, 0.25))(*tensors)
        assert [dtype_of(r) for r in results] == kinds[: len(tensors)]
        for tensor, result in zip(tensors, results, strict=True):
            assert tuple(result.shape) == tuple(tensor.shape)
            assert (numbers(result) == 3.0).all(), numbers(result)
        travelled = [a.dtype.name for a in partner.asked]
        assert travelled == list(dict.fromkeys(WIRE.get(k, k) for k in kinds)), travelled
        assert (numbers(tensors[0]) == 8.0).all(), "the input was changed"


@program
def without_data_not_even_a_nan_counts() -> None:
    bad = keras.ops.convert_to_tensor(np.array([np.nan, np.inf, -np.inf, 1], "float32"))
    for way in ways(backend_with(Partner())):
        partner = Partner(adds=2.0)
        backend, scope = backend_with(partner), StepScope(2)
        (result,) = way(summing(backend, scope, 0.0))(bad)
        assert numbers(result).tolist() == [2.0] * 4
        assert not partner.asked[0][:4].any(), "something that is not 0 was sent"


@program
def sums_of_nothing_exchange_nothing() -> None:
    partner = Partner()
    backend, scope = backend_with(partner), StepScope(2)
    assert list(backend.weighted_sum([], 1.0, scope)) == []
    assert list(backend.exchange_gradients([], 1.0, scope)) == []
    assert not partner.asked


@program
def absent_gradients() -> None:
    variables = [keras.Variable(np.ones(3, "float32")), keras.Variable(np.ones((2, 2), "float32"))]
    one = keras.ops.ones(3)
    for adds, absent_here in ((0.0, None), (1.0, 1.0)):
        partner = Partner(adds=adds)
        backend, scope = backend_with(partner), StepScope(2)
        scope.applied = [(None, variables)]
        first, second = backend.exchange_gradients([one, None], keras.ops.convert_to_tensor(np.float32(0.5)), scope)
        assert (numbers(first) == 0.5 + adds).all()
        if BACKEND == "torch" and absent_here is not None:
            # Code may branch on each worker in its own way there: the other worker had a gradient.
            assert (numbers(second) == absent_here).all()
        else:
            assert second is None


@program
def sparse_gradients() -> None:
    if BACKEND != "tensorflow":
        return
    import tensorflow as tf

    from unisono.backends.rows import pack

    tables = [tf.Variable(tf.zeros((rows, 2))) for rows in (3, 100_000)]

    def gradients() -> list[Any]:
        with tf.GradientTape() as tape:
            first, second = (tf.gather(t, ids) for t, ids in zip(tables, ([0, 1, 1], [7]), strict=True))
            loss = tf.reduce_sum(first * 4.0) + tf.reduce_sum(second * 2.0)
        found = tape.gradient(loss, tables)
        assert all(isinstance(each, tf.IndexedSlices) for each in found)
        return [*found, None, tf.ones(3)]

    ones, twos = np.ones((1, 2), "float32"), np.full((2, 2), 2, "float32")
    for way in ways(backend_with(Partner())):
        partner = Partner(adds=1.0)
        partner.gives = pack([np.array([1], "int32"), np.array([5, 7], "int32"), ones, twos])
        backend, scope = backend_with(partner), StepScope(2)
        step = way(lambda weight: backend.exchange_gradients(gradients(), weight, scope))  # noqa: B023 - called here
        small, large, nothing, dense = step(tf.constant(0.5))
        assert nothing is None and dense.numpy().tolist() == [1.5] * 3
        assert isinstance(small, tf.IndexedSlices) and isinstance(large, tf.IndexedSlices)
        # An optimizer squares rows by themselves: those of one id must not be added up.
        assert small.indices.numpy().tolist() == [0, 1, 1, 1]
        assert small.values.numpy().tolist() == [[2, 2], [2, 2], [2, 2], [1, 1]]
        assert large.indices.numpy().tolist() == [7, 5, 7] and large.values.numpy().tolist() == [[1, 1], [2, 2], [2, 2]]
        assert len(partner.asked) == 2, "the rows of both tables go together, and the rest"
        assert sum(a.nbytes for a in partner.asked) < 150, "a whole table was sent"

        small, large, _, _ = step(tf.constant(0.0))
        assert small.indices.numpy().tolist() == [1] and large.values.numpy().tolist() == [[2, 2], [2, 2]]


class Unused(keras.layers.Layer):
    """Has a trainable weight that no output depends on."""

    def build(self, shape: Any) -> None:
        self.spare = self.add_weight(shape=(2,), name="spare")

    def call(self, x: Any) -> Any:
        return x


def plain_model() -> tuple[keras.Model, Any]:
    return keras.Sequential([keras.Input((3,)), keras.layers.Dense(4), keras.layers.Dense(1)]), "mse"


def moving_model() -> tuple[keras.Model, Any]:
    layers = [keras.Input((3,)), keras.layers.Dense(4), keras.layers.BatchNormalization(), keras.layers.Dropout(0.3)]
    return keras.Sequential([*layers, keras.layers.Dense(1)]), "mse"


def weighted_model() -> tuple[keras.Model, Any]:
    return plain_model()[0], keras.losses.MeanSquaredError(reduction="mean_with_sample_weight")


def masked_model() -> tuple[keras.Model, Any]:
    layers = [keras.Input((3,)), keras.layers.Reshape((3, 1)), keras.layers.Masking(0.0), keras.layers.Dense(2)]
    return keras.Sequential([*layers]), "mse"


def spare_model() -> tuple[keras.Model, Any]:
    return keras.Sequential([keras.Input((3,)), Unused(), keras.layers.Dense(1)]), "mse"


def fixed_model() -> tuple[keras.Model, Any]:
    model = plain_model()[0]
    model.trainable = False
    return model, "mse"


def fixed_moving_model() -> tuple[keras.Model, Any]:
    layer = keras.layers.BatchNormalization(center=False, scale=False)
    return keras.Sequential([keras.Input((3,)), layer]), "mse"


def two_sums_model() -> tuple[keras.Model, Any]:
    x = keras.Input((3,))
    outputs = {"a": keras.layers.Dense(1, name="a")(x), "b": keras.layers.Dense(1, name="b")(x)}
    mean = "mean_with_sample_weight"
    losses = {"a": keras.losses.MeanSquaredError(reduction=mean), "b": keras.losses.MeanAbsoluteError(reduction=mean)}
    return keras.Model(x, outputs), losses


def batch_for(model: keras.Model, rows: int) -> tuple[Any, ...]:
    x = np.linspace(-1, 1, 3 * rows).reshape(rows, 3).astype("float32")
    shape = model.compute_output_shape(x.shape)
    weight = np.linspace(1, 2, rows).astype("float32")
    if isinstance(shape, dict):
        return x, dict.fromkeys(shape, x[:, :1] * 2), {name: weight * k for k, name in enumerate(shape, 1)}
    return x, np.resize(x * 2, shape), weight if len(shape) == 2 else None


def adopted(make: Callable[[], tuple[keras.Model, Any]], partner: Partner, **options: Any) -> tuple[Any, Adoption]:
    keras.utils.set_random_seed(0)
    model, loss = make()
    adoption = Trainer(Job(partner, Alone())).adopt(model)
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9, global_clipnorm=1.0, use_ema=True), loss, **options)
    adoption.ensure_built(batch_for(model, 1))
    return model, adoption


def step(model: Any, adoption: Adoption, kind: str, data: Any, share: np.ndarray) -> None:
    """Runs one step function, keeping state where the backend keeps it."""
    function = adoption.steps._built[kind]
    if BACKEND != "jax":
        function(None, data, share)
        return
    groups = [model.trainable_variables, model.non_trainable_variables]
    if "train" in kind:
        groups.append(model.optimizer.variables)
    groups.append(model.metrics_variables)
    found = function(tuple([v.value for v in group] for group in groups), data, share)
    new = found if "idle" in kind else found[1]
    for group, values in zip(groups, new, strict=True):
        for variable, value in zip(group, values, strict=True):
            variable.assign(value)


def values(variables: Sequence[Any]) -> list[bytes]:
    return [np.asarray(keras.ops.convert_to_numpy(v)).tobytes() for v in variables]


@program
def a_share_is_as_exact_as_the_gradients() -> None:
    if BACKEND == "jax":
        return  # has no float64 unless it is told so before it starts

    def wide_model() -> tuple[keras.Model, Any]:
        return keras.Sequential([keras.Input((3,), dtype="float64"), keras.layers.Dense(1, dtype="float64")]), "mse"

    for options in ({}, {"run_eagerly": True}):
        sent = []
        for share in (weights(3, 3), weights(1, 3)):
            partner = Partner()
            model, adoption = adopted(wide_model, partner, **options)
            step(model, adoption, "train", batch_for(model, 3)[:2], share)
            sent.append(next(array for array in partner.asked if array.dtype == "float64"))
        assert np.all(sent[0]) and np.allclose(sent[1] * 3, sent[0], rtol=1e-15, atol=0), sent


def joins(make: Callable[[], tuple[keras.Model, Any]], first: bool, **options: Any) -> None:
    """A worker without data takes part in every exchange of the others, and ends with their state.

    Args:
        first: Whether it has had no data before, so that it has not seen how a step goes.
    """
    busy = Partner()
    model, adoption = adopted(make, busy, **options)
    data = batch_for(model, 4)
    idle = Partner(script=[])
    other, its = adopted(make, idle, **options)
    assert values(state.shared_variables(model)) == values(state.shared_variables(other))
    for k in range(2 if first else 3):
        begun = len(busy.results)
        step(model, adoption, "train", data, weights(4, 4))
        idle.script = busy.results[begun:]
        metrics = values(other.metrics_variables)
        if k == 0 and not first:
            step(other, its, "train", data, weights(4, 4))
        else:
            step(other, its, "idle train", batch_for(other, 1), weights(0, 4))
            assert values(other.metrics_variables) == metrics, "a worker without data changed its metrics"
        assert idle.script == [], f"{len(idle.script)} exchanges of step {k} were not joined"
        different = [
            (a.path, numbers(a.value), numbers(b.value))
            for a, b in zip(state.shared_variables(model), state.shared_variables(other), strict=True)
            if values([a]) != values([b])
        ]
        assert not different, f"after step {k}: {different}"
    begun = len(busy.results)
    step(model, adoption, "test", data, weights(4, 4))
    idle.script = busy.results[begun:]
    metrics = values(other.metrics_variables)
    step(other, its, "idle test", batch_for(other, 1), weights(0, 4))
    assert idle.script == [] and values(other.metrics_variables) == metrics


@program
def a_worker_that_never_had_data_joins_a_weighted_loss() -> None:
    joins(weighted_model, first=True)


@program
def a_worker_that_never_had_data_joins_two_weighted_losses() -> None:
    joins(two_sums_model, first=True, run_eagerly=True)


@program
def a_worker_that_never_had_data_joins_where_a_weight_is_unused() -> None:
    joins(spare_model, first=True)
    joins(spare_model, first=True, run_eagerly=True)


@program
def a_worker_that_never_had_data_joins_where_nothing_is_trained() -> None:
    joins(fixed_model, first=True)


@program
def a_worker_that_ran_out_of_data_joins_masked_losses() -> None:
    joins(masked_model, first=False)


@program
def a_worker_that_ran_out_of_data_joins_moving_statistics() -> None:
    joins(moving_model, first=False)
    joins(moving_model, first=False, run_eagerly=True)


@program
def a_worker_that_ran_out_of_data_joins_where_only_statistics_move() -> None:
    joins(fixed_moving_model, first=False)


@program
def moving_statistics_are_weighted() -> None:
    partner = Partner()
    layer = keras.layers.BatchNormalization(momentum=0.5)
    model = keras.Sequential([keras.Input((1,)), layer])
    adoption = Trainer(Job(partner, Alone())).adopt(model)
    model.compile("sgd", "mse")
    x = np.array([[4.0], [8.0]], "float32")
    adoption.ensure_built((x, x))
    step(model, adoption, "train", (x, x), weights(2, 8))
    # Its own would be 0.5 * 0 + 0.5 * 6 = 3; a quarter of the change is its part, the other worker changed nothing.
    assert numbers(layer.moving_mean.value)[0] == np.float32(0.75)


@program
def gradients_are_exchanged_once_and_before_clipping() -> None:
    partner = Partner(adds=100.0)
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")])
    adoption = Trainer(Job(partner, Alone())).adopt(model)
    model.compile(keras.optimizers.SGD(1.0, clipvalue=7.0), "mse")
    x = np.ones((2, 1), "float32")
    adoption.ensure_built((x, x))
    step(model, adoption, "train", (x, x), weights(2, 4))
    assert numbers(model.weights[0].value)[0, 0] == -7.0
    assert len(partner.asked) == 1


def _lost_in_fit(partner: Partner, rows: int = 10, **options: Any) -> None:
    layers = [keras.layers.Embedding(rows, 2), keras.layers.Flatten(), keras.layers.Dense(1)]
    model = keras.Sequential([keras.Input((1,), dtype="int32"), *layers])
    job = Job(partner, Alone())
    Trainer(job).adopt(model)
    model.compile("sgd", "mse", **options)
    caught: BaseException | None = None
    try:
        model.fit(np.zeros((8, 1), "int32"), np.zeros((8, 1), "float32"), verbose=0)
    except Exception as error:  # noqa: BLE001 - which one it is, is the question
        caught = error
    assert caught is partner.error, repr(caught)
    assert job.failed is partner.error


@program
def an_error_of_the_engine_reaches_the_user_as_it_is() -> None:
    _lost_in_fit(Partner(error=WorkerLostError("worker 1 is gone", rank=1)))
    _lost_in_fit(Partner(error=WorkerLostError("worker 1 is gone", rank=1)), run_eagerly=True)


@program
def an_error_among_sparse_rows_reaches_the_user_as_it_is() -> None:
    _lost_in_fit(Partner(error=WorkerLostError("worker 1 is gone", rank=1)), rows=40_000)


class Breaking(Partner):
    """Is lost in the exchange after a number of them."""

    left = 10**9

    def all_reduce(self, array: np.ndarray) -> np.ndarray:
        if not self.left:
            raise WorkerLostError("worker 1 is gone", rank=1)
        self.left -= 1
        return super().all_reduce(array)


class OwnStep(keras.Model):
    """Has a train step of its own, which does what Keras's does."""

    def train_step(self, *args: Any) -> Any:
        return super().train_step(*args)


def own_step_model() -> tuple[keras.Model, Any]:
    x = keras.Input((3,))
    return OwnStep(x, keras.layers.Dense(1)(keras.layers.Dense(4)(x))), "mse"


def _learns_until_the_loss(make: Callable[[], tuple[keras.Model, Any]], steps: int, **options: Any) -> None:
    partner, whole = Breaking(), Breaking()
    broken, right = (adopted(make, each)[0] for each in (partner, whole))
    for model in (broken, right):
        model.compile(keras.optimizers.SGD(0.1, momentum=0.9), "mse", metrics=["mae"], **options)
    x, y, _ = batch_for(right, 16)
    for index in range(steps):
        right.fit(x[index % 4 * 4 :][:4], y[index % 4 * 4 :][:4], batch_size=4, shuffle=False, verbose=0)
    exchanges = len(whole.asked) // steps
    partner.left = steps * exchanges
    try:
        broken.fit(x, y, batch_size=4, epochs=2, shuffle=False, verbose=0)
    except WorkerLostError:
        found = [numbers(v) for v in broken.trainable_variables]
        for mine, due in zip(found, right.trainable_variables, strict=True):
            assert np.allclose(mine, numbers(due), rtol=1e-5), f"after {steps} steps: {mine}, not {numbers(due)}"
        assert all(np.isfinite(float(metric.result())) for metric in broken.metrics if metric.name == "loss")
        # A graph of TensorFlow may count the step that failed: nothing in it says what comes first.
        counted_too = BACKEND == "tensorflow" and not options
        assert int(broken.optimizer.iterations) in (steps, steps + counted_too)
        return
    raise AssertionError("no worker was lost")


@program
def a_fit_that_breaks_off_leaves_what_was_learnt() -> None:
    _learns_until_the_loss(plain_model, 3)
    _learns_until_the_loss(plain_model, 4)


@program
def a_fit_that_breaks_off_leaves_what_was_learnt_by_a_train_step_of_ones_own() -> None:
    _learns_until_the_loss(own_step_model, 3)
    _learns_until_the_loss(own_step_model, 4)


@program
def a_fit_that_breaks_off_eagerly_leaves_what_was_learnt() -> None:
    _learns_until_the_loss(plain_model, 3, run_eagerly=True)


def together(size: int, work: Callable[[Trainer, Job], Any]) -> list[Any]:
    """Runs `work` on workers that are threads; raises the first error that is not about another worker."""

    def one(channel: Any) -> Any:
        job = Job(channel, channel.channel("agreement"))
        try:
            return work(Trainer(job), job)
        except Exception as error:
            job.fail(error)
            raise

    with concurrent.futures.ThreadPoolExecutor(size) as pool:
        futures = [pool.submit(one, channel) for channel in loopback.group(size, timeout=60.0)]
    errors = [f.exception() for f in futures if f.exception() is not None]
    for error in sorted(errors, key=lambda e: isinstance(e, UnisonoError)):
        raise error
    return [f.result() for f in futures]


def _trained(reduction: str) -> Callable[[Trainer, Job], Any]:
    x = np.array([1, 2, 3, 4, 5, 1, 2], "float32")[:, None]
    weights = np.array([1, 0.5, 0, 4, 2, 3, 0.25], "float32")

    def work(trainer: Trainer, job: Job) -> Any:
        dense = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
        model = keras.Sequential([keras.Input((1,)), dense])
        trainer.adopt(model)
        model.compile(keras.optimizers.SGD(0.01), keras.losses.MeanSquaredError(reduction=reduction))
        history = model.fit(
            x, 2 * x, sample_weight=weights, batch_size=5, shuffle=False, verbose=0, validation_data=(x, x, weights)
        )
        return [*history.history["loss"], *history.history["val_loss"], numbers(dense.kernel.value).item()]

    return work


for _reduction in ("sum", "sum_over_batch_size", "mean_with_sample_weight"):

    def _same(reduction: str = _reduction) -> None:
        (right,) = together(1, _trained(reduction))
        for found in together(3, _trained(reduction)):
            assert np.allclose(found, right, rtol=1e-5), f"{found}, one worker: {right}"

    PROGRAMS[f"three_workers_train_like_one_{_reduction}"] = _same


@program
def different_models_are_told_to_all() -> None:
    def work(trainer: Trainer, job: Job) -> Any:
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1 + job.rank)])
        trainer.adopt(model)
        model.compile("sgd", "mse")
        try:
            model.fit(np.ones((4, 1), "float32"), np.ones((4, 1), "float32"), verbose=0)
        except DivergenceError as error:
            return str(error)
        return "nothing"

    first, second = together(2, work)
    assert first == second and "The models differ" in first and "(1, 1) on worker 0" in first, first


class Peeking(keras.Model):
    """Looks at values, so that Keras cannot build it from shapes."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = keras.layers.Dense(1)

    def call(self, x: Any) -> Any:
        return self.dense(x * (1.0 if float(keras.ops.max(x)) > 0 else 2.0))


@program
def a_model_that_only_real_values_can_build_starts_equal() -> None:
    def work(trainer: Trainer, job: Job) -> Any:
        model = Peeking()
        trainer.adopt(model)
        loss = keras.losses.MeanSquaredError(reduction="mean_with_sample_weight")
        model.compile("sgd", loss, metrics=["mae"], run_eagerly=True)
        x = np.ones((5, 2), "float32")
        history = model.fit(x, x[:, :1], sample_weight=x[:, 0], verbose=0, batch_size=4)
        return values(state.shared_variables(model)), history.history

    (first, its), (second, other) = together(2, work)
    assert len(first) > 2 and first == second and its == other


@program
def a_model_given_back_is_as_before() -> None:
    model, adoption = adopted(plain_model, Partner())
    assert "fit" in vars(model) and "apply" in vars(model.optimizer)
    adoption.remove()
    assert not {"fit", "apply", "compile"} & (vars(model).keys() | vars(model.optimizer).keys())
    data = batch_for(model, 4)
    history = model.fit(*data[:2], verbose=0)
    assert np.isfinite(history.history["loss"][0])


def main(folder: Path, *names: str) -> None:
    if BACKEND == "tensorflow":
        import tensorflow as tf

        # Workers that are threads wait for each other in the threads of one pool.
        tf.config.threading.set_inter_op_parallelism_threads(16)
    from contract import loop_programs

    outcomes, programs = {}, {**PROGRAMS, **loop_programs.PROGRAMS}
    for name in names or programs:
        try:
            programs[name]()
            outcomes[name] = "ok"
        except Exception:  # noqa: BLE001 - what went wrong is the outcome
            outcomes[name] = traceback.format_exc()
        (folder / "outcomes.json").write_text(json.dumps(outcomes))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
