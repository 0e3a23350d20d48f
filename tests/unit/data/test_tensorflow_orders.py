"""tf.data shuffles with a seed: whatever iterates a data set, workers see the order that one process would see next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from minutes import Worker, in_turn
from unisono.data.base import Source
from unisono.data.select import make_source

N, BATCH = 12, 4
Open = Callable[[Any], Source]
Script = Callable[[Open, int], list[list[Any]]]


def shuffled(seed: int = 5) -> tf.data.Dataset:
    return tf.data.Dataset.range(N).shuffle(N, seed=seed)


def epochs(source: Source, count: int = 1) -> list[list[Any]]:
    return [[[] if p.data is None else np.asarray(p.data[0]).tolist() for p in source.epoch()] for _ in range(count)]


def run(script: Script, size: int) -> list[list[list[int]]]:
    """Returns the global batches of all epochs that a script has read, each sorted."""

    def work(rank: int, size: int, agreement: Worker) -> list[list[Any]]:
        return script(lambda dataset: make_source(dataset, rank=rank, size=size, agreement=agreement), rank)

    workers = in_turn(size, work)
    return [
        [sorted(v for part in parts for v in part) for parts in zip(*epoch, strict=True)]
        for epoch in zip(*workers, strict=True)
    ]


def loops(each: Callable[[], tf.data.Dataset]) -> Script:
    def script(source: Open, rank: int) -> list[list[Any]]:
        dataset = each()
        return [*epochs(source(dataset)), *epochs(source(dataset), 2), *epochs(source(dataset))]

    return script


def again_and_again(source: Open, rank: int) -> list[list[Any]]:
    dataset = shuffled()
    return epochs(source(tf.data.Dataset.range(3).flat_map(lambda i: dataset).batch(BATCH)), 3)


def looked_at(source: Open, rank: int) -> list[list[Any]]:
    dataset = shuffled().batch(BATCH)
    next(iter(dataset))
    found = epochs(source(dataset), 2)
    for _ in range(7):
        list(dataset)
    return [*found, *epochs(source(dataset))]


def of_one_shuffle(source: Open, rank: int) -> list[list[Any]]:
    dataset = shuffled()
    first, second = source(dataset.batch(BATCH)), source(dataset.map(lambda x: x + 0).batch(BATCH))
    return [*epochs(first), *epochs(second), *epochs(first), *epochs(source(dataset.take(8).batch(BATCH)))]


def begun_only(source: Open, rank: int) -> list[list[Any]]:
    read = source(shuffled().batch(BATCH))
    first = epochs(read)
    read.epoch()
    return [*first, *epochs(read)]


def broken_off(source: Open, rank: int) -> list[list[Any]]:
    dataset = shuffled().batch(BATCH)
    read = source(dataset)
    next(read.epoch())
    return [*epochs(read), *epochs(source(dataset))]


SCRIPTS: dict[str, Script] = {
    "loops": loops(lambda: shuffled().batch(BATCH)),
    "functions behind": loops(lambda: shuffled().map(lambda x: 2 * x).batch(BATCH)),
    "joined": loops(lambda: shuffled().batch(BATCH).map(lambda x: x - tf.reduce_min(x))),
    "random values": loops(
        lambda: shuffled().map(lambda x: x + tf.random.uniform((), 0, 1, tf.int64)).batch(BATCH).prefetch(1)
    ),
    "twice": loops(lambda: shuffled().shuffle(5, seed=8).batch(BATCH)),
    "and without a seed": loops(lambda: shuffled().batch(BATCH).shuffle(1)),
    "repeated": loops(lambda: shuffled().repeat(3).batch(BATCH)),
    "of a part": loops(lambda: shuffled().take(7).batch(BATCH)),
    "in a function": loops(lambda: tf.data.Dataset.range(3).flat_map(lambda i: shuffled()).batch(BATCH)),
    "numbers": loops(lambda: tf.data.Dataset.random(seed=3, rerandomize_each_iteration=True).take(9).batch(BATCH)),
    "always the same": loops(
        lambda: tf.data.Dataset.range(N).shuffle(N, seed=5, reshuffle_each_iteration=False).batch(BATCH)
    ),
    "a global seed": loops(lambda: globally_seeded()),
    "again and again": again_and_again,
    "looked at": looked_at,
    "of one shuffle": of_one_shuffle,
    "begun only": begun_only,
    "broken off": broken_off,
}


def globally_seeded() -> tf.data.Dataset:
    tf.random.set_seed(3)
    dataset = tf.data.Dataset.range(N).shuffle(N).batch(BATCH)
    tf.random.set_seed(None)
    return dataset


@pytest.mark.parametrize("name", SCRIPTS)
def test_workers_see_the_orders_that_one_process_sees(name: str) -> None:
    alone = run(SCRIPTS[name], 1)
    if name not in ("always the same", "in a function"):
        assert len({str(epoch) for epoch in alone}) == len(alone)
    for size in (2, 3):
        assert run(SCRIPTS[name], size) == alone


def test_what_one_worker_looks_at_shifts_no_order() -> None:
    def script(looker: int) -> Script:
        def work(source: Open, rank: int) -> list[list[Any]]:
            dataset = shuffled().map(lambda x: x + 0).batch(BATCH)
            if rank == looker:
                next(iter(dataset))
            return [*epochs(source(dataset)), *epochs(source(dataset))]

        return work

    assert run(script(0), 2) == run(script(0), 1)
    assert run(script(1), 2) == run(script(1), 1)


@pytest.mark.parametrize("size", [1, 2])
def test_a_sample_takes_no_order(size: int) -> None:
    def script(source: Open, rank: int) -> list[list[Any]]:
        ragged = shuffled().map(lambda x: tf.range(x + 1)).ragged_batch(BATCH)
        read = source(ragged.map(lambda x: x.row_lengths() - 1).map(lambda x: tf.reshape(x, (-1, tf.size(x) // 4))))
        assert read.sample()[0].shape == (1, 1)
        return [[np.ravel(batch).tolist() for batch in epoch] for epoch in epochs(read, 2)]

    expected = shuffled().batch(BATCH)
    assert run(script, size) == [[sorted(b.numpy().tolist()) for b in expected] for _ in range(2)]


def test_the_data_set_itself_moves_on_as_in_one_process() -> None:
    def script(source: Open, rank: int) -> list[list[Any]]:
        dataset = shuffled().batch(BATCH)
        epochs(source(dataset), 3)
        mine = [batch.numpy().tolist() for batch in dataset]
        return [mine if rank == 0 else [[] for _ in mine]]

    assert run(script, 2) == run(script, 1)
