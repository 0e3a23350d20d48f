"""Which state the chief gives to all workers, and when nothing has to travel."""

from __future__ import annotations

import gc
from typing import Any

import keras
import numpy as np
import pytest

from unisono.backends.custom import Rows, concatenate, first_rows
from unisono.collectives.base import Collectives
from unisono.collectives.objects import broadcast_object
from unisono.errors import DivergenceError
from unisono.training.sharing import StateSharing
from unit.training.workers import names, together

# Keras hands its variables to NumPy 2 in an old way.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


class Eager:
    """A backend of which sharing asks nothing special."""

    apply_method = "apply"

    def __init__(self) -> None:
        self.streams: list[int] = []

    def eagerly(self) -> Any:
        return Nothing()

    def is_initialized(self, variable: Any) -> bool:
        return True

    def spread_randomness(self, rank: int, from_chief: Any) -> None:
        self.streams.append(rank)


class Nothing:
    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


class Counting:
    """A channel that counts what it is asked."""

    def __init__(self, channel: Collectives) -> None:
        self.channel, self.rank, self.size, self.calls = channel, channel.rank, channel.size, 0

    def __getattr__(self, name: str) -> Any:
        self.calls += 1
        return getattr(self.channel, name)


def sharing_over(channel: Any) -> StateSharing:
    return StateSharing(channel, names(channel.size), Eager(), lambda value: broadcast_object(channel, value))  # type: ignore[arg-type]


def dense(value: float) -> keras.Model:
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False)])
    model.layers[0].kernel.assign([[value]])
    return model


def kernel(model: keras.Model) -> float:
    return float(keras.ops.convert_to_numpy(model.weights[0].value)[0, 0])


def test_what_is_shared_once_does_not_travel_again():
    def work(channel: Any) -> Any:
        counted = Counting(channel)
        sharing, model = sharing_over(counted), dense(1.0 + channel.rank)
        sharing.add(model)
        sharing.share()
        begun, first = counted.calls, kernel(model)
        model.layers[0].kernel.assign([[7.0 + channel.rank]])
        sharing.share()
        return first, counted.calls - begun, kernel(model)

    assert together(2, work) == [(1.0, 1, 7.0), (1.0, 1, 8.0)]


def test_what_is_made_or_built_later_is_shared_then():
    def work(channel: Any) -> Any:
        sharing, model, optimizer = sharing_over(channel), dense(1.0 + channel.rank), keras.optimizers.Adam(0.1)
        unbuilt = keras.Sequential([keras.layers.Dense(1, use_bias=False)])
        for each in (optimizer, unbuilt):
            sharing.add(each)
        sharing.share()
        sharing.add(model)
        sharing.share()
        unbuilt.build((1, 1))
        unbuilt.layers[0].kernel.assign([[3.0 + channel.rank]])
        optimizer.build(model.trainable_variables)
        optimizer.variables[-1].assign([[5.0 + channel.rank]])
        sharing.share()
        return kernel(model), kernel(unbuilt), float(keras.ops.convert_to_numpy(optimizer.variables[-1])[0, 0])

    assert together(2, work) == [(1.0, 3.0, 5.0)] * 2


def test_what_one_worker_has_freed_already_is_left_out():
    def work(channel: Any) -> Any:
        sharing, kept = sharing_over(channel), [dense(9.0 + channel.rank)]
        sharing.add(kept[0])
        model = dense(1.0 + channel.rank)
        sharing.add(model)
        if channel.rank:
            kept.clear()
            gc.collect()
        sharing.share()
        return kernel(model)

    assert together(2, work) == [1.0, 1.0]


def test_models_that_differ_are_told_to_all():
    def work(channel: Any) -> Any:
        sharing = sharing_over(channel)
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1 + channel.rank)])
        sharing.add(model)
        sharing.share()

    for found in together(2, work):
        assert isinstance(found, DivergenceError) and "(1, 2)" in str(found)


def test_the_rows_of_a_batch():
    assert [first_rows(lengths) for lengths in ([4, 4], [4, 0], [0], [], [3, 1])] == [4, 0, 0, 1, 3]
    assert (Rows.of(3).presence, Rows.of(0).presence) == (1.0, 0.0)


def test_what_does_not_fit_is_not_concatenated():
    assert concatenate([np.ones((1, 2)), np.ones((3, 2))], 0).shape == (4, 2)
    with pytest.raises(DivergenceError, match=r"axis 1.*worker 1: \(3, 2\)"):
        concatenate([np.ones((1, 2)), np.ones((3, 2))], 1)
