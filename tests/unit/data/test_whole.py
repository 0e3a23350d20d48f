"""Batches every worker reads whole: generators, PyDataset, fingerprints, shared random numbers."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import pytest

from minutes import Minutes, Worker, in_turn
from unisono.data.batches import fingerprint
from unisono.data.randomness import SharedRandomness
from unisono.data.select import make_source
from unisono.errors import ConfigurationError

X = np.arange(6, dtype="float32")[:, None]


def make(x: Any, **options: Any) -> Any:
    return make_source(x, rank=0, size=1, agreement=Minutes().worker(0), **options)


@pytest.mark.parametrize("array", [X, np.arange(6), np.asfortranarray(np.random.rand(6, 5)), np.array(["a", "b"] * 3)])
def test_a_fingerprint_shows_another_order_shape_or_value(array: np.ndarray):
    changed = array.copy()
    changed[2] = array[3]
    others = [array[::-1], array[:-1], changed, (array, array)]
    assert len({fingerprint(a) for a in (array, *others)}) == 5
    assert fingerprint({"a": array, "b": None}) == fingerprint({"a": array.copy(), "b": None}) != 0


def test_a_fingerprint_of_much_data_looks_at_little_of_it():
    big = np.random.default_rng(0).random((1000, 1000))
    assert fingerprint(big) == fingerprint(big.copy())
    assert fingerprint(big) != fingerprint(big[::-1])


def draw() -> list[float]:
    """Draws an odd count of normal numbers, so that one of a pair is left over."""
    return [random.random(), float(np.random.rand()), *np.random.randn(3).tolist(), random.gauss(0, 1)]


def test_random_numbers_of_user_code_are_what_the_chief_would_draw_alone():
    def work(rank: int, size: int, agreement: Worker) -> Any:
        shared = SharedRandomness(size, agreement)
        drawn = []
        for k in range(4):
            np.random.rand()  # draws of this process do not disturb the shared ones
            with shared():
                if k != 1:
                    drawn += draw()
        return drawn

    random.seed(1000)
    np.random.seed(1000)
    np.random.rand()
    alone = [*draw(), *draw(), *draw()]
    assert in_turn(3, work) == [alone] * 3


def test_a_processs_own_random_numbers_are_not_touched():
    def work(rank: int, size: int, agreement: Worker) -> None:
        shared = SharedRandomness(size, agreement)
        before = random.getstate(), np.random.get_state()[1].tolist()
        with shared():
            draw()
        assert (random.getstate(), np.random.get_state()[1].tolist()) == before

    in_turn(2, work)


def test_generators_that_differ_have_other_fingerprints():
    def work(rank: int, size: int, agreement: Worker) -> Any:
        source = make_source((b for b in [(X + rank,)]), rank=rank, size=size, agreement=agreement)
        return [p.fingerprint for p in source.epoch()]

    first, second = in_turn(2, work)
    assert first != second


def test_a_generator_goes_on_where_the_last_epoch_stopped():
    source = make((X + i,) for i in range(4))
    assert source.sample()[0].shape == (1, 1)
    parts = source.epoch()
    assert [float(next(parts).data[0][0, 0]) for _ in range(2)] == [0, 1]
    parts.close()
    assert [float(p.data[0][0, 0]) for p in source.epoch()] == [2, 3]
    assert list(source.epoch()) == []


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        ([X], "yielded ndarray; a tuple is needed"),
        ([(X, X[:2])], r"one row per example each. Shapes: \[\(6, 1\), \(2, 1\)\]"),
        ([(np.float32(3),)], "one row per example"),
        ([("text",)], "with str"),
    ],
)
def test_what_is_not_a_batch_is_refused(batches: list[Any], message: str):
    with pytest.raises(ConfigurationError, match=message):
        list(make(b for b in batches).epoch())


def test_an_empty_generator_has_no_sample():
    with pytest.raises(ConfigurationError, match="no batch at all"):
        make(b for b in ()).sample()


class Squares(keras.utils.PyDataset):
    """Batch k holds k; counts its hooks."""

    def __init__(self, batches: int | None = 5, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._batches = batches
        self.hooks: list[str] = []
        self.asked: list[int] = []
        self.threads: set[str] = set()

    @property
    def num_batches(self) -> int | None:
        return self._batches

    def __getitem__(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        self.asked.append(k)
        self.threads.add(threading.current_thread().name)
        if k == 99:
            raise ValueError("batch 99 is broken")
        return X * 0 + k, np.full(6, k)

    def on_epoch_begin(self) -> None:
        self.hooks.append("begin")

    def on_epoch_end(self) -> None:
        self.hooks.append("end")


def numbers(parts: Iterator[Any]) -> list[int]:
    return [int(p.data[1][0]) for p in parts]


def test_threads_make_batches_ahead_in_order_and_no_more_than_allowed():
    data = Squares(20, workers=3, max_queue_size=4)
    parts = make(data).epoch()
    assert numbers(itertools.islice(parts, 2)) == [0, 1]
    assert len(data.asked) <= 2 + 4
    assert numbers(parts) == list(range(2, 20))
    assert all(name.startswith("unisono-pydataset") for name in data.threads)


def test_an_infinite_data_set_goes_on():
    source = make(Squares(None, workers=2))
    assert source.num_batches is None
    parts = source.epoch()
    assert numbers(itertools.islice(parts, 12)) == list(range(12))
    parts.close()


def test_leaving_off_between_epochs_loses_nothing():
    data = Squares(6, workers=2)
    source = make(data)
    parts = source.epoch()
    source.on_epoch_begin()
    first = numbers(itertools.islice(parts, 2))
    source.on_epoch_end()
    source.on_epoch_begin()
    assert first + numbers(parts) == list(range(6))
    source.on_epoch_end()
    assert data.hooks == ["begin", "end"] * 2


def test_what_the_data_set_raises_arrives():
    for workers in (1, 2):
        with pytest.raises(ValueError, match="batch 99 is broken"):
            list(make(Squares(100, workers=workers)).epoch())


def test_class_weights_reach_batches():
    part = next(make(Squares(), class_weight={0: 0.25}).epoch())
    assert part.data[2].tolist() == [0.25] * 6


def test_a_batch_of_another_form_is_refused():
    class Wrong(Squares):
        def __getitem__(self, k: int) -> Any:
            return "nothing"

    with pytest.raises(ConfigurationError, match="returned str"):
        next(make(Wrong()).epoch())
