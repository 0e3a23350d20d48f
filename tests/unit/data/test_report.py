"""What each worker gets, in words."""

from __future__ import annotations

from unisono.data.policy import Way
from unisono.data.report import Report, Share


def test_the_line_names_way_reason_and_what_each_worker_gets() -> None:
    shares = [Share(0, 17, 1_210_000, None), Share(1, 16, 1_140_000, None)]
    line = Report("33 text files", Way.FILES, "there are 33 files for 2 workers", shares).line()
    assert line == (
        "33 text files, by file (there are 33 files for 2 workers): 17 files, 1.2 MB on worker 0; "
        "16 files, 1.1 MB on worker 1"
    )


def test_a_worker_that_gets_much_more_is_named() -> None:
    report = Report("2 CSV files", Way.FILES, "the policy is FILE", [Share(0, 1, 900, None), Share(1, 1, 100, None)])
    assert "worker 0 gets 1.8 times the average" in report.line()
    assert "worker 0 gets 1.8 times the average" in report.table()


def test_examples_count_more_than_bytes() -> None:
    shares = [Share(0, 1, 900, 50), Share(1, 1, 100, 50)]
    assert "average" not in Report("2 Parquet files", Way.FILES, "", shares).line()


def test_many_workers_are_not_all_named_in_the_line() -> None:
    report = Report("64 text files", Way.FILES, "", [Share(rank, 2, 2_000, None) for rank in range(32)])
    assert report.line().endswith("on worker 3; and so on for 32 workers")
    assert len(report.table().splitlines()) == 2 + 32


def test_who_reads_all_is_not_named_one_by_one() -> None:
    report = Report("1 text file", Way.SLICES, "predictions come in the order", [Share(0, 1, 5, None)] * 2)
    assert report.line().endswith(": every worker reads 1 file, 5 bytes")


def test_one_worker() -> None:
    assert Report("1 text file", Way.FILES, "", [Share(0, 1, 1500, None)]).line() == "1 text file: 1 file, 1.5 kB"


def test_the_table_has_a_row_for_each_worker() -> None:
    table = Report("2 files", Way.RECORDS, "the policy is DATA", [Share(0, 1, 10, 3), Share(1, None, None, None)])
    assert table.table().splitlines() == [
        "2 files, by record (the policy is DATA)",
        "worker  files     bytes  examples",
        "     0      1  10 bytes         3",
        "     1      ?         ?         ?",
    ]
