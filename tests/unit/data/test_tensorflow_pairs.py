"""tf.data pipelines over pairs of a label and a file: which of the two is the name, and where a record is broken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from tensorflow_pipelines import Policy, everything, numbers, read, with_policy, write_lines
from unisono.errors import DataError

LABELS = ["cat", "cat", "dog", "dog"]


READ: dict[str, Callable[[Any, Any], tf.data.Dataset]] = {
    "text": lambda c, f: tf.data.TextLineDataset(f),
    "csv": lambda c, f: tf.data.experimental.CsvDataset(f, [tf.string]).map(lambda line: line),
    "label kept": lambda c, f: tf.data.TextLineDataset(f).map(
        lambda line: tf.strings.join([line, tf.strings.substr(c, 0, 0)])
    ),
    "label added": lambda c, f: (
        tf.data.TextLineDataset(f)
        .map(lambda line: (line, c))
        .map(lambda line, label: line + tf.strings.substr(label, 0, 0))
    ),
}


def pairs(names: list[str], name: str) -> tf.data.Dataset:
    return numbers(tf.data.Dataset.from_tensor_slices((LABELS, names)).interleave(READ[name])).batch(4)


@pytest.mark.parametrize("policy", ["AUTO", "FILE", "DATA"])
@pytest.mark.parametrize("name", list(READ))
def test_pairs_of_a_label_and_a_file(tmp_path: Path, name: str, policy: str) -> None:
    names = write_lines(tmp_path, [7, 2, 5, 4])
    workers, sources = read(lambda: with_policy(pairs(names, name), Policy[policy]), 3, epochs=2)
    assert everything(workers) == Counter(dict.fromkeys(range(18), 2))
    assert "4 files" in sources[0].report().kind


@pytest.mark.parametrize("policy", ["FILE", "DATA"])
def test_names_put_together_of_several_parts(tmp_path: Path, policy: str) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    for at, folder in enumerate(folders):
        folder.mkdir()
        for each in range(2):
            (folder / f"{each}.txt").write_text(f"{4 * at + 2 * each}\n{4 * at + 2 * each + 1}\n")

    def build() -> tf.data.Dataset:
        parts = ([str(folders[0])] * 2 + [str(folders[1])] * 2, ["0.txt", "1.txt"] * 2)
        listed = tf.data.Dataset.from_tensor_slices(parts)
        lines = listed.flat_map(lambda folder, file: tf.data.TextLineDataset(folder + "/" + file))
        return with_policy(numbers(lines).batch(2), Policy[policy])

    workers, _ = read(build, 3)
    assert everything(workers) == Counter(range(8))


@pytest.mark.parametrize("policy", ["FILE", "DATA"])
def test_a_broken_record_of_a_pair_is_named(tmp_path: Path, policy: str) -> None:
    names = write_lines(tmp_path, [7, 2, 5, 4])
    Path(names[2]).write_text("1\n2\nthree\n4\n")
    with pytest.raises(DataError, match=r"part-002\.txt, record 3: StringToNumber\S* could not[^{}]*$"):
        read(lambda: with_policy(pairs(names, "text"), Policy[policy]))
