"""tf.data pipelines whose functions draw random values in parallel: all workers draw what is drawn in turn alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from tensorflow_pipelines import read
from unisono.data import tensorflow_graph, tensorflow_turns

Dataset = tf.data.Dataset
Threads = dict[str, int]


def drawn() -> Any:
    return tf.random.uniform([], 0, 1000, tf.int64, seed=3)


def half(*_: Any) -> Any:
    return drawn() < 500


def kept(element: Any, value: Any) -> Any:
    return value < 500


def interleaved(inner: Callable[[Any], Dataset]) -> Callable[[Threads], Dataset]:
    return lambda threads: Dataset.range(8).interleave(inner, cycle_length=4, **threads).batch(15)


def twice(i: Any) -> Dataset:
    return Dataset.range(4).interleave(
        lambda j: Dataset.range(10).filter(half).map(lambda k: 100 * i + 10 * j + k), num_parallel_calls=3
    )


def fused(threads: Threads) -> Dataset:
    def number(i: Any) -> tuple[Any, Any]:
        return i, drawn()

    if not threads:
        return Dataset.range(300).map(number).batch(15)
    return Dataset.range(300).apply(tf.data.experimental.map_and_batch(number, 15, **threads))


PIPELINES: dict[str, Callable[[Threads], Dataset]] = {
    "values of an interleave": interleaved(lambda i: Dataset.range(40).map(lambda j: 1000 * i + drawn())),
    "a filter in an interleave": interleaved(lambda i: Dataset.range(40).filter(half).map(lambda j: 100 * i + j)),
    "an interleave that reads ahead": interleaved(
        lambda i: Dataset.range(40).filter(half).map(lambda j: 100 * i + j).prefetch(5)
    ),
    "batches in an interleave": interleaved(
        lambda i: Dataset.range(40).filter(half).map(lambda j: 100 * i + j).batch(5, num_parallel_calls=2).unbatch()
    ),
    "the number of examples": interleaved(
        lambda i: Dataset.from_tensors(i).repeat(tf.random.uniform([], 1, 9, tf.int64, seed=3))
    ),
    "an interleave in an interleave": interleaved(twice),
    "a map in a flat_map": lambda threads: (
        Dataset.range(8)
        .flat_map(
            lambda i: (
                Dataset.range(40).map(lambda j: (100 * i + j, drawn()), **threads).filter(kept).map(lambda j, u: j)
            )
        )
        .batch(15)
    ),
    "a map in an interleave": interleaved(
        lambda i: (
            Dataset.range(40)
            .map(lambda j: (100 * i + j, drawn()), num_parallel_calls=2)
            .filter(kept)
            .map(lambda j, u: j)
        )
    ),
    "map_and_batch": lambda threads: fused(threads).map(lambda i, u: i + 1000 * u),
    "map_and_batch before a filter": lambda threads: fused(threads).unbatch().filter(kept).map(lambda i, u: i).batch(9),
    "whole numbers behind batch": lambda threads: (
        Dataset.range(300)
        .batch(3)
        .map(lambda i: i + tf.random.uniform([3], 0, 1000, tf.int64, seed=3), **threads)
        .map(lambda i: tf.reverse(i, [0]))
    ),
}


@pytest.mark.parametrize("name", PIPELINES)
def test_workers_see_what_one_sees_that_draws_in_turn(name: str) -> None:
    def parallel() -> Dataset:
        return PIPELINES[name]({"num_parallel_calls": 4})

    def in_turn() -> Dataset:
        sequential = PIPELINES[name]({})
        graph = tensorflow_graph.serialize(sequential)
        assert graph is not None
        changed = graph.copy()
        tensorflow_turns.draw_in_turn(changed)
        options = tf.data.Options()
        options.experimental_optimization.apply_default_optimizations = False
        return graph.load(changed).with_options(options)

    (alone,), _ = read(in_turn, 1, epochs=2)
    assert len(alone) > 2
    for size in (2, 3):
        workers, sources = read(parallel, size, epochs=2)
        assert "takes its slice" in sources[0].describe()
        assert [[v for part in parts for v in part] for parts in zip(*workers, strict=True)] == alone


def ops(dataset: Dataset) -> set[str]:
    graph = tensorflow_graph.serialize(dataset)
    assert graph is not None
    changed = graph.copy()
    tensorflow_turns.draw_in_turn(changed)
    return {n.op for nodes in (changed.node, *(f.node_def for f in changed.library.function)) for n in nodes}


def test_threads_stay_where_values_do_not_matter() -> None:
    def brighter(x: Any, y: Any) -> tuple[Any, Any]:
        return tf.cast(x, tf.float32) + tf.random.uniform([]), y

    pairs = Dataset.zip((Dataset.range(8), Dataset.range(8)))
    augmented = pairs.map(brighter, num_parallel_calls=2)
    assert "ParallelMapDatasetV2" in ops(augmented.shuffle(8).batch(2).prefetch(1))
    nested = Dataset.range(8).interleave(lambda i: pairs.map(brighter, num_parallel_calls=2), num_parallel_calls=2)
    assert {"ParallelMapDatasetV2", "ParallelInterleaveDatasetV4"} <= ops(nested.batch(2))
    assert "ParallelMapDatasetV2" not in ops(augmented.filter(lambda x, y: x < 4))
    assert not {"ParallelMapDatasetV2", "ParallelInterleaveDatasetV4"} & ops(nested.filter(lambda x, y: x < 4))
