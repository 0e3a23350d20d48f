"""Files shared by workers: every example once, nothing read twice, the same lists everywhere."""

from __future__ import annotations

import contextlib
import gzip
import io
import itertools
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import google_crc32c
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minutes import Worker, in_turn
from unisono.data import AutoShardPolicy, FileDataset, csv, parquet, text_lines, tfrecord
from unisono.data.base import Part
from unisono.data.file_source import FileSource
from unisono.data.policy import Way
from unisono.data.readers import stream
from unisono.data.record_bounds import masked
from unisono.data.select import make_source
from unisono.errors import ConfigurationError, DataError, DivergenceError


@pytest.fixture(autouse=True)
def empty_memory() -> Iterator[None]:
    yield
    fsspec.filesystem("memory").store.clear()


def frame(record: bytes) -> bytes:
    length = len(record).to_bytes(8, "little")
    checks = [masked(google_crc32c.value(part)).to_bytes(4, "little") for part in (length, record)]
    return length + checks[0] + record + checks[1]


def as_text(ids: list[int], end: str, ended: bool) -> bytes:
    text = end.join(map(str, ids))
    return (text + end if ended and ids else text).encode()


def as_csv(ids: list[int], end: str, ended: bool) -> bytes:
    rows = [f"{k},x" for k in ids]
    text = end.join(["id,other", *rows])
    return (text + end if ended or not ids else text).encode()


def as_tfrecord(ids: list[int], end: str, ended: bool) -> bytes:
    return b"".join(frame(b"%d" % k) for k in ids)


def as_parquet(ids: list[int], end: str, ended: bool) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"id": pa.array(ids, pa.int64())}), sink, row_group_size=3 if ended else 100)
    return sink.getvalue()


FORMATS: dict[str, tuple[Callable[..., bytes], Callable[..., FileDataset], str]] = {
    "text": (as_text, text_lines, ""),
    "text.gz": (as_text, text_lines, ".gz"),
    "csv": (as_csv, csv, ""),
    "csv.gz": (as_csv, csv, ".gz"),
    "tfrecord": (as_tfrecord, tfrecord, ""),
    "parquet": (as_parquet, parquet, ""),
}


def ids(part: Part) -> list[int]:
    if part.data is None:
        return []
    (x,) = part.data
    return [int(k) for k in (x["id"] if isinstance(x, dict) else x)]


def make(kind: str, sizes: list[int], end: str = "\n", ended: bool = True) -> FileDataset:
    """Writes files with so many examples each and returns their data set."""
    memory = fsspec.filesystem("memory")
    memory.store.clear()
    write, read, ending = FORMATS[kind]
    first = 0
    for k, size in enumerate(sizes):
        data = write(list(range(first, first + size)), end, ended)
        memory.pipe(f"/data/{k:03}{ending}", gzip.compress(data) if ending else data)
        first += size
    return read("memory://data/*")


def read(
    dataset: FileDataset, size: int, epochs: int = 1, broken: int | None = None, **options: Any
) -> list[list[list[Part]]]:
    """Returns what each worker sees: `[rank][epoch]`, a list of parts.

    `broken` is the number of steps of an epoch that was broken off before.
    """

    def work(rank: int, size: int, agreement: Worker) -> list[list[Part]]:
        source = make_source(dataset, rank=rank, size=size, agreement=agreement, **options)
        if broken is not None:
            with contextlib.closing(source.epoch()) as begun:
                list(itertools.islice(begun, broken))
        return [list(source.epoch()) for _ in range(epochs)]

    return in_turn(size, work)


@settings(max_examples=150, deadline=None)
@given(
    kind=st.sampled_from(sorted(FORMATS)),
    sizes=st.lists(st.integers(0, 12), min_size=1, max_size=6),
    end=st.sampled_from(["\n", "\r\n"]),
    ended=st.booleans(),
    workers=st.integers(1, 4),
    batch=st.integers(1, 9),
    policy=st.sampled_from(AutoShardPolicy),
    buffer=st.sampled_from([None, 1, 5, 100]),
    chunk=st.sampled_from([16, 1 << 20]),
    in_order=st.booleans(),
    broken=st.sampled_from([None, 0, 1, 3, 100]),
)
def test_every_example_once_per_epoch(
    kind: str,
    sizes: list[int],
    end: str,
    ended: bool,
    workers: int,
    batch: int,
    policy: AutoShardPolicy,
    buffer: int | None,
    chunk: int,
    in_order: bool,
    broken: int | None,
) -> None:
    if policy is AutoShardPolicy.HINT or (policy is AutoShardPolicy.FILE and len(sizes) < workers):
        policy = AutoShardPolicy.DATA
    before, stream.CHUNK = stream.CHUNK, chunk
    try:
        dataset = make(kind, sizes, end, ended).with_options(policy=policy)
        if buffer is not None:
            dataset = dataset.shuffle(buffer)
        found = read(dataset.batch(batch), workers, epochs=2, broken=broken, in_order=in_order)
    finally:
        stream.CHUNK = before
    everything = list(range(sum(sizes)))
    local = [
        max(1, len(range(batch)[rank * batch // workers : (rank + 1) * batch // workers])) for rank in range(workers)
    ]
    for epoch in range(2):
        parts = [worker[epoch] for worker in found]
        assert all(part.local == len(ids(part)) for worker in parts for part in worker)
        seen = [[k for part in worker for k in ids(part)] for worker in parts]
        if in_order or workers == 1:
            batches = [[k for part in together for k in ids(part)] for together in zip(*parts, strict=True)]
            assert [len(b) for b in batches] == [
                len(everything[k : k + batch]) for k in range(0, len(everything), batch)
            ]
            order = [k for b in batches for k in b]
            assert sorted(order) == everything and (buffer is not None or order == everything)
            assert all(
                {p.total for p in together} == {sum(p.local for p in together)} for together in zip(*parts, strict=True)
            )
        elif policy is AutoShardPolicy.OFF:
            assert all(sorted(worker) == everything for worker in seen)
        else:
            assert sorted(k for worker in seen for k in worker) == everything
            assert all(part.total is None for worker in parts for part in worker)
        if not in_order and workers > 1:
            assert all(part.local <= max(local) for worker in parts for part in worker)


@pytest.mark.parametrize("kind", FORMATS)
def test_workers_that_share_by_record_get_about_the_same(kind: str) -> None:
    found = read(make(kind, [1000, 10]).with_options(policy="DATA").batch(8), 2)
    counts = [sum(part.local for part in epochs[0]) for epochs in found]
    assert sum(counts) == 1010 and max(counts) < 560
    assert {part.local for part in found[0][0][:-1]} == {4}


def test_off_gives_batches_of_the_local_size() -> None:
    found = read(make("text", [60, 40]).with_options(policy="OFF").batch(20), 2)
    assert [[part.local for part in worker[0]] for worker in found] == [[10] * 10] * 2


def test_off_agrees_on_nothing_and_lets_workers_have_files_of_their_own(tmp_path: Path) -> None:
    def work(rank: int, size: int, agreement: Worker) -> list[int]:
        path = tmp_path / f"{rank}.txt"
        path.write_text(f"{rank}\n{rank}\n")
        source = make_source(
            text_lines(path).with_options(policy="OFF").batch(4), rank=rank, size=size, agreement=agreement
        )
        return [k for part in source.epoch() for k in ids(part)]

    assert in_turn(2, work) == [[0, 0], [1, 1]]


@pytest.mark.parametrize("seed", [None, 7])
def test_orders_differ_between_epochs_and_workers_but_not_between_runs(seed: int | None) -> None:
    dataset = make("text", [50] * 4).shuffle(20, seed).batch(10)
    orders = [[[k for part in epoch for k in ids(part)] for epoch in worker] for worker in read(dataset, 2, 2)]
    again = [[[k for part in epoch for k in ids(part)] for epoch in worker] for worker in read(dataset, 2, 2)]
    assert orders == again
    assert len({tuple(order) for worker in orders for order in worker}) == 4


def test_predictions_come_in_order_and_workers_compare_batches() -> None:
    found = read(make("text", [5, 6]).batch(4), 3, in_order=True)
    together = list(zip(*(worker[0] for worker in found), strict=True))
    assert [k for parts in together for part in parts for k in ids(part)] == list(range(11))
    assert all(len({part.fingerprint for part in parts}) == 1 for parts in together)


class Counting:
    """A file that counts what is read of it."""

    def __init__(self, handle: Any, counts: list[int]) -> None:
        self._handle, self._counts = handle, counts

    def __enter__(self) -> Counting:
        return self

    def __exit__(self, *_: object) -> None:
        self._handle.close()

    def seek(self, at: int) -> None:
        self._handle.seek(at)

    def read(self, count: int) -> bytes:
        data: bytes = self._handle.read(count)
        self._counts[-1] += len(data)
        return data


@pytest.mark.parametrize(
    ("reader", "write", "more"),
    # Where a line begins is seen in a few bytes, where a record begins in a window of 64 KiB at either end.
    [(text_lines, lambda k: b"%09d\n" % k, stream.TAIL), (tfrecord, lambda k: frame(b"%09d" % k), 3 << 16)],
    ids=["text", "tfrecord"],
)
def test_each_worker_reads_its_own_bytes_only(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    reader: Callable[[Path], FileDataset],
    write: Callable[[int], bytes],
    more: int,
) -> None:
    data = b"".join(write(k) for k in range(40_000))
    (tmp_path / "a").write_bytes(data)
    counts: list[int] = []
    local = fsspec.filesystem("file")
    monkeypatch.setattr(
        type(local),
        "open",
        lambda self, path, mode: Counting(io.open(path, mode, buffering=0), counts),  # noqa: UP020, SIM115
    )

    def work(rank: int, size: int, agreement: Worker) -> list[int]:
        counts.append(0)
        source = make_source(reader(tmp_path / "a").batch(100), rank=rank, size=size, agreement=agreement)
        return [k for part in source.epoch() for k in ids(part)]

    assert sorted(k for worker in in_turn(4, work) for k in worker) == list(range(40_000))
    fourth = len(data) // 4
    assert all(fourth - 25 <= count <= fourth + 25 + more for count in counts), (fourth, counts)


def second_of_two(path: Path) -> None:
    def work(rank: int, size: int, agreement: Worker) -> None:
        dataset = tfrecord(path).with_options("DATA").batch(10)
        source = make_source(dataset, rank=rank, size=size, agreement=agreement)
        if rank == 1:
            list(source.epoch())

    in_turn(2, work)


def test_a_broken_record_in_a_later_range_has_its_number_in_the_file(tmp_path: Path) -> None:
    data = bytearray(b"".join(frame(b"%09d" % k) for k in range(1000)))
    data[25 * 700 + 15] ^= 1
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(DataError, match=r"a: record 700 \(counted from 0\) does not fit its checksum"):
        second_of_two(tmp_path / "a")


@pytest.mark.parametrize("lost", [1, 15, 20])
def test_a_file_that_ends_within_a_record_of_a_later_range(tmp_path: Path, lost: int) -> None:
    (tmp_path / "a").write_bytes(b"".join(frame(b"%09d" % k) for k in range(1000))[:-lost])
    with pytest.raises(DataError, match=r"a: record 999 \(counted from 0\) is cut off by the end of the file"):
        second_of_two(tmp_path / "a")


def test_a_file_whose_records_hold_records_is_not_cut_within_one(tmp_path: Path) -> None:
    inner = b"".join(frame(b"%09d" % k) for k in range(100))
    (tmp_path / "a").write_bytes(frame(inner) * 3)

    def work(rank: int, size: int, agreement: Worker) -> list[Any]:
        dataset = tfrecord(tmp_path / "a").with_options("DATA").batch(10)
        return list(make_source(dataset, rank=rank, size=size, agreement=agreement).epoch())

    with pytest.raises(DataError, match=r"a: record 1 \(counted from 0\) does not end before byte .*, where another"):
        in_turn(2, work)


def test_a_sample_is_one_example_and_consumes_nothing() -> None:
    calls: list[int] = []

    def count(x: np.ndarray) -> np.ndarray:
        calls.append(len(x))
        return x

    def work(rank: int, size: int, agreement: Worker) -> list[int]:
        dataset = make("text", [3, 0, 0]).shuffle(9).batch(6).map(count, workers=3).prefetch(2)
        source = make_source(dataset, rank=rank, size=size, agreement=agreement)
        assert len(source.sample()[0]) == 1 and source.sample() is source.sample()
        assert calls == [1]
        calls.clear()
        found = [k for part in source.epoch() for k in ids(part)]
        calls.clear()
        return found

    # Workers without an example in files of their own show one of another's.
    assert [len(worker) for worker in in_turn(3, work)] == [3, 0, 0]


def test_files_without_examples() -> None:
    dataset = make("csv", [0, 0]).batch(2)
    assert read(dataset, 2) == [[[]], [[]]]

    def work(rank: int, size: int, agreement: Worker) -> Any:
        return make_source(dataset, rank=rank, size=size, agreement=agreement).sample()

    with pytest.raises(ConfigurationError, match="hold no examples: memory://data/000"):
        in_turn(1, work)


def test_workers_that_find_other_files(tmp_path: Path) -> None:
    def work(rank: int, size: int, agreement: Worker) -> None:
        (tmp_path / f"{rank}.txt").write_text("x")
        make_source(text_lines(tmp_path / "*.txt").batch(2), rank=rank, size=size, agreement=agreement)

    with pytest.raises(DivergenceError, match=r"Worker 1 .*only on this worker: .*1\.txt"):
        in_turn(2, work)


def test_fewer_files_than_workers_with_file() -> None:
    with pytest.raises(ConfigurationError, match="fewer files than workers: 1 file, 2 workers"):
        read(make("text", [3]).with_options(policy="FILE").batch(2), 2)


def test_a_data_set_needs_batches() -> None:
    with pytest.raises(ConfigurationError, match=r"no batches(.|\n)*\.batch\(n\)"):
        read(make("text", [3]), 1)


@pytest.mark.parametrize("change", ["vanishes", "grows"])
def test_a_file_that_changes_during_an_epoch(tmp_path: Path, change: str) -> None:
    for k in range(3):
        (tmp_path / f"{k}.txt").write_text("1\n2\n")

    def work(rank: int, size: int, agreement: Worker) -> None:
        parts = make_source(text_lines(tmp_path / "*.txt").batch(2), rank=rank, size=size, agreement=agreement).epoch()
        next(parts)
        if change == "vanishes":
            (tmp_path / "2.txt").unlink()
        else:
            (tmp_path / "2.txt").write_text("1\n2\n3\n")
        list(parts)

    with pytest.raises(DataError, match=r"2\.txt"):
        in_turn(1, work)


def test_threads_end_with_the_epoch_and_agree_on_nothing() -> None:
    def work(rank: int, size: int, agreement: Worker) -> None:
        mine = threading.get_ident()
        dataset = make("text", [50, 50]).shuffle(10).batch(4).map(lambda x: x, workers=2).prefetch(3)

        class Watched:
            def seed(self) -> int:
                assert threading.get_ident() == mine
                return agreement.seed()

            def from_chief(self, value: object) -> Any:
                assert threading.get_ident() == mine
                return agreement.from_chief(value)

        known = threading.active_count()
        parts = make_source(dataset, rank=rank, size=size, agreement=Watched()).epoch()
        next(parts)
        assert threading.active_count() > known
        parts.close()  # type: ignore[attr-defined]
        assert threading.active_count() == known

    in_turn(2, work)


def test_class_weights_and_labels(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,y\n1,0\n2,1\n")
    ((part,),) = read(csv(tmp_path / "a.csv", label="y").batch(2), 1, class_weight={1: 5.0})[0]
    assert part.data is not None
    assert part.data[0]["x"].tolist() == [1, 2] and part.data[2].tolist() == [1, 5]


def test_what_goes_with_files() -> None:
    dataset = make("text", [3]).batch(2)
    # The default of `fit`, which is no wish of the user's.
    assert len(read(dataset, 1, shuffle=True)[0][0]) == 2
    with pytest.raises(ConfigurationError, match="y was given beside a file data set"):
        read(dataset, 1, y=np.arange(3))


def describe(dataset: FileDataset, size: int) -> FileSource:
    def work(rank: int, size: int, agreement: Worker) -> Any:
        return make_source(dataset.batch(4), rank=rank, size=size, agreement=agreement)

    found: list[FileSource] = in_turn(size, work)
    assert len({source.describe() for source in found}) == 1
    return found[0]


def test_what_is_told_of_files() -> None:
    source = describe(make("text", [10, 10, 5]), 2)
    assert source.describe() == (
        "3 text files, by file (there are 3 files for 2 workers): 1 file, 30 bytes on worker 0; "
        "2 files, 35 bytes on worker 1"
    )
    assert source.decision.way is Way.FILES
    assert [(share.files, share.bytes, share.examples) for share in source.shares()] == [(1, 30, None), (2, 35, None)]


def test_what_is_told_of_records() -> None:
    assert describe(make("parquet", [6, 7], ended=False), 3).describe() == (
        "2 Parquet files, by record (2 files cannot be shared by 3 workers): 1 file, 4 examples on worker 0; "
        "2 files, 4 examples on worker 1; 1 file, 5 examples on worker 2"
    )


def test_what_is_told_of_compressed_files() -> None:
    line = describe(make("text.gz", [10]), 2).describe()
    assert "compressed files such as memory://data/000.gz can only be read from their beginning" in line
    assert "each worker reads all and keeps every 2nd row" in line


def test_what_is_not_in_use_is_let_go(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"".join(b"%099d\n" % k for k in range(200_000)))
    dataset = text_lines(tmp_path / "a.txt", encoding=None).shuffle(1000).batch(100)
    tracemalloc.start()
    try:
        assert sum(len(batch) for batch in dataset) == 200_000
        assert tracemalloc.get_traced_memory()[1] < 12e6
    finally:
        tracemalloc.stop()
