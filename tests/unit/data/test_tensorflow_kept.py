"""tf.data pipelines that keep what they have read on a disk which workers may share, or read what was kept."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from tensorflow_pipelines import Policy, everything, numbers, read, with_policy, write_lines
from unisono.errors import ConfigurationError


def first(element: Any) -> Any:
    return tf.constant(0, tf.int64)


@pytest.mark.parametrize("policy", ["FILE", "DATA"])
@pytest.mark.parametrize("way", ["shard_func", "default"])
def test_snapshots_do_not_meet(tmp_path: Path, policy: str, way: str) -> None:
    names = write_lines(tmp_path, [9, 9])
    path = str(tmp_path / "snapshot")

    def build() -> tf.data.Dataset:
        lines = numbers(tf.data.TextLineDataset(names))
        kept = lines.snapshot(path, shard_func=first if way == "shard_func" else None)
        return with_policy(kept.batch(6), Policy[policy])

    workers, _ = read(build, epochs=3)
    assert everything(workers) == Counter(dict.fromkeys(range(18), 3))
    assert {p.name.split(".")[1] for p in tmp_path.glob("snapshot*")} == {"worker-0-of-2", "worker-1-of-2"}


def test_a_snapshot_of_a_worker_s_own_slices(tmp_path: Path) -> None:
    path = tf.constant(str(tmp_path / "snapshot"))

    def build() -> tf.data.Dataset:
        return tf.data.Dataset.range(24).snapshot(path).map(lambda x: x + 0).batch(6).map(lambda x: x + 0)

    workers, _ = read(build, epochs=3)
    assert everything(workers) == Counter(dict.fromkeys(range(24), 3))


def test_a_snapshot_of_a_worker_s_own_batches(tmp_path: Path) -> None:
    path = str(tmp_path / "snapshot")

    def build() -> tf.data.Dataset:
        return tf.data.Dataset.range(24).map(lambda x: x + 0).batch(6).snapshot(path, shard_func=first)

    workers, _ = read(build, epochs=3)
    assert everything(workers) == Counter(dict.fromkeys(range(24), 3))


def test_a_saved_data_set_cannot_be_shared_by_file(tmp_path: Path) -> None:
    path = str(tmp_path / "saved")
    tf.data.Dataset.range(12).save(path)
    with pytest.raises(ConfigurationError, match=r"FILE.*tf\.data\.Dataset\.save\(\).*\n.*AUTO or DATA"):
        read(lambda: with_policy(tf.data.Dataset.load(path).batch(4), Policy.FILE))
    workers, _ = read(lambda: tf.data.Dataset.load(path).batch(4))
    assert everything(workers) == Counter(range(12))
