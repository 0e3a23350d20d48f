"""Elements taken several at a time: the same ones, at the same steps on all workers, and errors in their place."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import tensorflow as tf

from unisono.data import tensorflow_dataset, tensorflow_graph
from unisono.data.tensorflow_bursts import in_bursts
from unisono.data.tensorflow_pipeline import Pipeline
from unisono.errors import DataError


class Taken:
    """Counts what is taken of an iterator, each element of which takes a number of seconds."""

    def __init__(self, elements: Iterator[Any], seconds: float = 0.0) -> None:
        self.elements = elements
        self.seconds = seconds
        self.count = 0
        self.now = 0.0

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        self.now += self.seconds
        self.count += 1
        return next(self.elements)

    def clock(self) -> float:
        return self.now


def scalars(n: int) -> Iterator[Any]:
    return iter([(tf.constant(i), {"y": tf.constant(float(i))}) for i in range(n)])


def counts(taken: Taken, steps: int) -> list[int]:
    """How many elements had been taken when each step had its own."""
    return [taken.count for _ in itertools.islice(in_bursts(taken, taken.clock), steps)]


@pytest.mark.parametrize("n", [0, 1, 15, 16, 17, 40])
def test_the_same_elements(n: int) -> None:
    assert [int(x) for x, _ in in_bursts(scalars(n))] == list(range(n))


def test_sixteen_at_a_time() -> None:
    assert counts(Taken(scalars(100)), 40) == 16 * [16] + 16 * [32] + 8 * [48]


def test_a_slow_pipeline_keeps_no_step_waiting_and_begins_bursts_where_a_fast_one_does() -> None:
    assert counts(Taken(scalars(100), seconds=2e-3), 20) == [4, 4, 4, *range(4, 17), 19, 19, 19, 20]
    assert counts(Taken(scalars(100), seconds=1.0), 20) == [2, *range(2, 21)]


def test_an_error_comes_where_it_would_come() -> None:
    def broken() -> Iterator[Any]:
        yield from scalars(20)
        raise DataError("part-3, record 20")

    seen: list[int] = []
    with pytest.raises(DataError, match="part-3"):
        seen.extend(int(x) for x, _ in in_bursts(broken()))
    assert seen == list(range(20))


@pytest.mark.parametrize(
    "element", [tf.zeros((64, 1024)), tf.constant(["a"]), tf.RaggedTensor.from_row_lengths([], [])]
)
def test_large_ones_and_such_of_unknown_size_one_by_one(element: Any) -> None:
    assert counts(Taken(iter([element] * 9)), 9) == list(range(1, 10))


def test_pipelines_in_which_python_or_variables_may_notice_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensorflow_dataset, "share_a_core", lambda: True)
    numbers, number = tf.data.Dataset.range(8), tf.Variable(1, dtype=tf.int64)

    class Agreement:
        def __init__(self) -> None:
            self.memory: dict[str, Any] = {}

        def from_chief(self, value: Any) -> Any:
            return value

        def seed(self) -> int:
            return 1

    def closed(dataset: Any) -> bool:
        pipeline = Pipeline(dataset, tensorflow_graph.serialize(dataset), Agreement())  # type: ignore[arg-type]
        taken = Taken(pipeline.iterate(pipeline.begin()))
        next(tensorflow_dataset._taken(taken, pipeline))
        assert taken.count == (9 if pipeline.is_closed else 1)
        return pipeline.is_closed

    assert closed(numbers.map(lambda x: 2 * x).shuffle(8))
    assert closed(numbers.map(lambda x: x + tf.random.uniform((), 0, 9, tf.int64)))
    assert not closed(numbers.map(lambda x: x + number))
    assert not closed(numbers.map(lambda x: tf.numpy_function(lambda a: a, [x], tf.int64)))
    assert not closed(
        tf.data.Dataset.from_generator(lambda: iter(range(3)), output_signature=tf.TensorSpec((), tf.int64))
    )
