"""Which source for which data, and which arguments go with it."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest

from minutes import Minutes
from unisono.data.select import make_source
from unisono.errors import ConfigurationError

X = np.ones((4, 1), "float32")


def make(x: Any, **options: Any) -> Any:
    return make_source(x, rank=0, size=1, agreement=Minutes().worker(0), **options)


class Endless(keras.utils.PyDataset):
    num_batches = None

    def __getitem__(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        return X * k, X


def generator() -> Any:
    yield X, X


def test_a_source_is_returned_as_it_is():
    source = make(X)
    assert make(source) is source


@pytest.mark.parametrize(
    ("x", "named"),
    [
        ([1.0, 2.0], "float"),
        ("train.csv", "str"),
        (iter([X]), "list_iterator"),
        ({"a": X, "b": "no"}, "str"),
        (None, "None"),
    ],
)
def test_unknown_kinds_are_named_with_what_is_accepted(x: Any, named: str):
    with pytest.raises(ConfigurationError, match=named) as error:
        make(x)
    assert "tf.data.Dataset" in str(error.value)


@pytest.mark.parametrize("name", ["y", "sample_weight"])
def test_a_data_set_brings_its_own_targets_and_weights(name: str):
    with pytest.raises(ConfigurationError, match=f"{name} was given beside a generator"):
        make(generator(), **{name: X})


def test_a_generator_cannot_take_class_weights():
    with pytest.raises(ConfigurationError, match="class_weight does not work with a generator"):
        make(generator(), class_weight={0: 1.0})


@pytest.mark.parametrize(("x", "named"), [(generator(), "a generator"), (Endless(), "an infinite PyDataset")])
def test_an_ignored_shuffle_is_said(x: Any, named: str):
    with pytest.warns(UserWarning, match=f"shuffle=True has no effect on {named}"):
        make(x, shuffle=True)
