"""What every backend must do in training loops of the user's own; run by `backend_programs.py`."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest

from contract.backend_programs import BACKEND, Job, Partner, numbers, together
from unisono.collectives.loopback import Alone
from unisono.errors import ConfigurationError
from unisono.strategies import reductions
from unisono.strategies.reductions import ReduceOp
from unisono.training.custom import CustomLoops
from unisono.training.trainer import Trainer

PROGRAMS: dict[str, Callable[[], None]] = {}


def program(function: Callable[[], None]) -> Callable[[], None]:
    PROGRAMS[function.__name__] = function
    return function


def squares(model: Any, x: Any, y: Any, total: int) -> tuple[Any, list[Any]]:
    """Returns the sum of squared errors over the size of the global batch, and its gradients."""
    if BACKEND == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((model(x, training=True) - y) ** 2) / total
        return loss, tape.gradient(loss, model.trainable_variables)
    if BACKEND == "jax":
        import jax

        def loss_of(trainable: Any) -> Any:
            moving = [v.value for v in model.non_trainable_variables]
            outputs, moved = model.stateless_call(trainable, moving, x, training=True)
            return keras.ops.sum((outputs - y) ** 2) / total, moved

        (loss, moved), gradients = jax.value_and_grad(loss_of, has_aux=True)(
            [v.value for v in model.trainable_variables]
        )
        for variable, value in zip(model.non_trainable_variables, moved, strict=True):
            variable.assign(value)
        return loss, gradients
    model.zero_grad()
    loss = keras.ops.sum((model(x, training=True) - y) ** 2) / total
    loss.backward()
    return loss.detach(), [v.value.grad for v in model.trainable_variables]


def apply(optimizer: Any, gradients: list[Any], variables: list[Any]) -> None:
    if BACKEND == "torch":
        import torch

        with torch.no_grad():
            optimizer.apply(gradients, variables)
    else:
        optimizer.apply(gradients, variables)


def loops_with(channel: Any) -> CustomLoops:
    return Trainer(Job(channel, Alone())).loops


def kept(trainer: Trainer, *layers: Any) -> tuple[Any, Any, Any]:
    """Returns a model, an optimizer and a metric as a scope would; threads cannot share a scope."""
    model, optimizer, metric = keras.Sequential([keras.Input((1,)), *layers]), keras.optimizers.SGD(0.01), None
    metric = keras.metrics.MeanAbsoluteError()
    trainer.adopt(model)
    trainer.loops.add_optimizers([optimizer])
    trainer.loops.add_metric(metric)
    return model, optimizer, metric


def _trained(trainer: Trainer, job: Job) -> Any:
    dense = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
    model, optimizer, metric = kept(trainer, dense)
    data = np.arange(1, 9, dtype="float32")[:, None]
    losses = []

    def step(x: Any, total: int) -> Any:
        loss, gradients = squares(model, x, 2 * x, total)
        apply(optimizer, gradients, model.trainable_variables)
        metric.update_state(2 * x, x)
        return loss / len(x) * len(x)  # without examples, 0 / 0

    for rows in (slice(0, 5), slice(5, 6), slice(6, 8)):
        mine = keras.ops.convert_to_tensor(np.array_split(data[rows], job.size)[job.rank])
        loss = trainer.loops.run(step, (mine, len(data[rows])))
        losses.append(float(reductions.reduce(trainer.loops, ReduceOp.SUM, loss, None)))
    results = [float(metric.result()), float(metric.result())]
    return [*losses, *results, numbers(dense.kernel.value).item(), int(optimizer.iterations)]


@program
def own_loops_on_three_workers_train_like_one() -> None:
    (right,) = together(1, _trained)
    for found in together(3, _trained):
        assert np.allclose(found, right, rtol=1e-5), f"{found}, one worker: {right}"


@program
def own_loops_average_moving_statistics_by_examples() -> None:
    def work(trainer: Trainer, job: Job) -> Any:
        layer = keras.layers.BatchNormalization(momentum=0.5)
        model, optimizer, _ = kept(trainer, layer)

        def step(x: Any) -> None:
            apply(optimizer, squares(model, x, x, 3)[1], model.trainable_variables)

        # Workers with 2, 1 and no examples; their means are 3 and 9.
        rows = [[[2.0], [4.0]], [[9.0]], np.zeros((0, 1))][job.rank]
        trainer.loops.run(step, (keras.ops.convert_to_tensor(np.array(rows, "float32")),))
        return numbers(layer.moving_mean.value).tolist(), [numbers(v.value).tobytes() for v in model.variables]

    found = together(3, work)
    assert all(each == found[0] for each in found)
    assert np.allclose(found[0][0], [0.5 * (2 * 3 + 9) / 3])


@program
def own_loops_begin_with_the_state_of_the_chief() -> None:
    def work(trainer: Trainer, job: Job) -> Any:
        dense = keras.layers.Dense(1, use_bias=False)
        model, _, _ = kept(trainer, dense)
        dense.kernel.assign([[1.0 + job.rank]])
        late = keras.layers.Dense(1, use_bias=False, kernel_initializer=lambda *_, **__: [[5.0 + job.rank]])
        gc.collect()

        def step(x: Any) -> Any:
            return keras.ops.stop_gradient(model(x) + late(x))

        outputs = trainer.loops.run(step, (keras.ops.ones((1, 1)),))
        again = trainer.loops.run(step, (keras.ops.ones((1, 1)),))
        return [numbers(t).item() for t in (dense.kernel.value, late.kernel.value, outputs, again)]

    for found in together(2, work):
        assert found == [1.0, 5.0, 6.0, 6.0], found


@program
def own_loops_reduce_and_concatenate() -> None:
    def work(trainer: Trainer, job: Job) -> Any:
        loops = trainer.loops
        mine = keras.ops.convert_to_tensor(np.full((job.rank, 2), job.rank, "float16"))
        return [
            numbers(reductions.reduce(loops, ReduceOp.MEAN, mine, 0)).tolist(),
            numbers(reductions.reduce(loops, ReduceOp.SUM, {"a": [mine], "b": None}, -2)["a"][0]).tolist(),
            numbers(reductions.gather(loops, mine, -2)).tolist(),
            numbers(reductions.all_reduce(loops, ReduceOp.MEAN, np.int32(job.rank))).item(),
            numbers(reductions.broadcast(loops, [job.rank + 3.0])[0]).item(),
        ]

    for found in together(3, work):
        assert np.allclose(found[0], [5 / 3, 5 / 3], rtol=1e-3), found
        assert found[1:] == [[5.0, 5.0], [[1.0, 1.0], [2.0, 2.0], [2.0, 2.0]], 1.0, 3.0], found


@program
def own_loops_exchange_inside_compiled_functions() -> None:
    partner = Partner(adds=10.0)
    loops = loops_with(partner)

    def twice(x: Any) -> Any:
        first = reductions.all_reduce(loops, ReduceOp.SUM, x)
        return first, reductions.reduce(loops, ReduceOp.SUM, 2 * x, 0)

    function = twice
    if BACKEND == "tensorflow":
        import tensorflow as tf

        function = tf.function(twice, reduce_retracing=True)
    if BACKEND == "jax":
        import jax

        function = jax.jit(twice)
    for rows in (1, 2, 3):
        first, second = function(keras.ops.ones((rows,)))
        assert numbers(first).tolist() == [11.0] * rows and numbers(second).item() == 10.0 + 2 * rows
    assert [a.shape for a in partner.asked] == [(1,), (1,), (2,), (1,), (3,), (1,)]


@program
def own_loops_alone_exchange_nothing() -> None:
    loops = loops_with(Alone())
    value = {"a": 1.5, "b": np.ones(2)}
    assert reductions.all_reduce(loops, ReduceOp.MEAN, value) is value
    assert reductions.broadcast(loops, value) is value
    assert numbers(reductions.reduce(loops, ReduceOp.MEAN, np.float32([1, 3]), 0)).item() == 2.0
    assert loops.run(lambda a, b: a + b, (1,), {"b": 2}) == 3


@program
def what_is_summed_already_is_refused() -> None:
    partner = Partner()
    loops = loops_with(partner)
    optimizer, variable = keras.optimizers.SGD(1.0), keras.Variable(np.zeros(1, "float32"))
    optimizer.build([variable])
    loops.add_optimizers([optimizer])
    gradients = reductions.all_reduce(loops, ReduceOp.SUM, [keras.ops.ones(1)])
    with pytest.raises(ConfigurationError, match="summed twice"):
        apply(optimizer, gradients, [variable])
    before = len(partner.asked)
    apply(optimizer, [keras.ops.ones(1)], [variable])
    assert len(partner.asked) == before + 1 and numbers(variable.value).item() == -1.0


@program
def in_a_step_of_ones_own_every_optimizer_sums() -> None:
    partner = Partner(adds=4.0)
    loops = loops_with(partner)
    optimizers = [keras.optimizers.SGD(1.0, clipvalue=3.0)]
    if BACKEND != "jax":  # there Keras's own applies inside a function that is compiled only
        inner = keras.optimizers.SGD(1.0, clipvalue=3.0)
        optimizers.append(keras.optimizers.LossScaleOptimizer(inner, initial_scale=1.0))
    for optimizer in optimizers:
        variable = keras.Variable(np.zeros(1, "float32"))
        optimizer.build([variable])
        begun = len(partner.asked)
        loops.run(lambda o=optimizer, v=variable: apply(o, [keras.ops.ones(1)], [v]))
        assert numbers(variable.value).item() == -3.0, "clipped before the exchange"
        assert len(partner.asked) == begun + 1


@program
def what_is_made_in_a_scope_belongs_to_own_loops() -> None:
    partner = Partner(adds=1.0)
    trainer = Trainer(Job(partner, Alone()))
    with trainer.scope():
        optimizer, metric = keras.optimizers.Adam(0.5), keras.metrics.Mean()
        scaled = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(1.0))
    assert all("apply" in vars(each) for each in (optimizer, scaled, scaled.inner_optimizer))
    other, plain = keras.optimizers.Adam(0.5), keras.metrics.Mean()
    assert not {"apply", "result"} & (vars(other).keys() | vars(plain).keys())
    trainer.loops.run(lambda: metric.update_state([2.0, 6.0]))
    # The other worker adds 1 to the total of 8 and 1 to the count of 2.
    assert [float(metric.result()) for _ in range(2)] == [3.0, 3.0]
    assert float(trainer.loops.run(lambda: keras.ops.convert_to_numpy(metric.result()))) == 4.0
    metric.reset_state()
    assert [float(numbers(v.value)) for v in metric.variables] == [0.0, 0.0]
    trainer.loops.run(lambda x: metric.update_state(np.nan), (np.zeros((0, 2)),))
    assert [float(numbers(v.value)) for v in metric.variables] == [0.0, 0.0]


@program
def a_class_that_becomes_a_functional_model_leaves_nothing_in_the_way_of_own_loops() -> None:
    class Own(keras.Model):
        pass

    trainer = Trainer(Job(Partner(), Alone()))
    gc.disable()
    try:
        with trainer.scope():
            inputs = keras.Input((1,))
            model = Own(inputs, keras.layers.Dense(1)(inputs))
        # Keras has made an instance without its __init__, which lives until Python looks for cycles.
        assert len(trainer.loops._models) == 2
        assert trainer.loops.run(lambda x: keras.ops.shape(model(x)), (np.ones((2, 1), "float32"),)) == (2, 1)
    finally:
        gc.enable()


@program
def tensorflow_rewrites_a_step_and_knows_its_replicas() -> None:
    if BACKEND != "tensorflow":
        return
    import tensorflow as tf

    loops = loops_with(Partner(adds=3.0))

    def step(x: Any) -> Any:
        if tf.reduce_sum(x) > 0:  # AutoGraph's work
            sign = 1.0
        else:
            sign = -1.0
        context = tf.distribute.get_replica_context()
        return (
            sign * tf.nn.compute_average_loss(x),
            tf.nn.scale_regularization_loss(tf.constant(8.0)),
            context.all_reduce("MEAN", tf.constant(1.0)),
            context.replica_id_in_sync_group,
        )

    @tf.function
    def outer(x: Any) -> Any:
        return loops.run(step, (x,))

    for call in (outer, lambda x: loops.run(tf.function(step), (x,))):
        for factor in (1.0, -1.0):
            found = [numbers(t).item() for t in call(tf.constant([2.0, 4.0]) * factor)]
            assert found == [1.5, 4.0, 2.0, 0.0], found
    assert tf.distribute.get_strategy().num_replicas_in_sync == 1 and not tf.distribute.has_strategy()
