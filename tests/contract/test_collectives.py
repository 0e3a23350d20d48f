"""One suite over every engine: alone, threads, and MPI processes."""

from __future__ import annotations

import concurrent.futures
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contract import collective_programs as programs
from contract import mpi_processes
from unisono.collectives import loopback
from unisono.collectives.base import Collectives
from unisono.errors import CollectiveTimeoutError, DivergenceError

WORKER = Path(__file__).parent / "collective_worker.py"
MPI = ("mpi", "tcp", "mpiexec")
ENGINES = [
    ("alone", 1),
    *(("threads", size) for size in (1, 2, 3, 4)),
    # Plain processes in shared memory, the same over TCP, and those of an MPI launcher.
    *(("mpi", size) for size in (1, 2, 3, 4)),
    *(("tcp", size) for size in (2, 3, 4)),
    ("mpiexec", 2),
]
IDS = [f"{engine}-{size}" for engine, size in ENGINES]
Program = Callable[[Collectives], Any]
Outcomes = Callable[[str, int], dict[str, list[dict[str, str]]]]


def run_threads(channels: list[Collectives], program: Program) -> list[str]:
    with concurrent.futures.ThreadPoolExecutor(len(channels)) as pool:
        return [repr(value) for value in pool.map(program, channels)]


def run_mpi(engine: str, size: int, names: list[str], folder: Path) -> dict[str, list[dict[str, str]]]:
    """Runs programs in one group of MPI processes; returns what each worker has to say of each."""
    if engine == "mpiexec":
        end = mpi_processes.under_mpiexec(size, WORKER, str(folder), *names)
        assert end.returncode == 0, end.output
    else:
        places = ["here"] * size if engine == "mpi" else [str(rank) for rank in range(size)]
        for end in mpi_processes.plain(places, WORKER, str(folder), *names, seconds=150):
            assert end.returncode == 0, end.output
    outcomes = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(size)]
    return {name: [outcome[name] for outcome in outcomes] for name in names}


@pytest.fixture(scope="session")
def mpi_outcomes(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """Outcomes of all programs in a group of MPI processes, each group run once."""
    known: dict[tuple[str, int], dict[str, list[dict[str, str]]]] = {}

    def outcomes(engine: str, size: int) -> dict[str, list[dict[str, str]]]:
        if (engine, size) not in known:
            names = [program.__name__ for program in programs.PROGRAMS]
            known[engine, size] = run_mpi(engine, size, names, tmp_path_factory.mktemp(f"{engine}{size}"))
        return known[engine, size]

    return outcomes


def check(outcomes: list[dict[str, str]]) -> None:
    errors = [f"worker {rank}:\n{outcome['error']}" for rank, outcome in enumerate(outcomes) if "error" in outcome]
    assert not errors, "\n".join(errors)
    assert len({outcome["value"] for outcome in outcomes}) == 1, outcomes


@pytest.mark.parametrize("program", programs.PROGRAMS, ids=lambda program: program.__name__)
@pytest.mark.parametrize(("engine", "size"), ENGINES, ids=IDS)
def test_engine(engine: str, size: int, program: Program, mpi_outcomes: Outcomes) -> None:
    if engine in MPI:
        check(mpi_outcomes(engine, size)[program.__name__])
    else:
        channels = [loopback.Alone()] if engine == "alone" else loopback.group(size, timeout=30)
        assert len(set(run_threads(channels, program))) == 1


# Each takes a group of its own. A launcher kills all processes when one ends without ending MPI, which is right
# after a failure, so mpiexec is not among them.
ENDS = [
    pytest.param(engine, size, program, id=f"{engine}-{size}-{program.__name__}")
    for engine, size in [
        ("alone", 1),
        ("threads", 1),
        ("threads", 2),
        ("threads", 4),
        ("mpi", 2),
        ("mpi", 3),
        ("tcp", 2),
    ]
    for program in programs.ENDINGS
    if size > 1 or program is programs.abandoned
]


@pytest.mark.parametrize(("engine", "size", "program"), ENDS)
def test_end_of_an_engine(engine: str, size: int, program: Program, tmp_path: Path) -> None:
    if engine in MPI:
        check(run_mpi(engine, size, [program.__name__], tmp_path)[program.__name__])
    else:
        run_threads([loopback.Alone()] if engine == "alone" else loopback.group(size, timeout=30), program)


def test_a_thread_that_does_not_come_is_named() -> None:
    first, second, third = loopback.group(3, timeout=0.2)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        waits = [pool.submit(channel.all_reduce, np.ones(2)) for channel in (first, third)]
        for wait in waits:
            with pytest.raises(
                CollectiveTimeoutError, match=r"worker 1 did not arrive at all_reduce .*'main'.* 0\.2 s"
            ):
                wait.result(timeout=10)
    with pytest.raises(CollectiveTimeoutError):
        second.barrier()


def test_threads_that_call_different_things_all_learn_of_it() -> None:
    first, second = loopback.group(2, timeout=10)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        waits = [pool.submit(first.all_reduce, np.ones(2)), pool.submit(second.broadcast, np.ones(2))]
        for wait in waits:
            with pytest.raises(DivergenceError, match=r"worker 0 called .*all_reduce.*worker 1 called .*broadcast"):
                wait.result(timeout=10)


def test_abandoning_wakes_the_threads_that_wait() -> None:
    first, second = loopback.group(2, timeout=30)
    caught: list[BaseException] = []

    def wait() -> None:
        try:
            first.barrier()
        except DivergenceError as error:
            caught.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    second.abandon(DivergenceError("enough"))
    thread.join(10)
    assert [str(error) for error in caught] == ["enough"]
