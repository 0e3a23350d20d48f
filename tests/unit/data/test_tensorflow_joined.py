"""tf.data pipelines that join several data sets, or name a file more than once: every example once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import tensorflow as tf

from tensorflow_pipelines import Policy, everything, numbers, read, with_policy, write_lines
from unisono.data.policy import Way
from unisono.errors import ConfigurationError


def chosen(names: list[str], *, endless: bool = False) -> tf.data.Dataset:
    parts = [tf.data.TextLineDataset(names[:3]), tf.data.TextLineDataset(names[3:])]
    choices = tf.data.Dataset.range(2).repeat(None if endless else 14)
    return numbers(tf.data.Dataset.choose_from_datasets(parts, choices, stop_on_empty_dataset=not endless)).batch(4)


def sampled(names: list[str], seed: int | None = None) -> tf.data.Dataset:
    parts = [tf.data.TextLineDataset(names[:3]), tf.data.TextLineDataset(names[3:])]
    return numbers(tf.data.Dataset.sample_from_datasets(parts, [0.3, 0.7], seed=seed)).batch(4)


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("policy", ["AUTO", "DATA"])
@pytest.mark.parametrize(
    "build",
    [chosen, lambda names: chosen(names, endless=True), sampled, lambda names: sampled(names, 5)],
    ids=["choose", "choose endless", "sample", "sample seeded"],
)
def test_data_sets_taken_from_in_turn(tmp_path: Path, build: object, policy: str, size: int) -> None:
    names = write_lines(tmp_path, [7, 2, 5, 4, 9, 1])
    workers, sources = read(lambda: with_policy(build(names), Policy[policy]), size, epochs=2)  # type: ignore[operator]
    assert everything(workers) == Counter(dict.fromkeys(range(28), 2))
    assert sources[0].report().way is Way.SLICES
    assert "choose_from_datasets() or sample_from_datasets() depends on the order" in sources[0].describe()


def test_data_sets_taken_from_in_turn_by_file(tmp_path: Path) -> None:
    names = write_lines(tmp_path, [7, 2, 5, 4, 9, 1])
    with pytest.raises(ConfigurationError, match=r"FILE.*choose_from_datasets.*\n.*AUTO"):
        read(lambda: with_policy(chosen(names), Policy.FILE))
    for endless in (lambda: chosen(names, endless=True), lambda: sampled(names)):
        workers, _ = read(lambda build=endless: with_policy(build(), Policy.FILE))
        assert everything(workers) == Counter(range(28))


@pytest.mark.parametrize("policy", ["AUTO", "DATA"])
def test_files_followed_by_what_lies_in_none(tmp_path: Path, policy: str) -> None:
    names = write_lines(tmp_path, [7, 5])

    def build() -> tf.data.Dataset:
        joined = numbers(tf.data.TextLineDataset(names)).concatenate(tf.data.Dataset.range(12, 20))
        return with_policy(joined.batch(4), Policy[policy])

    workers, _ = read(build)
    assert everything(workers) == Counter(range(20))
    with pytest.raises(ConfigurationError, match=r"FILE.*lies in no file"):
        read(lambda: with_policy(build(), Policy.FILE))


@pytest.mark.parametrize("policy", ["AUTO", "DATA", "FILE"])
@pytest.mark.parametrize("reader", ["csv", "text", "parallel"])
def test_a_file_listed_twice_is_read_twice(tmp_path: Path, reader: str, policy: str) -> None:
    first, second = write_lines(tmp_path, [7, 5])
    names = [first, first, second]

    def build() -> tf.data.Dataset:
        if reader == "csv":
            records = tf.data.experimental.CsvDataset(names, [tf.int64])
        else:
            records = numbers(tf.data.TextLineDataset(names, num_parallel_reads=2 if reader == "parallel" else None))
        return with_policy(records.batch(4), Policy[policy])

    workers, _ = read(build, epochs=2)
    assert everything(workers) == Counter({v: 4 if v < 7 else 2 for v in range(12)})
