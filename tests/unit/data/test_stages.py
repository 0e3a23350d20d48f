"""Shuffled, mapped, batched, repeated, read ahead."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unisono.data import blocks
from unisono.data.stages import Batch, Lap, Map, Prefetch, Repeat, Shuffle, Stage
from unisono.errors import ConfigurationError

LAP = Lap(5, (0, 0), lambda n: n)


def of(*sizes: int) -> list[np.ndarray]:
    """Returns blocks that number their rows through."""
    ends = np.cumsum([0, *sizes])
    return [np.arange(a, b) for a, b in itertools.pairwise(ends)]


def run(stage: Stage, stream: list[Any], lap: Lap = LAP) -> list[Any]:
    return list(stage.run(lambda lap: iter(stream), lap))


def rows(stream: list[Any]) -> list[int]:
    return [int(row) for block in stream for row in block]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 7)), st.integers(1, 20))
def test_batches_keep_the_order_and_all_but_the_last_are_full(sizes: list[int], n: int) -> None:
    found = run(Batch(n, drop_remainder=False), of(*sizes))
    assert rows(found) == list(range(sum(sizes)))
    assert all(len(batch) == n for batch in found[:-1])
    dropped = run(Batch(n, drop_remainder=True), of(*sizes))
    assert rows(dropped) == list(range(sum(sizes) // n * n))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 7)), st.integers(1, 20))
def test_a_shuffle_loses_nothing(sizes: list[int], size: int) -> None:
    assert sorted(rows(run(Shuffle(size, 1, 1), of(*sizes)))) == list(range(sum(sizes)))


def test_a_shuffle_depends_on_its_seed_and_its_lap_only() -> None:
    stream = of(10, 20, 30)
    one = rows(run(Shuffle(15, 1, 1), stream))
    assert one == rows(run(Shuffle(15, 1, 1), stream)) != list(range(60))
    others = [
        rows(run(Shuffle(15, 2, 1), stream)),
        rows(run(Shuffle(15, 1, 2), stream)),
        rows(run(Shuffle(15, 1, 1), stream, Lap(5, (0, 1), LAP.local))),
        rows(run(Shuffle(15, None, 1), stream)),
        rows(run(Shuffle(15, None, 1), stream, Lap(6, (0, 0), LAP.local))),
    ]
    assert len({*map(tuple, others), tuple(one)}) == 6


def test_a_row_leaves_the_buffer_about_as_late_as_it_is_large() -> None:
    order = np.array(rows(run(Shuffle(100, 1, 1), of(*[10] * 100))))
    waits = np.argsort(order) - np.arange(1000)
    assert waits.min() >= -100 and waits.max() > 50


def test_blocks_are_shuffled_as_structures() -> None:
    stream = [({"a": np.arange(5) + k}, np.arange(5) + k) for k in (0, 5)]
    for features, label in run(Shuffle(3, 1, 1), stream):
        assert features["a"].tolist() == label.tolist()


def test_longer_text_is_not_cut_off_in_the_buffer() -> None:
    stream = [np.array(["a", "b"]), np.array(["long", "longer"])]
    found = [str(row) for block in run(Shuffle(2, 1, 1), stream) for row in block]
    assert sorted(found) == ["a", "b", "long", "longer"]


@pytest.mark.parametrize("workers", [1, 3])
def test_map_keeps_the_order(workers: int) -> None:
    def slowly(x: np.ndarray) -> np.ndarray:
        time.sleep(0.001 * (len(x) % 3))
        return -x

    assert rows(run(Map(slowly, workers), of(*range(9)))) == [-k for k in range(36)]


def test_map_gets_features_and_label_as_two_arguments() -> None:
    assert run(Map(lambda x, y: x + y, 1), [(np.arange(2), np.arange(2))])[0].tolist() == [0, 2]


def test_a_function_that_returns_no_rows_is_named() -> None:
    stream = run(Map(lambda x: (x, x[:1]), 1), of(3))
    with pytest.raises(ConfigurationError, match=r"map\(\) returned .*\[\(3,\), \(1,\)\]"):
        run(Batch(2, drop_remainder=False), stream)
    with pytest.raises(ConfigurationError, match=r"not alike"):
        run(Batch(4, drop_remainder=False), [np.zeros((2, 1)), np.zeros((2, 3))])


def test_repeat_gives_each_turn_another_order() -> None:
    def before(lap: Lap) -> Iterator[Any]:
        return Shuffle(50, 1, 1).run(lambda lap: iter(of(50)), lap)

    turns = [tuple(turn.tolist()) for turn in Repeat(3).run(before, LAP)]
    assert len(set(turns)) == 3
    assert all(sorted(turn) == list(range(50)) for turn in turns)


def test_endless_repeats_of_nothing_end() -> None:
    assert run(Repeat(None), []) == []


def test_prefetch_reads_ahead_in_a_thread_but_not_further() -> None:
    made: list[int] = []

    def before(lap: Lap) -> Iterator[int]:
        for k in range(10):
            made.append(k)
            yield k

    stream = Prefetch(3).run(before, LAP)
    assert next(stream) == 0
    deadline = time.monotonic() + 5
    while len(made) < 4 and time.monotonic() < deadline:
        time.sleep(0.001)
    time.sleep(0.02)
    assert made == [0, 1, 2, 3]
    assert list(stream) == list(range(1, 10))


@pytest.mark.parametrize("stage", [Prefetch(2), Map(lambda x: x, 3)])
def test_threads_end_when_a_stream_is_left_and_what_is_before_is_closed(stage: Stage) -> None:
    closed = threading.Event()

    def before(lap: Lap) -> Iterator[np.ndarray]:
        try:
            yield from of(*[1] * 100)
        finally:
            closed.set()

    known = threading.active_count()
    stream = stage.run(before, LAP)
    next(stream)
    assert threading.active_count() > known
    stream.close()  # type: ignore[attr-defined]
    assert threading.active_count() == known
    assert closed.is_set()


@pytest.mark.parametrize("stage", [Prefetch(2), Map(lambda x: 1 // x, 1), Map(lambda x: 1 // x, 2)])
def test_errors_come_where_the_element_is_asked_for(stage: Stage) -> None:
    def before(lap: Lap) -> Iterator[int]:
        yield 1
        yield 1 // int(isinstance(stage, Map)) - 1

    stream = stage.run(before, LAP)
    with pytest.raises(ZeroDivisionError):
        list(stream)


def test_read_only_arrays_are_copied() -> None:
    locked = np.arange(3)
    locked.flags.writeable = False
    assert blocks.owned({"a": locked})["a"].flags.writeable
