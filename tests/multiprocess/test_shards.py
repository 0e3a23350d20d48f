"""Data in files: every example once, all workers end together, and FILE that cannot be had is refused by all."""

from __future__ import annotations

import pytest
from cases.shards import LINES
from expect import near, same_history
from worker_groups import World, run_group

ALL = sum(LINES)
WHICH = sum(range(ALL))


@pytest.mark.case("shards.r05_uneven_files", workers=(2, 3, 4))
def test_r05_uneven_files(run):
    found = {name: run.one(name) for name in run.workers[0] if name != "told"}
    told, *_ = run.each("told")
    shared = [name for name in ("files", "auto", "records", "list_files", "all_at_once", "validation") if name in found]
    assert len(shared) == (6 if run.world.size == 2 else 3)
    # By file, by record, shuffled, in one step: the same examples, each once, in every epoch.
    assert len({line.split("checksum ")[1].split(";")[0] for line in told if f": {ALL} examples" in line}) == 1
    assert sum(f": {ALL} examples" in line for line in told) == 2 * len(shared) and "as before" in told[1]
    for name in shared:
        history = found[name]["history"]
        assert history["seen"] == [ALL, ALL], name
        assert history["which"] == near([WHICH, WHICH]), name
    assert found["one_file"]["history"]["seen"] == [LINES[0]] * 2
    if run.world.size == 2:
        assert found["validation"]["history"]["val_seen"] == [ALL - LINES[0]] * 2
    assert found["evaluated"]["seen"] == ALL
    assert found["predicted"] == near([i / 10 * found["files"]["weight"] for i in range(ALL)])
    # One step holds everything, so how it is shared must not show.
    same_history(found["all_at_once"]["history"], run.plain["all_at_once"]["history"])
    assert found["all_at_once"]["weight"] == near(run.plain["all_at_once"]["weight"])
    # The fourth worker's only file is empty: it has nothing to repeat.
    assert found["repeated"]["history"]["seen"] == [32 if run.world.size == 4 else 40] * 3
    assert list(found["repeated"]["history"]) == list(run.plain["repeated"]["history"])


@pytest.mark.case("shards.r07_policy_off", workers=(2, 3, 4), against=())
def test_r07_off_every_worker_sees_all(run):
    found = {name: run.one(name) for name in run.workers[0]}
    for name in ("off", "off_with_steps"):
        assert found[name]["history"]["seen"] == [100 * run.world.size], name
        assert found[name]["iterations"] % 10 == 0


@pytest.mark.case("shards.r07_own_sharding", workers=(2, 3, 4), against=())
def test_r07_own_sharding(run):
    size = run.world.size
    for rank, told in enumerate(run.each("told")):
        assert told == {"pipelines": size, "id": rank, "batch": 10}
    assert run.one("own")["history"]["seen"] == [103, 103]
    assert run.one("own")["history"]["which"] == near([sum(range(103))] * 2)
    assert run.one("whole")["history"]["seen"] == [ALL, ALL]
    assert "by file" in run.one("table") and "examples" in run.one("table")
    for epoch in range(2):
        seen = [worker[epoch] for worker in run.each("seen")]
        assert len({len(batches) for batches in seen}) == 1, "the loops did not end together"
        assert [] in seen[-1], "the worker with less data got no batches without rows"
        assert sorted(v for batches in seen for batch in batches for v in batch) == list(range(ALL))


@pytest.mark.case("shards.functions_on_own_examples", more=("torch-3", "jax-4"), against=("alone",))
def test_functions_run_on_own_examples_and_the_trajectory_stays(run):
    found = {name: run.one(name) for name in run.workers[0]}
    for name in ("even", "uneven", "dropped"):
        same_history(found[name]["history"], run.alone[name]["history"])
        assert found[name]["weight"] == near(run.alone[name]["weight"])


@pytest.mark.case("shards.pipelines", more=("torch-3",), against=("alone",))
@pytest.mark.parametrize(
    "name",
    [
        "sparse", "ragged", "padded", "zip", "concatenate", "window", "generator", "split", "fixed_length",
        "cached_and_repeated",
    ],
)  # fmt: skip
def test_pipelines_by_slice_have_the_trajectory_of_one_worker(run, name):
    same_history(run.one(name)["history"], run.alone[name]["history"])
    assert run.one(name)["weight"] == near(run.alone[name]["weight"])


@pytest.mark.case("shards.hint", more=("tensorflow-3",), against=())
def test_a_hint_shards_where_it_stands(run):
    for name in ("hint", "hint_in_the_middle"):
        assert run.one(name)["history"]["seen"] == [ALL, ALL], name
        assert run.one(name)["history"]["which"] == near([WHICH, WHICH]), name


@pytest.mark.case("shards.readers", more=("jax-3", "torch-4"), against=("alone",))
@pytest.mark.parametrize("name", ["text", "csv", "tfrecord", "parquet", "memory", "by_file", "by_record"])
def test_readers_use_each_example_once_in_every_epoch(run, name):
    found = run.one(name)["history"]
    assert found["seen"] == [ALL, ALL]
    assert found["which"] == near([WHICH, WHICH])
    assert run.one(f"{name} at once")["weight"] == near(run.alone[f"{name} at once"]["weight"])


def test_one_file_and_an_explicit_file_policy_end_all_workers_alike(tmp_path):
    end = run_group(
        World("torch", "cluster", 2), ["shards.one_file_by_file"], tmp_path, propagate=True, case_seconds=60, restarts=0
    )
    for rank, worker in end.workers.items():
        assert not worker.killed and worker.returncode != 0, worker.tail()
        error = end.results["shards.one_file_by_file"][rank]["error"]
        assert "1 file, 2 workers" in error and "AutoShardPolicy.AUTO" in error
