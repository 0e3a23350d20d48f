"""Fails when a private name of Keras that the package leans on moves, or comes to mean something else."""

from __future__ import annotations

import ast
import inspect
import os
import re
import subprocess
import sys
from typing import Any

import house
import keras
import numpy as np
import pytest

from unisono.training import keras_private
from unisono.training.agreement import Verdict
from unisono.training.batches import LocalBatch

# Keras hands its variables to NumPy 2 in an old way.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

X = np.ones((4, 2), "float32")


def compiled(**options: Any) -> keras.Model:
    model = keras.Sequential([keras.layers.Dense(3), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.1), "mse", **options)
    return model


def test_a_data_adapter_takes_the_place_of_x():
    """Keras's loops iterate over an adapter as they are given it, and hand its batches on untouched."""
    served: list[Any] = []

    class Own(keras_private.DataAdapter):
        def get_numpy_iterator(self) -> Any:
            return self

        get_tf_dataset = get_jax_iterator = get_torch_dataloader = get_numpy_iterator

        def __iter__(self) -> Any:
            for _ in range(3):
                batch = LocalBatch.of((X, X[:, :1]), Verdict(False, False, False, 4, 4))
                served.append(batch)
                yield batch

        num_batches = 3
        batch_size = has_partial_batch = partial_batch_size = None

        def on_epoch_begin(self) -> None:
            served.append("begin")

        def on_epoch_end(self) -> None:
            served.append("end")

    model = compiled()
    model.build((None, 2))
    model.optimizer.build(model.trainable_variables)
    taken: list[Any] = []

    def make(force: bool = False) -> None:
        model.train_function = lambda iterator: taken.append(next(iterator)) or {"loss": 0.0}

    model.__dict__["make_train_function"] = make
    model.fit(Own(), epochs=2, verbose=0)
    batches = [b for b in served if isinstance(b, LocalBatch)]
    assert len(taken) == 6 and all(any(t is b for b in batches) for t in taken)
    # Keras ends an epoch once more, before the first.
    assert (served.count("begin"), served.count("end")) == (2, 3)


def test_a_model_is_built_from_a_sample():
    model = compiled(metrics=["mae"])
    keras_private.build(model, (X, X[:, :1]))
    assert (
        model.built
        and model.optimizer.built
        and [tuple(v.shape) for v in model.weights] == [(2, 3), (3,), (3, 1), (1,)]
    )
    assert keras_private.compile_loss(model).built
    assert len(model.metrics_variables) == 4


def test_all_layers_are_found_at_any_depth():
    inner = keras.Sequential([keras.layers.Dense(1), keras.layers.Dropout(0.1)])
    model = keras.Sequential([keras.layers.Dense(2), inner])
    found = keras_private.flat_layers(model)
    assert found[0] is model and set(found) == {model, *model.layers, *inner.layers} and len(found) == 5


def test_losses_are_wrapped_one_by_one():
    x = keras.Input((2,))
    model = keras.Model(x, {"a": keras.layers.Dense(1, name="a")(x), "b": keras.layers.Dense(1, name="b")(x)})
    model.compile(
        "sgd", {"a": "mse", "b": keras.losses.MeanAbsoluteError(reduction="sum")}, loss_weights={"a": 1, "b": 2}
    )
    data = (X, {"a": X[:, :1], "b": X[:, :1]})
    keras_private.wrap_losses(model, lambda loss: pytest.fail("there is nothing to wrap before it is built"))
    keras_private.build(model, data)
    seen = []

    class Ten:
        def __init__(self, loss: Any) -> None:
            seen.append((loss.name, loss.reduction))
            self.name = loss.name

        def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
            return keras.ops.convert_to_tensor(10.0)

    keras_private.wrap_losses(model, Ten)
    assert seen == [("mse", "sum_over_batch_size"), ("mean_absolute_error", "sum")]
    outputs = {"a": keras.ops.ones((4, 1)), "b": keras.ops.ones((4, 1))}
    assert float(model.compute_loss(x=X, y=data[1], y_pred=outputs)) == 30.0


def test_fit_begins_where_a_backup_says():
    model = compiled()
    assert keras_private.initial_epoch(model) is None
    seen: list[int] = []
    begin = keras.callbacks.LambdaCallback(
        on_train_begin=lambda logs: keras_private.set_initial_epoch(model, 2),
        on_epoch_begin=lambda epoch, logs: seen.append(epoch),
    )
    model.fit(X, X[:, :1], epochs=4, verbose=0, callbacks=[begin])
    assert seen == [2, 3]
    assert "self.model._initial_epoch = " in inspect.getsource(keras.callbacks.BackupAndRestore)


def test_the_variables_of_an_optimizer_come_in_the_order_of_its_gradients():
    optimizer = keras.optimizers.Adam()
    variables = [keras.Variable(np.zeros(n, "float32")) for n in (2, 1)]
    optimizer.build(variables)
    assert all(a is b for a, b in zip(keras_private.optimized_variables(optimizer), variables, strict=True))
    scaled = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD())
    scaled.build(variables)
    assert all(a is b for a, b in zip(keras_private.optimized_variables(scaled), variables, strict=True))


def test_a_mask_travels_with_the_outputs():
    """`GlobalLoss` reads it there, as Keras's own losses do."""
    x = keras.Input((3, 1))
    model = keras.Model(x, keras.layers.Dense(1)(keras.layers.Masking(0.0)(x)))
    outputs = model(np.array([[[1.0], [0.0], [2.0]]], "float32"))
    assert keras.ops.convert_to_numpy(outputs._keras_mask).tolist() == [[True, False, True]]


@pytest.mark.parametrize(
    ("reduction", "right"), [("sum", 14.0), ("sum_over_batch_size", 3.5), ("mean_with_sample_weight", 14 / 8)]
)
def test_what_each_reduction_divides_by(reduction: str, right: float):
    loss = keras.losses.MeanSquaredError(reduction=reduction)
    y, weight = np.array([[1.0], [1.0], [2.0], [3.0]], "float32"), np.array([6.0, 0.0, 2.0, 0.0], "float32")
    assert float(loss(y, np.zeros((4, 1), "float32"), weight)) == pytest.approx(right)
    assert loss.reduction == reduction


def test_a_model_loaded_from_a_file_is_compiled_by_the_class_that_defines_compile():
    from unisono.training.hooks import owner

    source = inspect.getsource(keras.Model.compile_from_config)
    assert "self.__class__.compile != Trainer.compile" in source
    assert owner(keras.Model, "compile").__name__ == "Trainer"


def test_logs_of_a_batch_are_copied_before_callbacks_keep_them():
    kept: list[Any] = []
    own = {"loss": 1.0}
    calls = keras.callbacks.CallbackList(
        [keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: kept.append(logs))]
    )
    calls.on_train_batch_end(0, own)
    own["loss"] = 2.0
    assert kept == [{"loss": 1.0}]


KNOWN = {"_unisono_own", "_unisono_watch"}


def test_a_stateless_scope_is_noticed():
    assert not keras_private.in_stateless_scope()
    with keras.StatelessScope():
        assert keras_private.in_stateless_scope()


def test_private_names_of_keras_stand_in_one_file():
    found = set()
    for path in house.files():
        rooms = path.relative_to(house.PACKAGE).parts
        if rooms[0] not in ("training", "backends", "strategies") or path.name in (
            "keras_private.py",
            "jax_private.py",
            "torch_private.py",
        ):
            continue
        for node in ast.walk(house.tree(path)):
            if isinstance(node, ast.Attribute) and re.match(r"_[a-z]", node.attr):
                owner = node.value
                own = isinstance(owner, ast.Name) and owner.id in ("self", "cls")
                inner = isinstance(owner, ast.Attribute) and owner.attr.startswith("_")
                elsewhere = (path.name, node.attr) == ("base.py", "_flatten_layers")  # backends need it too
                if not (own or inner or elsewhere) and node.attr not in KNOWN:
                    found.add(f"{path.name}:{node.lineno} {node.attr}")
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("keras.src"):
                found.add(f"{path.name}:{node.lineno} {node.module}")
    assert not found


def test_the_mask_of_a_tensor():
    tensor = keras.ops.ones((2,))
    assert keras_private.mask_of(tensor) is None
    embedded = keras.layers.Embedding(3, 2, mask_zero=True)(np.array([[0, 1]]))
    assert keras.ops.convert_to_numpy(keras_private.mask_of(embedded)).tolist() == [[False, True]]


def test_loops_create_variables_by_one_method():
    assert callable(getattr(keras.Model, keras_private.BUILD))


STEP_STATE = """
import keras, numpy as np
from unisono.training import keras_private

model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, kernel_initializer="zeros")])
model.compile("sgd", "mse")
model.__dict__[keras_private.ASSIGN] = keras_private.assign_untracked(model)

class Look(keras.callbacks.Callback):
    def on_train_batch_end(self, step, logs=None):
        print(type(vars(self.model)["_jax_state"]).__name__, float(np.abs(self.model.get_weights()[0]).sum()) > 0)

model.fit(np.ones((4, 2)), np.ones((4, 1)), batch_size=2, verbose=0, callbacks=[Look()])
model.more = {"number": 3}
print(type(model.more).__name__)
"""


def test_the_state_of_each_step_is_not_searched_for_variables_on_jax():
    pytest.importorskip("jax")
    done = subprocess.run(
        [sys.executable, "-c", STEP_STATE],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"KERAS_BACKEND": "jax"},
    )
    assert done.stdout.splitlines() == ["mappingproxy True", "mappingproxy True", "TrackedDict"], done.stderr


def test_the_schedule_of_a_learning_rate():
    schedule = keras.optimizers.schedules.CosineDecay(0.1, 5)
    assert keras_private.learning_rate_schedule(keras.optimizers.SGD(schedule)) is schedule
    assert keras_private.learning_rate_schedule(keras.optimizers.SGD(0.1)) is None
