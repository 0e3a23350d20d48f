"""Tests over cases: `@pytest.mark.case("module.function", workers=(...))` gives a test a `run` for each world.

`backends` leaves out backends; `more` adds worlds such as "torch-3", for what does not depend on the backend;
`against` says which one-process worlds a test compares with ("plain" if nothing is said).

All cases that the selected tests need of one world run in one group of processes, started when the first of
them is asked for.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from worker_groups import GroupEnd, World, run_group

BACKENDS = ("tensorflow", "jax", "torch")
TEST_SECONDS = 1500

# These must be the last of their group: the workers end in them.
LAST = ("files.r27_slow_chief",)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "case(name, workers, backends, more, against): run a case of tests/multiprocess/cases"
    )


def world_of(backend: str, workers: int | str) -> World:
    if workers in ("plain", "alone"):
        return World(backend, str(workers), 1)
    return World(backend, "cluster", int(workers))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    marker = metafunc.definition.get_closest_marker("case")
    if marker is None:
        own = any(mark.args[0] == "backend" for mark in metafunc.definition.iter_markers("parametrize"))
        if "backend" in metafunc.fixturenames and not own:
            metafunc.parametrize("backend", BACKENDS, scope="session")
        return
    workers = marker.kwargs.get("workers", (2,))
    backends = marker.kwargs.get("backends", BACKENDS)
    worlds = [world_of(backend, count) for backend in backends for count in workers]
    worlds += [world_of(*name.split("-")) for name in marker.kwargs.get("more", ())]
    metafunc.parametrize(
        "run", [(marker.args[0], world) for world in worlds], indirect=True, ids=[str(world) for world in worlds]
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in Path(item.path).parents:
            item.add_marker(pytest.mark.multiprocess)
            if "run" in getattr(item, "fixturenames", ()):
                item.add_marker(pytest.mark.timeout(TEST_SECONDS))


@dataclasses.dataclass
class Run:
    """What one case left in one world.

    Args:
        case: Its name.
        world: Where it ran.
        group: Everything its group left.
        ask: Gives the value of this or another case in another world.
    """

    case: str
    world: World
    group: GroupEnd
    ask: Callable[[str, World], list[Any]]

    @property
    def workers(self) -> list[Any]:
        """The values of all workers, by rank; fails the test if there is not one of each."""
        return values(self.group, self.case, self.world)

    @property
    def plain(self) -> Any:
        """The value of the same case in one plain Keras process."""
        return self.ask(self.case, World(self.world.backend, "plain", 1))[0]

    @property
    def alone(self) -> Any:
        """The value of the same case with unisono and one worker."""
        return self.ask(self.case, World(self.world.backend, "alone", 1))[0]

    def each(self, key: str) -> list[Any]:
        """The values of all workers under one key."""
        return [value[key] for value in self.workers]

    def one(self, key: str) -> Any:
        """The value under one key, which must be the same to the last bit on all workers."""
        found = self.each(key)
        assert all(repr(value) == repr(found[0]) for value in found), f"{key} differs between workers: {found}"
        return found[0]

    def agreed(self) -> Any:
        """Checks that history, weight and fingerprint are equal on all workers; returns the first worker's value."""
        for key in ("history", "epochs", "weight", "iterations", "state"):
            if key in self.workers[0]:
                self.one(key)
        return self.workers[0]


def values(group: GroupEnd, case: str, world: World) -> list[Any]:
    """Returns the values of a case by rank, or fails with all that is known."""
    results = group.results.get(case, {})
    errors = [f"--- worker {rank}: {found['traceback'][-3000:]}" for rank, found in results.items() if "error" in found]
    problem = group.broken.get(case)
    if errors or problem or len(results) < world.size:
        told = "\n".join([problem or "", *errors]) if problem or errors else "no result"
        pytest.fail(f"case {case} on {world}: {told}", pytrace=False)
    return [results[rank]["value"] for rank in range(world.size)]


class Groups:
    """All groups of a session, each run once, when first asked for."""

    def __init__(self, wanted: dict[World, list[str]], folder: Path) -> None:
        self.wanted, self.folder = wanted, folder
        self.ends: dict[World, GroupEnd] = {}

    def end(self, world: World) -> GroupEnd:
        if world not in self.ends:
            # Worlds of one process use one core each: two of them at a time.
            alike = [other for other in self.wanted if (other.kind, other.size) == (world.kind, 1)]
            together = alike if world.size == 1 else [world]
            with concurrent.futures.ThreadPoolExecutor(2) as pool:
                ends = list(pool.map(self._run, together))
            self.ends.update(zip(together, ends, strict=True))
        return self.ends[world]

    def _run(self, world: World) -> GroupEnd:
        cases = sorted(self.wanted[world], key=lambda case: case in LAST)
        return run_group(world, cases, self.folder / str(world), late=world.size != 3)

    def value(self, case: str, world: World) -> list[Any]:
        return values(self.end(world), case, world)


def _wanted(items: Sequence[pytest.Item]) -> dict[World, list[str]]:
    wanted: dict[World, list[str]] = {}
    for item in items:
        parameters = getattr(item, "callspec", None)
        if parameters is None or "run" not in parameters.params:
            continue
        marker = item.get_closest_marker("case")
        assert marker is not None
        case, world = parameters.params["run"]
        worlds = [world] + [world_of(world.backend, kind) for kind in marker.kwargs.get("against", ("plain",))]
        for each in worlds:
            cases = wanted.setdefault(each, [])
            if case not in cases:
                cases.append(case)
    return wanted


@pytest.fixture(scope="session")
def groups(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Groups:
    """The groups of this session."""
    return Groups(_wanted(request.session.items), tmp_path_factory.mktemp("groups"))


@pytest.fixture
def run(request: pytest.FixtureRequest, groups: Groups) -> Run:
    """What the case of this test left in its world."""
    case, world = request.param
    return Run(case, world, groups.end(world), groups.value)
