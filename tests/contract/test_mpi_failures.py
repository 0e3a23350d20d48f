"""Survivors of a lost worker get control back, stay usable as processes, and end promptly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from contract import mpi_processes
from contract.mpi_processes import End

WORKER = Path(__file__).parent / "mpi_failure_worker.py"
SHARED, TCP = ["here", "here"], ["here", "there"]
PLACES = pytest.mark.parametrize("places", [SHARED, TCP], ids=["shared memory", "tcp"])


def said(end: End) -> dict[str, Any]:
    lines = [json.loads(line) for line in end.output.splitlines() if line.startswith("{")]
    assert lines, end.output
    return {name: value for line in lines for name, value in line.items()}


def check_survivor(end: End, dead: End) -> dict[str, Any]:
    """The survivor was told in time, every later call failed at once, and it ended by itself soon after."""
    words = said(end)
    assert words["first"]["error"] == "WorkerLostError", end.output
    assert words["first"]["text"] == "worker 1 is gone"
    barrier, sibling, close = words["later"]
    assert barrier["error"] == sibling["error"] == "WorkerLostError"
    assert close["error"] is None
    assert max(call["seconds"] for call in words["later"]) < 0.5
    assert end.returncode == 0, end.output
    assert end.seconds - dead.seconds < 10
    return words


@PLACES
@pytest.mark.parametrize("scene", ["killed_while_idle", "killed_in_an_exchange", "killed_while_two_threads_wait"])
def test_a_survivor_of_a_killed_worker_goes_on(scene: str, places: list[str]) -> None:
    survivor, dead = mpi_processes.plain(places, WORKER, scene)
    assert dead.returncode == -9, dead.output
    words = check_survivor(survivor, dead)
    if scene == "killed_while_two_threads_wait":
        assert words["thread"]["error"] == "WorkerLostError"


def test_three_survivors_of_four() -> None:
    first, dead, *others = mpi_processes.plain(["a", "a", "b", "b"], WORKER, "killed_while_idle")
    assert dead.returncode == -9
    for survivor in (first, *others):
        check_survivor(survivor, dead)


@PLACES
def test_an_uncaught_error_ends_the_process_as_usual(places: list[str]) -> None:
    other, failed = mpi_processes.plain(places, WORKER, "raises")
    assert failed.returncode == 1, failed.output
    assert "ValueError: own mistake" in failed.output
    assert other.returncode == 0, other.output
    assert said(other)["first"]["error"] == "WorkerLostError"


@PLACES
def test_a_process_that_forgets_to_close_ends_promptly(places: list[str]) -> None:
    for end in mpi_processes.plain(places, WORKER, "never_closes"):
        assert end.returncode == 0, end.output


@PLACES
def test_closing_waits_for_the_last_and_ends_the_engine(places: list[str]) -> None:
    ends = mpi_processes.plain(places, WORKER, "late_to_close")
    for end in ends:
        assert end.returncode == 0, end.output
        words = said(end)
        assert words["first"]["error"] is words["again"]["error"] is None
        assert all(call["error"] == "UnisonoError" and "closed" in call["text"] for call in words["later"])
    assert said(ends[0])["first"]["seconds"] > 0.2


@PLACES
@pytest.mark.parametrize("scene", ["different_sizes", "different_operations", "different_dtypes"])
def test_different_calls_are_found_out_before_they_are_carried_out(scene: str, places: list[str]) -> None:
    for end in mpi_processes.plain(places, WORKER, scene):
        assert end.returncode == 0, end.output
        assert said(end)["first"]["error"] == "DivergenceError"
        assert said(end)["array"] == [1.0]
        assert "'main'" in said(end)["first"]["text"]


def test_the_watch_is_told_of_arrivals_and_waits() -> None:
    first, second = (said(end) for end in mpi_processes.plain(SHARED, WORKER, "told_in_time"))
    assert first["arrivals"] == second["arrivals"] == [["other", 1], ["other", 2], ["main", first["arrivals"][2][1]]]
    operations = {operation for operation, _ in first["waits"]}
    assert operations == {"all_reduce on channel 'other'"}
    seconds = [seconds for _, seconds in first["waits"]]
    assert len(seconds) >= 2
    assert all(later - earlier > 0.04 for earlier, later in zip([0.0, *seconds], seconds, strict=False))


FORBID = Path(__file__).parent / "forbid_memory_reads.py"


def test_where_the_system_forbids_reading_a_peers_memory_the_sums_are_right() -> None:
    for end in mpi_processes.plain(SHARED, FORBID, str(WORKER), "adds_up"):
        assert end.returncode == 0, end.output
        assert said(end)["first"]["error"] is None


def test_sums_that_mpi_gets_wrong_in_silence_are_found_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's own setting makes MPI read memory although the system forbids it."""
    monkeypatch.setenv("MPIR_CVAR_CH4_CMA_ENABLE", "1")
    for end in mpi_processes.plain(SHARED, FORBID, str(WORKER), "adds_up"):
        assert said(end)["first"]["error"] == "StartupError", end.output
        assert "MPIR_CVAR_CH4_CMA_ENABLE=0" in said(end)["first"]["text"]
