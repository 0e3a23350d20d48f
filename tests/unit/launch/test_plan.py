"""What each worker is started with."""

from __future__ import annotations

import json

import pytest

from unisono import env
from unisono.cluster import tf_config, unused
from unisono.errors import ConfigurationError
from unisono.launch.plan import USER_THREADS, WorkerPlan, describe, plan, shares

ARGV = ["python", "train.py", "--epochs", "3"]


def plans(workers: int, cores: int, **environ: str) -> list[WorkerPlan]:
    return plan(workers, ARGV, range(5000, 5000 + workers), range(cores), {"PATH": "/bin", **environ})


def test_each_worker_gets_its_own_tf_config() -> None:
    both = plans(2, 2)
    assert [each.rank for each in both] == [0, 1]
    assert {each.argv for each in both} == {tuple(ARGV)}
    for rank, each in enumerate(both):
        assert json.loads(each.environ["TF_CONFIG"]) == {
            "cluster": {"worker": ["127.0.0.1:5000", "127.0.0.1:5001"]},
            "task": {"type": "worker", "index": rank},
        }
        cluster = tf_config.parse(each.environ["TF_CONFIG"])
        assert (cluster.rank, cluster.size, cluster.bootstrap) == (rank, 2, "coordinator")
        assert each.environ["PATH"] == "/bin"


def test_one_worker_is_alone() -> None:
    (only,) = plans(1, 4)
    assert tf_config.parse(only.environ["TF_CONFIG"]).bootstrap == "none"
    assert only.cores == (0, 1, 2, 3)


@pytest.mark.parametrize(
    ("workers", "cores", "right"),
    [
        (1, 1, [(0,)]),
        (2, 2, [(0,), (1,)]),
        (2, 4, [(0, 1), (2, 3)]),
        (3, 8, [(0, 1, 2), (3, 4, 5), (6, 7)]),
        (3, 2, [(), (), ()]),
        (2, 1, [(0,), (0,)]),
        (4, 2, [(0,), (0,), (1,), (1,)]),
        (6, 2, [(0,), (0,), (0,), (1,), (1,), (1,)]),
        (65, 64, [()] * 65),
    ],
)
def test_shares(workers: int, cores: int, right: list[tuple[int, ...]]) -> None:
    assert shares(workers, range(cores)) == right
    assert [each.cores for each in plans(workers, cores)] == right


@pytest.mark.parametrize("workers", range(1, 8))
@pytest.mark.parametrize("cores", range(1, 20))
def test_shares_are_whole_and_even(workers: int, cores: int) -> None:
    found = shares(workers, range(cores))
    assert len(found) == workers
    used = [core for share in found for core in share]
    if workers <= cores:
        assert used == list(range(cores))
        assert max(map(len, found)) - min(map(len, found)) <= 1
    elif workers % cores == 0:
        assert used == sorted(used)
        assert {used.count(core) for core in range(cores)} == {workers // cores}
    else:
        assert not used


def test_pinned_workers_need_no_thread_variables() -> None:
    for each in plans(2, 8):
        assert not {"OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "PJRT_NPROC"} & set(each.environ)


def test_one_thread_each_when_there_are_too_few_cores() -> None:
    for each in plans(5, 2):
        assert each.cores == ()
        assert each.environ["OMP_NUM_THREADS"] == each.environ["TF_NUM_INTRAOP_THREADS"] == "1"


@pytest.mark.parametrize(("workers", "cores"), [(2, 2), (2, 4), (4, 2), (65, 64)])
def test_jax_gets_three_threads_at_least(workers: int, cores: int) -> None:
    assert {each.environ["PJRT_NPROC"] for each in plans(workers, cores)} == {"3"}
    assert {each.environ["PJRT_NPROC"] for each in plans(workers, cores, PJRT_NPROC="5")} == {"5"}


@pytest.mark.parametrize("name", USER_THREADS)
def test_threads_of_the_user_are_left_alone(name: str) -> None:
    for workers in (2, 4):
        for each in plans(workers, 2, **{name: "6"}):
            assert each.cores == ()
            assert {n: each.environ.get(n) for n in USER_THREADS} == {
                n: "6" if n == name else None for n in USER_THREADS
            }
            assert each.environ["PJRT_NPROC"] == "3"
    assert "PJRT_NPROC" not in plans(2, 8, **{name: "6"})[0].environ


def test_an_outer_launcher_does_not_reach_the_workers() -> None:
    outer = {"PMI_RANK": "0", "PMI_SIZE": "1", "PMI_FD": "9", "OMPI_COMM_WORLD_SIZE": "1", "MPI_LOCALRANKID": "0"}
    (first, _) = plans(2, 2, TF_CONFIG="{}", **outer)
    assert not set(outer) & set(first.environ)
    assert first.environ["TF_CONFIG"] != "{}"


def test_output_is_not_held_back() -> None:
    assert plans(1, 1)[0].environ["PYTHONUNBUFFERED"] == "1"
    assert plans(1, 1, PYTHONUNBUFFERED="")[0].environ["PYTHONUNBUFFERED"] == ""


def test_impossible_jobs() -> None:
    with pytest.raises(ConfigurationError, match="at least one worker"):
        plans(0, 1)
    with pytest.raises(ConfigurationError, match="2 workers need 2 ports"):
        plan(2, ARGV, [5000], [0], {})


@pytest.mark.parametrize(
    ("workers", "cores", "environ", "right"),
    [
        (2, 2, {}, "2 workers on this machine, 1 core each"),
        (1, 4, {}, "1 worker on this machine, 4 cores "),
        (2, 5, {}, "2 workers on this machine, 2 or 3 cores each"),
        (3, 2, {}, "3 workers on this machine, sharing 2 cores, one thread each"),
        (2, 1, {}, "2 workers on this machine, 2 to a core "),
        (4, 2, {}, "4 workers on this machine, 2 to a core "),
        (2, 4, {"OMP_NUM_THREADS": "3"}, "OMP_NUM_THREADS=3 is set, so all may use all 4 cores."),
    ],
)
def test_said_in_one_line(workers: int, cores: int, environ: dict[str, str], right: str) -> None:
    line = describe(workers, range(cores), environ)
    assert right in line
    assert "\n" not in line


def test_every_variable_is_in_the_table() -> None:
    (first, _, _) = plans(3, 2)
    named = {*USER_THREADS, *first.environ} - {"PATH"}
    assert named <= set(env.VARIABLES)
    assert {name for name, _ in (*unused.COUNTS, *unused.LISTS)} <= set(env.VARIABLES)
