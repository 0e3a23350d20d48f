"""Arrays: dtypes, views, shuffles, weights and errors as in stock Keras."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pandas
import pytest
from scipy import sparse

from minutes import Minutes
from unisono.data.arrays import ArraySource, validation_split
from unisono.errors import ConfigurationError


def source(*data: Any, rank: int = 0, size: int = 1, seed: int = 1, **options: Any) -> ArraySource:
    return ArraySource(*data, rank=rank, size=size, agreement=Minutes(seed).worker(0), **options)


def column(rows: int, dtype: str = "float32") -> np.ndarray:
    return np.arange(rows, dtype=dtype)[:, None]


def test_r29_seven_examples_over_three_workers():
    found = [[(p.local, p.total) for p in source(column(7), batch_size=6, rank=r, size=3).epoch()] for r in range(3)]
    assert found == [[(2, 6), (1, 1)], [(2, 6), (0, 1)], [(2, 6), (0, 1)]]


def test_rows_in_order_are_views_of_the_users_array():
    x = column(10)
    (part, _) = source(x, batch_size=5, rank=1, size=2).epoch()
    assert np.shares_memory(part.data[0], x)
    assert part.data[0][:, 0].tolist() == [3, 4]


def test_rows_of_a_read_only_array_are_copied_as_torch_needs_writable_memory():
    x = column(10)
    x.flags.writeable = False
    assert all(part.data[0].flags.writeable for part in source(x, batch_size=5).epoch())


@pytest.mark.parametrize("dtype", ["float64", "float16", "float32"])
def test_floats_become_floatx_batch_by_batch(dtype: str):
    part = next(source(column(4, dtype)).epoch())
    assert part.data[0].dtype == "float32"


@pytest.mark.parametrize("dtype", ["int64", "uint8", "bool", "int32", "U3"])
def test_other_dtypes_are_kept(dtype: str):
    x = np.ones((4, 1)).astype(dtype)
    assert next(source(x).epoch()).data[0].dtype == x.dtype


def test_half_precision_of_jax_and_torch_becomes_floatx():
    import ml_dtypes
    import torch

    for x in (column(3).astype(ml_dtypes.bfloat16), torch.ones(3, 1, dtype=torch.bfloat16)):
        assert next(source(x).epoch()).data[0].dtype == "float32"


def test_pandas_gives_what_keras_gives():
    frame = pandas.DataFrame({"a": [1.5, 2.5], "b": [1, 2]})
    x, y = next(source(frame, pandas.Series([0, 1])).epoch()).data
    assert x.dtype == "float32" and x.tolist() == [[1.5, 1], [2.5, 2]]
    assert y.dtype == "int64" and y.tolist() == [[0], [1]]


def test_only_my_rows_are_touched():
    class Watched(np.ndarray):
        def __getitem__(self, rows: Any) -> Any:
            touched.append(rows)
            return super().__getitem__(rows)

    touched: list[Any] = []
    x = np.asfortranarray(np.zeros((100, 2), "float32")).view(Watched)
    watched = source(x, batch_size=10, rank=1, size=2, shuffle=True)
    watched._leaves[0]._array = x
    list(watched.epoch())
    assert [len(rows) for rows in touched] == [5] * 10


def test_each_epoch_has_an_order_of_its_own_and_batch_shuffles_stay_within_batches():
    whole = source(column(40), batch_size=8, shuffle=True)
    assert orders(whole) != orders(whole)
    within = source(column(40), batch_size=8, shuffle="batch")
    first, second = orders(within), orders(within)
    assert first != second
    assert [sorted(b) for b in first] == [sorted(b) for b in second] == [[*range(i, i + 8)] for i in range(0, 40, 8)]


def orders(shuffled: ArraySource) -> list[list[float]]:
    return [p.data[0][:, 0].tolist() for p in shuffled.epoch()]  # type: ignore[index]


def test_batch_size_is_32_unless_steps_say_otherwise():
    assert source(column(100)).num_batches == 4
    assert source(column(100), steps=3).num_batches == 3
    assert source(column(100), batch_size=50, steps=3).num_batches == 2


def test_what_train_step_gets_is_bare_without_targets():
    x = column(3)
    assert isinstance(next(source(x).epoch()).batch, np.ndarray)
    assert isinstance(next(source({"a": x}).epoch()).batch, dict)
    assert isinstance(next(source([x, x]).epoch()).batch, tuple)
    assert isinstance(next(source(x, x).epoch()).batch, tuple)


def test_class_weights_become_weights_of_examples():
    y = np.array([0, 1, 2, 7])
    for targets in (y, y[:, None], y.astype("float32") + 0.1):
        weights = next(source(column(4), targets, class_weight={0: 0.5, 2: 3.0}).epoch()).data[2]
        assert weights.dtype == "float32" and weights.tolist() == [0.5, 1, 3, 1]
    one_hot = np.eye(3)[[0, 1, 2]]
    assert next(source(column(3), one_hot, class_weight={0: 0.5, 2: 3.0}).epoch()).data[2].tolist() == [0.5, 1, 3]


def test_one_weight_per_example_serves_all_outputs():
    y = {"a": column(3), "b": column(3)}
    weights = next(source(column(3), y, np.ones(3)).epoch()).data[2]
    assert set(weights) == {"a", "b"}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: source(column(3), column(4)), r"x=\(3, 1\), y=\(4, 1\)"),
        (lambda: source(column(0)), "no examples"),
        (lambda: source(np.float32(3)), "same number of rows"),
        (lambda: source(column(3), column(3), np.ones(3), class_weight={0: 1.0}), "only one of them"),
        (lambda: source(column(3), [column(3), column(3)], class_weight={0: 1.0}), "exactly one output"),
        (lambda: source(column(3), class_weight={0: 1.0}), "exactly one output"),
        (lambda: source(column(3), [column(3), column(3)], np.ones((3, 2))), "one number per example"),
        (lambda: source(column(3), [column(3), column(3)], [np.ones(3)]), "nested like y"),
        (lambda: source(column(3), batch_size=-2), "batch_size=-2"),
    ],
)
def test_what_does_not_go_together_is_refused(call: Any, message: str):
    with pytest.raises(ConfigurationError, match=message):
        call()


def test_the_last_part_is_set_aside_before_any_shuffle():
    x = column(10)
    (train, y, weight), (held, held_y, _) = validation_split({"a": x}, pandas.Series(range(10)), None, 0.25)
    assert train["a"][:, 0].tolist() == [*range(7)] and held["a"][:, 0].tolist() == [7, 8, 9]
    assert np.shares_memory(train["a"], x)
    assert list(y) == [*range(7)] and list(held_y) == [7, 8, 9]
    assert weight is None


@pytest.mark.parametrize("fraction", [0.0, 0.999])
def test_a_split_leaves_something_on_both_sides(fraction: float):
    with pytest.raises(ConfigurationError, match="validation_split"):
        validation_split(column(10), None, None, fraction)


def test_only_arrays_can_be_split():
    with pytest.raises(ConfigurationError, match="generator"):
        validation_split((b for b in ()), None, None, 0.5)


def test_batches_are_those_of_stock_keras():
    from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter

    data = {"x": {"a": column(10, "float64"), "b": [column(10, "int32")]}, "y": pandas.Series(range(10))}
    stock = list(ArrayDataAdapter(**data, batch_size=4, class_weight={3: 2.0}).get_numpy_iterator())
    ours = [p.batch for p in source(data["x"], data["y"], batch_size=4, class_weight={3: 2.0}).epoch()]
    for a, b in zip(keras.tree.flatten(stock), keras.tree.flatten(ours), strict=True):
        assert a.dtype == b.dtype and np.array_equal(a, b)


def test_a_glance_tells_arrays_apart_and_not_the_last_digits_of_another_machine():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(100, 5)), rng.integers(0, 9, 100)
    mine = source(x, y).glance()
    assert mine.is_like(source(x.copy(), y.copy()).glance())
    assert mine.is_like(source(x * (1 + 1e-9) + 1e-12, y).glance())
    order = rng.permutation(100)
    for other in (
        (x[order], y[order]),
        (x, y[order]),
        (x[:99], y[:99]),
        (x.astype("float32"), y),
        (x, y, np.ones(100)),
        (x,),
        (np.where(x > 2, np.nan, x + 0.01), y),
    ):
        assert not mine.is_like(source(*other).glance())


@pytest.mark.parametrize(
    "make",
    [
        lambda: np.array([["a"], ["b"], ["c"]], dtype=object),
        lambda: np.array(["a", "b", "c"]),
        lambda: pandas.DataFrame({"a": [1, 2, 3], "b": [1.5, np.nan, 2]}),
        lambda: {"a": np.ones((3, 2)), "b": [np.zeros(3), np.ones((3, 4, 5))]},
        lambda: np.zeros((3, 0)),
        lambda: np.array([True, False, True]),
        lambda: sparse.random(3, 4, 0.5, random_state=0),
    ],
)
def test_a_glance_at_arrays_of_any_kind(make: Any):
    assert source(make()).glance().is_like(source(make()).glance())


def test_a_glance_copies_only_what_it_looks_at():
    wide = np.zeros((64, 1_000_000), "float32")
    (values,) = source(wide).glance().values
    assert values.size == 32 * 8 and not np.shares_memory(values, wide)
