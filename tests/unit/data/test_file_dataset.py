"""Data sets of files as a user builds them, and in one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from unisono import data
from unisono.data import AutoShardPolicy, FileDataset, text_lines
from unisono.data.readers import stream
from unisono.errors import ConfigurationError


@pytest.fixture
def lines(tmp_path: Path) -> FileDataset:
    for k in range(4):
        (tmp_path / f"{k}.txt").write_text("".join(f"{10 * k + i}\n" for i in range(10)))
    return text_lines(tmp_path / "*.txt")


def rows(dataset: FileDataset) -> list[int]:
    return [int(row) for block in dataset for row in block]


def test_batches_in_one_process(lines: FileDataset) -> None:
    batched = lines.batch(16)
    assert rows(batched) == list(range(40))
    assert [len(batch) for batch in batched] == [16, 16, 8]
    assert [len(batch) for batch in lines.batch(16, drop_remainder=True)] == [16, 16]
    assert [Path(path).name for path in lines.files] == ["0.txt", "1.txt", "2.txt", "3.txt"]


def test_it_is_immutable(lines: FileDataset) -> None:
    lines.shuffle(10).batch(3).repeat(2)
    assert lines.stages == () and rows(lines) == list(range(40))
    with pytest.raises(AttributeError):
        lines.policy = AutoShardPolicy.OFF  # type: ignore[misc]


def test_a_seed_gives_the_same_orders_again_and_another_each_epoch(lines: FileDataset) -> None:
    def epochs(seed: int | None) -> list[list[int]]:
        shuffled = lines.shuffle(15, seed)
        return [rows(shuffled), rows(shuffled)]

    one = epochs(3)
    assert one == epochs(3) and one[0] != one[1]
    assert sorted(one[0]) == list(range(40))
    assert epochs(None) != epochs(None)


def test_the_order_of_files_is_shuffled_too(lines: FileDataset) -> None:
    firsts = {rows(lines.shuffle(1, seed))[0] for seed in range(20)}
    assert firsts == {0, 10, 20, 30}


def test_all_together(lines: FileDataset) -> None:
    numbers = lines.map(lambda text: text.astype("int64"), workers=2).map(lambda x: (x[x % 2 == 0], -x[x % 2 == 0]))
    batches = list(numbers.shuffle(5).batch(8).map(lambda x, y: {"sum": x + y}).repeat(2).prefetch(2))
    assert [len(batch["sum"]) for batch in batches] == [8, 8, 4, 8, 8, 4]
    assert not any(batch["sum"].any() for batch in batches)


def test_blocks_are_read_lazily(lines: FileDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    before = stream.opened

    def counted(file: Any, *args: Any) -> Any:
        opened.append(file.path)
        return before(file, *args)

    monkeypatch.setattr(stream, "opened", counted)
    first = iter(lines.batch(4))
    assert opened == []
    next(first)
    assert len(opened) == 1


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda d: d.batch(4).batch(2), "twice"),
        (lambda d: d.batch(4).shuffle(2), r"shuffle\(\) comes after batch\(\)"),
        (lambda d: d.batch(0), r"batch\(n=0\)"),
        (lambda d: d.batch(2.5), r"batch\(n=2.5\)"),
        (lambda d: d.shuffle(-1), r"shuffle\(buffer_size=-1\)"),
        (lambda d: d.shuffle(1, seed=-1), r"shuffle\(seed=-1\)"),
        (lambda d: d.map(len, workers=0), r"map\(workers=0\)"),
        (lambda d: d.repeat(0), r"repeat\(count=0\)"),
        (lambda d: d.prefetch(None), r"prefetch\(n=None\)"),
        (lambda d: d.with_options(policy="HINT"), "HINT is about tf.data"),
        (lambda d: d.with_options(policy="nosuch"), "no sharding policy 'nosuch'"),
    ],
)
def test_what_does_not_go_together(lines: FileDataset, wrong: Any, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        wrong(lines)


def test_policies_by_name_number_or_value(lines: FileDataset) -> None:
    for policy in ("data", 2, AutoShardPolicy.DATA):
        assert lines.with_options(policy=policy).policy is AutoShardPolicy.DATA


def test_batch_sizes_may_be_numpy_integers(lines: FileDataset) -> None:
    assert lines.batch(np.int64(4)).batch_size == 4


def test_public_names() -> None:
    assert set(data.__all__) == {"AutoShardPolicy", "FileDataset", "csv", "parquet", "text_lines", "tfrecord"}
    assert all(hasattr(data, name) for name in data.__all__)
