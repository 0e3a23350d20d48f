"""tf.data that reads files: which worker reads which, under each policy."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from minutes import Worker, in_turn
from tensorflow_pipelines import (
    Pipeline,
    everything,
    flat,
    numbers,
    read,
    with_policy,
    write_columns,
    write_lines,
    write_records,
)
from unisono.data.policy import Way
from unisono.data.select import make_source
from unisono.errors import ConfigurationError, DataError, DivergenceError

Policy = tf.data.experimental.AutoShardPolicy


# R05: uneven files.


def test_by_file_uneven_files_end_apart(tmp_path: Path) -> None:
    names = write_lines(tmp_path, [30, 10])
    workers, sources = read(
        lambda: with_policy(numbers(tf.data.TextLineDataset(names)).batch(10), Policy.FILE), epochs=2
    )
    assert [len(b) for b in workers[0]] == [5] * 12
    assert [len(b) for b in workers[1]] == [5] * 4
    assert everything(workers) == Counter(dict.fromkeys(range(40), 2))
    assert all(s.apart for s in sources)
    assert "by file" in sources[0].describe() and "worker 0 gets 1.5 times the average" in sources[0].describe()


def test_one_file_is_cut(tmp_path: Path) -> None:
    (name,) = write_lines(tmp_path, [40])
    workers, sources = read(lambda: numbers(tf.data.TextLineDataset(name)).batch(10))
    assert everything(workers) == Counter(range(40))
    assert workers[0] and workers[1]
    assert not set(flat(workers[0])) & set(flat(workers[1]))
    assert "1 file cannot be shared by 2 workers" in sources[0].describe()


def test_one_file_and_an_explicit_file_policy(tmp_path: Path) -> None:
    (name,) = write_lines(tmp_path, [40])
    with pytest.raises(ConfigurationError, match=r"FILE.*1 file, 2 workers.*\n.*AUTO"):
        read(lambda: with_policy(tf.data.TextLineDataset(name).batch(10), Policy.FILE))


def test_files_are_shared_by_size(tmp_path: Path) -> None:
    names = write_lines(tmp_path, [100, 10, 10, 10, 10, 60])
    workers, sources = read(lambda: numbers(tf.data.TextLineDataset(names)).batch(10))
    assert [len(flat(w)) for w in workers] == [100, 100]
    assert sources[0].report().way is Way.FILES
    assert [share.files for share in sources[0].report().shares] == [1, 5]


# R06 and its kin: every example once, whatever the pipeline.


def counted(dataset: tf.data.Dataset, count: int) -> tf.data.Dataset:
    return dataset.apply(tf.data.experimental.assert_cardinality(count))


def pipelines(text: list[str], records: list[str], columns: list[str]) -> dict[str, Pipeline]:
    data = tf.data
    return {
        "text": lambda: numbers(data.TextLineDataset(text)).batch(6),
        "parallel reads": lambda: numbers(data.TextLineDataset(text, num_parallel_reads=2)).batch(6),
        "list_files": lambda: numbers(data.Dataset.list_files(text).interleave(data.TextLineDataset)).batch(6),
        "shuffled": lambda: numbers(data.TextLineDataset(text)).shuffle(100).batch(6),
        "shuffled first": lambda: numbers(data.TextLineDataset(text).shuffle(100)).batch(6).prefetch(2),
        "records": lambda: numbers(data.TFRecordDataset(records)).batch(6),
        "records cached": lambda: numbers(data.TFRecordDataset(records)).cache().shuffle(50).batch(6),
        "counted": lambda: numbers(counted(data.TextLineDataset(text), 23)).batch(6),
        "counted batches": lambda: counted(numbers(data.TFRecordDataset(records)).batch(6), 4).prefetch(1),
        "padded": lambda: numbers(data.TFRecordDataset(records)).padded_batch(6),
        "unbatched": lambda: numbers(data.TextLineDataset(text)).batch(4).unbatch().batch(6),
        "skip lines": lambda: numbers(
            data.Dataset.from_tensor_slices(text).interleave(lambda f: data.TextLineDataset(f).skip(0), cycle_length=3)
        ).batch(6),
        "concatenated": lambda: numbers(
            data.TextLineDataset(text[:2]).concatenate(data.TextLineDataset(text[2:]))
        ).batch(6),
        "function of batches": lambda: numbers(data.TextLineDataset(text)).batch(6).map(lambda b: b + 0),
        "csv": lambda: data.experimental.make_csv_dataset(
            columns,
            6,
            column_names=["n", "m"],
            column_defaults=[tf.int64, tf.int64],
            header=False,
            num_epochs=1,
            field_delim="\t",
            ignore_errors=False,
            num_rows_for_inference=None,
        ).map(lambda row: row["n"]),
        "ragged": lambda: (
            numbers(data.TextLineDataset(text))
            .map(lambda n: tf.fill([n % 3 + 1], n))
            .ragged_batch(6)
            .map(lambda rows: rows[:, :1].to_tensor()[:, 0])
        ),
        "sampled": lambda: numbers(
            data.Dataset.sample_from_datasets([data.TextLineDataset(text[:2]), data.TextLineDataset(text[2:])], seed=3)
        ).batch(6),
    }


PIPELINES = list(pipelines([], [], []))


@pytest.mark.parametrize(("policy", "size"), [("FILE", 2), ("DATA", 3)])
@pytest.mark.parametrize("name", PIPELINES)
def test_each_example_once(tmp_path: Path, name: str, size: int, policy: str) -> None:
    counts = [7, 0, 11, 5]
    written = [write(tmp_path, counts) for write in (write_lines, write_records, write_columns)]
    made = pipelines(*written)[name]
    workers, sources = read(lambda: with_policy(made(), Policy[policy]), size, epochs=2)
    assert everything(workers) == Counter(dict.fromkeys(range(23), 2)), sources[0].describe()
    # What picks the next data set at random makes batches of its own.
    by_record = Way.SLICES if name == "sampled" else Way.RECORDS
    assert sources[0].report().way is {"FILE": Way.FILES, "DATA": by_record}[policy]
    assert max(len(b) for w in workers for b in w) <= -(-6 // size)


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize(
    ("name", "build"),
    {
        "take": lambda d: d.take(20),
        "skip": lambda d: d.skip(3),
        "enumerate": lambda d: d.enumerate().filter(lambda i, x: i % 3 != 0).map(lambda i, x: x),
        "zip": lambda d: tf.data.Dataset.zip((d, d)).map(lambda a, b: a),
        "window": lambda d: d.window(4, drop_remainder=True).flat_map(lambda w: w.batch(4)).map(tf.reduce_sum),
    }.items(),
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_depends_on_the_order_is_the_same_as_for_one_process(
    tmp_path: Path, name: str, build: Any, size: int
) -> None:
    names = write_lines(tmp_path, [7, 0, 11, 5])

    def made() -> tf.data.Dataset:
        return build(numbers(tf.data.TextLineDataset(names))).batch(6)

    workers, sources = read(made, size)
    assert everything(workers) == Counter(v for b in made().as_numpy_iterator() for v in b.tolist())
    assert "order" in sources[0].describe()


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    counts=st.lists(st.integers(0, 30), min_size=1, max_size=5).filter(any),
    size=st.integers(2, 4),
    batch=st.integers(1, 9),
    policy=st.sampled_from(["AUTO", "DATA", "FILE"]),
    text=st.booleans(),
    end=st.sampled_from(["\n", "\r\n"]),
    broken=st.sampled_from([None, 0, 1, 3, 100]),
)
def test_each_example_once_in_any_epoch_for_any_files(
    tmp_path_factory: Any,
    counts: list[int],
    size: int,
    batch: int,
    policy: str,
    text: bool,
    end: str,
    broken: int | None,
) -> None:
    if policy == "FILE" and len(counts) < size:
        policy = "DATA"
    folder = tmp_path_factory.mktemp("any")
    names = write_lines(folder, counts, end) if text else write_records(folder, counts)
    reader = tf.data.TextLineDataset if text else tf.data.TFRecordDataset
    workers, _ = read(lambda: with_policy(numbers(reader(names)).batch(batch), Policy[policy]), size, broken=broken)
    assert everything(workers) == Counter(range(sum(counts)))


# R07: OFF, and hints.


@pytest.mark.parametrize("size", [2, 4])
def test_off_every_worker_sees_all_in_batches_of_one_worker(size: int) -> None:
    workers, sources = read(lambda: with_policy(tf.data.Dataset.range(100).batch(20), Policy.OFF), size)
    for batches in workers:
        assert flat(batches) == list(range(100))
        assert {len(b) for b in batches} == {20 // size}
    assert "OFF" in sources[0].describe()


def test_hint(tmp_path: Path) -> None:
    hint = tf.data.experimental.SHARD_HINT
    workers, _ = read(
        lambda: with_policy(tf.data.Dataset.range(20).shard(hint, hint).map(lambda x: x).batch(4), Policy.HINT)
    )
    assert [flat(w) for w in workers] == [list(range(0, 20, 2)), list(range(1, 20, 2))]
    with pytest.raises(ConfigurationError, match="HINT"):
        read(lambda: with_policy(tf.data.Dataset.range(20).batch(4), Policy.HINT))


# Without files: functions run on a worker's own examples only.


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("batch", [6, 7])
@pytest.mark.parametrize("drop", [False, True])
@pytest.mark.parametrize("in_order", [False, True])
def test_functions_run_on_own_examples_only_and_global_batches_stay(
    size: int, batch: int, drop: bool, in_order: bool
) -> None:
    def build() -> tf.data.Dataset:
        return (
            tf.data.Dataset.range(32)
            .map(lambda x: x * 10)
            .apply(tf.data.experimental.assert_cardinality(32))
            .shuffle(32, seed=3)
            .map(lambda x: x + 1)
            .batch(batch, drop_remainder=drop)
            .prefetch(1)
        )

    workers, sources = read(build, size, in_order=in_order)
    right = [b.tolist() for b in build().as_numpy_iterator()]
    assert "functions run on a worker's own examples only" in sources[0].report().reason
    longest = max(len(w) for w in workers)
    assert sources[0].num_batches == len(right)
    assert longest == len(right)
    for k in range(longest):
        together = [v for w in workers if k < len(w) for v in w[k]]
        assert together == right[k] if in_order else sorted(together) == sorted(right[k])


def test_a_function_is_not_called_for_the_examples_of_others() -> None:
    called: list[int] = []

    def note(x: np.ndarray) -> np.ndarray:
        called.append(int(x))
        return x

    def build() -> tf.data.Dataset:
        return tf.data.Dataset.range(20).map(lambda x: tf.numpy_function(note, [x], tf.int64)).batch(4)

    workers, _ = read(build)
    assert sorted(called) == list(range(20))
    assert everything(workers) == Counter(range(20))


@pytest.mark.parametrize("end", ["repeat", "cache", "shuffle"])
def test_moved_batches_stay_in_step(end: str) -> None:
    def build() -> tf.data.Dataset:
        batches = tf.data.Dataset.range(9).map(lambda x: x).batch(4)
        return {"repeat": batches.repeat(2), "cache": batches.cache(), "shuffle": batches.shuffle(3, seed=1)}[end]

    workers, _ = read(build, 2)
    right = [b.tolist() for b in build().as_numpy_iterator()]
    assert everything(workers) == Counter(v for b in right for v in b)


# Differences between workers.


def test_other_files_on_one_worker(tmp_path: Path) -> None:
    names = write_lines(tmp_path, [3, 3, 3])
    made = iter([names, [*names[:2], str(tmp_path / "other.txt")]])
    with pytest.raises(DivergenceError, match=r"only on this worker: \S+other\.txt; only on the chief: \S+part-002"):
        read(lambda: tf.data.TextLineDataset(next(made)).batch(2))


@pytest.mark.parametrize("policy", ["FILE", "DATA"])
@pytest.mark.parametrize("wrong", ["text", "truncated", "checksum", "vanished", "columns"])
def test_bad_input_is_named_with_worker_file_and_record(tmp_path: Path, wrong: str, policy: str) -> None:
    def build(rank: int) -> tf.data.Dataset:
        if wrong in ("truncated", "checksum"):
            names = write_records(tmp_path, [6, 6])
            raw = Path(names[1]).read_bytes()
            Path(names[1]).write_bytes(raw[:-3] if wrong == "truncated" else raw[:13] + b"?" + raw[14:])
            return tf.data.TFRecordDataset(names)
        names = write_lines(tmp_path, [6, 6])
        if wrong == "columns":
            Path(names[1]).write_text("1\n2\n3,4\n5\n")
            return tf.data.Dataset.from_tensor_slices(names).interleave(
                lambda name: tf.data.experimental.CsvDataset(name, [tf.int64])
            )
        if wrong == "text":
            Path(names[1]).write_text("1\n2\nthree\n4\n")
        return numbers(tf.data.TextLineDataset(names))

    def work(rank: int, size: int, agreement: Worker) -> str | None:
        dataset = with_policy(build(rank).shuffle(4).batch(4), Policy[policy])
        if wrong == "vanished" and rank == 1:
            return None
        source = make_source(dataset, rank=rank, size=size, agreement=agreement)
        epoch = source.epoch()
        try:
            list(epoch)
            if wrong == "vanished":
                for path in tmp_path.iterdir():
                    path.unlink()
                list(source.epoch())
        except DataError as error:
            return str(error)
        return None

    told = [each for each in in_turn(2, work, strict=False) if each is not None]
    assert told, "nobody noticed"
    place = {"text": "record 3", "truncated": "record", "checksum": "record 1", "columns": "record 3", "vanished": ""}
    for each in told:
        assert (
            ("part-00" if wrong == "vanished" else "part-001") in each
            and place[wrong] in each
            and each.startswith("Worker ")
        ), each


@pytest.mark.parametrize("kind", ["text", "records"])
def test_a_file_that_becomes_shorter_between_epochs(tmp_path: Path, kind: str) -> None:
    names = (write_lines if kind == "text" else write_records)(tmp_path, [12])
    raw = Path(names[0]).read_bytes()

    def work(rank: int, size: int, agreement: Worker) -> str | None:
        reader = tf.data.TextLineDataset if kind == "text" else tf.data.TFRecordDataset
        dataset = with_policy(reader(names).batch(4), Policy.DATA)
        source = make_source(dataset, rank=rank, size=size, agreement=agreement)
        assert sum(part.local for part in source.epoch()) >= 5
        if rank == 0:
            return None
        # Cut where a record ends, so that no reader notices.
        Path(names[0]).write_bytes(raw[: len(raw) * 9 // 12])
        with pytest.raises(DataError) as caught:
            list(source.epoch())
        return str(caught.value)

    _, told = in_turn(2, work, strict=False)
    assert told is not None and told.startswith("Worker 1 cannot read its data") and f"it had {len(raw):,}" in told


def test_caches_in_files_do_not_meet(tmp_path: Path) -> None:
    names = write_lines(tmp_path, [9, 9])
    cache = str(tmp_path / "cache")
    workers, _ = read(lambda: numbers(tf.data.TextLineDataset(names)).cache(cache).batch(6), epochs=2)
    assert everything(workers) == Counter(dict.fromkeys(range(18), 2))
    assert {p.name.split(".")[1] for p in tmp_path.glob("cache*")} == {"worker-0-of-2", "worker-1-of-2"}


def test_an_assertion_of_the_whole_number_does_not_hide_which_record_is_broken(tmp_path: Path) -> None:
    names = write_lines(tmp_path, [4, 4])
    Path(names[1]).write_text("0004\n0005\nnone\n0007\n")

    def build() -> tf.data.Dataset:
        return with_policy(counted(numbers(tf.data.TextLineDataset(names)), 8).batch(4), Policy.DATA)

    with pytest.raises(DataError, match=r"part-001\.txt, record 3"):
        read(build)
