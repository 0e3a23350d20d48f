"""Files are written once, by the chief, whole, and plain Keras reads them."""

from __future__ import annotations

from pathlib import Path

import pytest
from worker_groups import World, run_group


@pytest.fixture(scope="module")
def read_back(groups, tmp_path_factory):
    """What plain processes read of the files of a two-worker run, by backend."""
    found = {}

    def read(backend: str) -> dict:
        if backend not in found:
            world = World(backend, "cluster", 2)
            folders = {
                "r32": groups.value("files.r32_write", world)[0]["folder"],
                "r18": groups.value("files.r18_shared_paths", world)[0]["folder"],
            }
            end = run_group(
                World(backend, "plain", 1), ["files.r32_read"], tmp_path_factory.mktemp("read"), arguments=folders
            )
            assert not end.broken, end.broken
            found[backend] = end.results["files.r32_read"][0]
        result = found[backend]
        assert "value" in result, result.get("traceback")
        return result["value"]

    return read


@pytest.mark.case("files.r18_shared_paths")
def test_r18_one_shared_path(run, read_back):
    run.agreed()
    weights, folder = run.one("weights"), Path(run.one("folder"))
    right = run.plain["weights"]
    assert weights[: len(right)] == pytest.approx(right, rel=1e-4)
    turns = {path.name: sorted(each.name for each in path.iterdir()) for path in folder.iterdir()}
    assert sorted(turns, key=int) == [str(turn) for turn in range(20)]
    for turn, names in turns.items():
        assert names == ["best.keras", "final.keras", "log.csv"] + (["tb"] if turn == "0" else []), turn
    events = sorted(path.relative_to(folder / "0" / "tb").parts[0] for path in (folder / "0" / "tb").rglob("events*"))
    assert events == ["train", "validation"]


@pytest.mark.case("files.r18_shared_paths")
def test_r18_every_file_loads_and_holds_the_weights_of_all(run, read_back):
    found = read_back(run.world.backend)
    assert [found["final"][str(turn)] for turn in range(20)] == run.one("weights")
    assert found["best"] == run.one("weights")
    assert found["logs"] == [4] * 20


@pytest.mark.case("files.r32_write", against=())
def test_r32_training_goes_on_from_a_file(run):
    assert run.each("same") == [True] * run.world.size
    assert run.one("iterations") == 6
    assert run.one("after_iterations") == 9
    for key in ("history", "after", "after_state", "predicted"):
        run.one(key)


@pytest.mark.case("files.r32_write", against=())
@pytest.mark.parametrize(
    "name",
    [
        *("saved.keras", "checkpoint.keras", "saved.weights.h5", "epoch2.weights.h5", "exported"),
        *("function.keras", "function.weights.h5", "legacy.h5"),
    ],
)
def test_r32_plain_keras_reads_the_files(run, read_back, name):
    if name == "exported" and run.world.backend == "torch":
        assert "exported" not in read_back("torch")
        return
    found = read_back(run.world.backend)[name]
    flat = [row[0] for row in found["predicted"]]
    assert flat == pytest.approx([row[0] for row in run.one("predicted")], rel=1e-5, abs=1e-6)
    if "iterations" in found:
        assert found["iterations"] == 6
        assert found["momentum"] > 0


@pytest.mark.case("files.r27_slow_chief", against=())
def test_r27_a_slow_chief_ends_well(run):
    run.agreed()
    assert Path(run.one("saved")).exists()
    assert [end.returncode for end in run.group.workers.values()] == [0, 0]
    last_words = [end.stderr.split("=== files.r27_slow_chief")[-1].lower() for end in run.group.workers.values()]
    assert not any(word in text for text in last_words for word in ("error", "traceback", "lost", "abort"))
    assert run.group.leftovers == []
