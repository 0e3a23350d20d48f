"""tf.data pipelines that come in another order on each worker: the repair is a seed, not a policy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import tensorflow as tf

from tensorflow_pipelines import read, write_lines
from unisono.errors import DivergenceError


def interleaved(names: list[str]) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(names).interleave(tf.data.TextLineDataset)


@pytest.mark.parametrize("listed", [tf.data.TextLineDataset, interleaved])
def test_the_same_files_in_another_order(tmp_path: Path, listed: Callable[[list[str]], tf.data.Dataset]) -> None:
    names = write_lines(tmp_path, [3, 3, 3])
    made = iter([names, names[::-1]])
    with pytest.raises(DivergenceError, match=r"another order than the chief's\.\n.*sort .* or seed") as caught:
        read(lambda: listed(next(made)).batch(2))
    assert "OFF" not in str(caught.value)


def test_arrays_shuffled_without_a_seed() -> None:
    made = iter([[0, 1, 2, 3], [3, 1, 0, 2]])
    with pytest.raises(DivergenceError, match=r"seed=\.\.\. to keras\.utils\.image_dataset_from_directory"):
        read(lambda: tf.data.Dataset.from_tensor_slices(next(made)).map(lambda x: x + 0).batch(2))
