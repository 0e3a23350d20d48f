"""When a worker dies, raises, hangs or never comes, all others end soon and say who it was."""

from __future__ import annotations

import re

import pytest
from worker_groups import World, run_group

PATIENCE = 60.0

SOON = 2.0
"""Seconds within which survivors must have raised."""

END = 20.0
"""Seconds within which a process must have ended, frameworks and all, though others keep the machine busy."""


@pytest.mark.case("files.r19_backup", against=())
def test_r19_killed_and_started_again(run, tmp_path):
    """A worker dies in epoch 2: the other names it and ends; started again, both end as if nothing had been."""
    whole = run.agreed()
    assert whole["seen"] == [0, 1, 2, 3]
    assert run.each("left") == [False, False]
    shared = str(tmp_path / "shared")
    first = run_group(
        run.world, ["files.r19_backup"], tmp_path / "first", arguments={"kill": 2}, shared=shared, propagate=True,
        case_seconds=PATIENCE, restarts=0,
    )  # fmt: skip
    survivor, victim = first.workers[0], first.workers[1]
    assert victim.returncode == -9
    assert not survivor.killed and survivor.returncode > 0, survivor.tail()
    assert first.results["files.r19_backup"][0]["at"] - victim.at < SOON
    assert survivor.at - victim.at < END
    assert "WorkerLostError: Worker 1 (127.0.0.1:" in survivor.stderr, survivor.tail()
    assert first.leftovers == []
    second = run_group(
        run.world, ["files.r19_backup"], tmp_path / "second", shared=shared, case_seconds=PATIENCE, restarts=0
    )
    assert not second.broken, second.broken
    resumed = [second.results["files.r19_backup"][rank]["value"] for rank in range(2)]
    assert [each["seen"] for each in resumed] == [[2, 3], [2, 3]]
    assert [each["left"] for each in resumed] == [False, False]
    assert [each["state"] for each in resumed] == [whole["state"]] * 2
    assert [each["iterations"] for each in resumed] == [12, 12]
    assert resumed[0]["weights"] == whole["weights"]


def test_r20_one_raises(backend, tmp_path):
    end = run_group(
        World(backend, "cluster", 2), ["failures.r20_one_raises"], tmp_path, propagate=True, case_seconds=PATIENCE,
        restarts=0,
    )  # fmt: skip
    chief, culprit = end.workers[0], end.workers[1]
    assert not chief.killed and not culprit.killed, chief.tail() + culprit.tail()
    assert chief.returncode != 0 and culprit.returncode != 0
    raised = [end.results["failures.r20_one_raises"][rank]["at"] for rank in range(2)]
    assert raised[0] - raised[1] < SOON
    assert "the picture in row 5 is broken" in culprit.stderr
    assert "WorkerFailedError: Worker 1 (127.0.0.1:" in chief.stderr, chief.tail()
    assert "the picture in row 5 is broken" in chief.stderr, chief.tail()
    # What has been learnt in the steps before is still there, for who catches the error.
    learnt = [re.search(r"left with ([-0-9.e]+), loss ([-0-9.e]+)$", w.stderr, re.MULTILINE) for w in (chief, culprit)]
    assert all(found and float(found[1]) != 0 and float(found[2]) > 0 for found in learnt), chief.tail()
    assert end.leftovers == []


def test_r21_one_stuck(backend, tmp_path):
    end = run_group(
        World(backend, "cluster", 2), ["failures.r21_one_stuck"], tmp_path, propagate=True, case_seconds=30.0,
        restarts=0, env={"UNISONO_TIMEOUT": "6"}, arguments={"timeout": 6},
    )  # fmt: skip
    chief = end.workers[0]
    assert not chief.killed and chief.returncode != 0, chief.tail()
    assert "CollectiveTimeoutError" in chief.stderr and "worker 1" in chief.stderr, chief.tail()
    assert "step 5" in chief.stderr, chief.tail()
    assert ", in on_train_batch_begin\n" in chief.stderr, chief.tail()
    assert end.leftovers == []


@pytest.mark.parametrize("backend", ["torch"])
def test_r25_a_peer_never_starts(backend, tmp_path):
    end = run_group(
        World(backend, "cluster", 2), ["failures.r25_alone_at_the_door"], tmp_path, propagate=True,
        case_seconds=PATIENCE, restarts=0, ranks=[0], env={"UNISONO_STARTUP_TIMEOUT": "3"},
    )  # fmt: skip
    chief = end.workers[0]
    assert not chief.killed and chief.returncode != 0, chief.tail()
    assert "StartupError" in chief.stderr and "worker 1" in chief.stderr and "127.0.0.1:" in chief.stderr, chief.tail()
    assert chief.seconds < 30
    assert end.leftovers == []


@pytest.mark.parametrize("backend", ["jax"])
def test_two_workers_on_one_core(backend, tmp_path):
    """JAX gives a process with one core a pool of one thread, in which a host callback of a large array hangs."""
    end = run_group(
        World(backend, "cluster", 2), ["failures.one_core", "exact.r01_parity"], tmp_path, case_seconds=PATIENCE,
        restarts=0, cores=[0],
    )  # fmt: skip
    assert not end.broken, end.broken
    found = [end.results["failures.one_core"][rank] for rank in range(2)]
    assert all("value" in each for each in found), found
    assert found[0]["value"]["state"] == found[1]["value"]["state"]
    assert end.results["exact.r01_parity"][0]["value"]["weight"] == pytest.approx(0.3)


@pytest.mark.case("failures.r33_alone", workers=("alone",))
def test_r33_alone(run):
    found, right = run.workers[0], run.plain
    assert found["sockets"] == [] == found["children"]
    assert found["mpi"] is False
    assert found["history"] == right["history"]
    assert found["weight"] == right["weight"]
    assert run.group.leftovers == []


@pytest.mark.case("exact.r01_parity", workers=(2, 3, 4), against=())
def test_a_group_ends_without_a_trace(run):
    """All cases of a world leave no process behind, and its workers end with status 0."""
    assert run.group.leftovers == []
    ends = {rank: end.tail() for rank, end in run.group.workers.items() if end.returncode != 0}
    assert ends == {}
