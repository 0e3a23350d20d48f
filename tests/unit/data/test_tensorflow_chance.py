"""tf.data pipelines in which random values choose the examples: every example once on some worker, or on none."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from tensorflow_pipelines import Pipeline, everything, numbers, read, with_policy, write_lines

Policy = tf.data.experimental.AutoShardPolicy


def half(x: Any) -> Any:
    return tf.random.uniform([], seed=1) < 0.5


def drawn_by(generator: tf.random.Generator) -> tf.data.Dataset:
    return tf.data.Dataset.range(1000).filter(lambda x: generator.uniform([]) < 0.5)


BEFORE_MAP: dict[str, Pipeline] = {
    "filter": lambda: tf.data.Dataset.range(1000).filter(half),
    "drawn in a parallel map": lambda: (
        tf.data.Dataset.range(1000)
        .map(lambda x: (x, tf.random.uniform([])), num_parallel_calls=4)
        .filter(lambda x, u: u < 0.5)
        .map(lambda x, u: x)
    ),
    "flat_map": lambda: tf.data.Dataset.range(1000).flat_map(
        lambda x: tf.data.Dataset.from_tensors(x).repeat(tf.cast(half(x), tf.int64))
    ),
    "generator": lambda: drawn_by(tf.random.Generator.from_seed(4)),
}


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("name", list(BEFORE_MAP))
def test_what_random_values_choose_is_chosen_once(name: str, size: int) -> None:
    workers, _ = read(lambda: BEFORE_MAP[name]().map(lambda x: x + 0).batch(20), size)
    seen = everything(workers)
    assert set(seen.values()) == {1}
    assert 350 < len(seen) < 650


def test_random_values_behind_the_choice_leave_functions_to_own_examples() -> None:
    _, sources = read(lambda: tf.data.Dataset.range(40).map(lambda x: half(x)).batch(4))
    assert "own examples only" in sources[0].report().reason


@pytest.mark.parametrize("policy", ["FILE", "DATA"])
def test_a_list_of_files_that_is_drawn_at_random(tmp_path: Path, policy: str) -> None:
    names = write_lines(tmp_path, [1] * 60)

    def build() -> tf.data.Dataset:
        drawn = tf.data.Dataset.from_tensor_slices(names).filter(half)
        return with_policy(numbers(drawn.interleave(tf.data.TextLineDataset)).batch(6), Policy[policy])

    workers, _ = read(build)
    seen = everything(workers)
    assert set(seen.values()) == {1}
    assert flat_parity(workers)
    assert 15 < len(seen) < 45


def flat_parity(workers: list[list[list[Any]]]) -> bool:
    return abs(sum(map(len, workers[0])) - sum(map(len, workers[1]))) <= 1


@pytest.mark.parametrize("policy", ["FILE", "DATA"])
def test_a_random_filter_behind_files_draws_for_each_worker_by_itself(tmp_path: Path, policy: str) -> None:
    names = write_lines(tmp_path, [100, 100])

    def build() -> tf.data.Dataset:
        return with_policy(numbers(tf.data.TextLineDataset(names)).filter(half).batch(6), Policy[policy])

    workers, _ = read(build)
    assert set(everything(workers).values()) == {1}
    assert Counter(v % 100 for w in workers for b in w for v in b).most_common(1)[0][1] == 2
    assert {v % 100 for b in workers[0] for v in b} != {v % 100 for b in workers[1] for v in b}
