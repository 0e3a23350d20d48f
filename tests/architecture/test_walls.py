"""Imports only point down, siblings do not know each other, and each framework has its own files."""

from __future__ import annotations

import ast
import graphlib
from pathlib import Path

import house
import pytest

# Room -> floor. Rooms on one floor must not import each other; `unisono` itself only hands names on.
FLOORS: dict[str, float] = {
    "unisono": 8,
    "unisono.__main__": 7.5,
    "unisono.cli": 7,
    "unisono.recovery": 7,
    "unisono.observe": 7,
    "unisono.strategies": 6,
    "unisono.training": 5,
    "unisono.runtime": 4,
    "unisono.launch": 4,
    "unisono.control": 3,
    "unisono.collectives": 2,
    "unisono.backends": 2,
    "unisono.data": 2,
    "unisono.observe.timeline": 2,
    "unisono.cluster": 1,
    "unisono.log": 0.2,
    "unisono.env": 0.1,
    "unisono.clock": 0,
    "unisono.errors": 0,
}

FRAMEWORKS = {"tensorflow": "tensorflow", "jax": "jax", "jaxlib": "jax", "torch": "torch", "mpi4py": "mpi"}
ROOMS_THAT_KNOW_KERAS = {
    "unisono.backends",
    "unisono.data",
    "unisono.strategies",
    "unisono.training",
    "unisono.recovery",
}


def room_of(module: str) -> str:
    """Returns the longest room that contains a module of the package."""
    rooms = [room for room in FLOORS if module == room or module.startswith(f"{room}.")]
    room = max(rooms, key=len)
    assert room != "unisono" or module == "unisono", f"{module} has no floor: add its room to FLOORS"
    return room


def inner_imports() -> list[house.Import]:
    return [each for each in house.all_imports() if each.imported.split(".")[0] == "unisono"]


def test_every_import_points_down() -> None:
    wrong = []
    for each in inner_imports():
        importer, imported = room_of(each.importer), room_of(each.imported)
        if importer != imported and FLOORS[importer] <= FLOORS[imported] < FLOORS["unisono"]:
            wrong.append(f"{each.where}: {importer} ({FLOORS[importer]}) -> {imported} ({FLOORS[imported]})")
    assert not wrong, "\n".join(wrong)


def test_the_face_is_asked_for_nothing_but_its_version_and_place() -> None:
    wrong = []
    for path in house.files():
        for node in ast.walk(house.tree(path)):
            match node:
                case ast.Attribute(value=ast.Name(id="unisono"), attr=name) if name.startswith("__"):
                    continue
                case ast.Attribute(value=ast.Name(id="unisono"), attr=name):
                    wrong.append(f"{path.relative_to(house.ROOT)}:{node.lineno}: unisono.{name}")
                case ast.ImportFrom(module="unisono", names=names):
                    asked = {alias.name for alias in names} - {"__version__", *house.rooms()}
                    wrong += [f"{path.relative_to(house.ROOT)}:{node.lineno}: unisono.{name}" for name in asked]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("importer", "forbidden"),
    [
        ("unisono.launch", "unisono.backends"),
        ("unisono.launch", "unisono.data"),
    ],
)
def test_rooms_that_are_lower_but_closed(importer: str, forbidden: str) -> None:
    wrong = [e.where for e in inner_imports() if room_of(e.importer) == importer and room_of(e.imported) == forbidden]
    assert not wrong


def test_control_knows_only_the_values_of_the_cluster() -> None:
    wrong = [
        f"{each.where}: {each.imported}"
        for each in inner_imports()
        if room_of(each.importer) == "unisono.control"
        and room_of(each.imported) == "unisono.cluster"
        and each.imported != "unisono.cluster.spec"
    ]
    assert not wrong


def test_no_circle_of_files() -> None:
    graph: dict[str, set[str]] = {}
    for each in inner_imports():
        if each.importer != each.imported and each.imported != "unisono":
            graph.setdefault(each.importer, set()).add(each.imported)
    graphlib.TopologicalSorter(graph).prepare()


def test_frameworks_are_imported_only_in_files_that_bear_their_name() -> None:
    wrong = []
    for path in house.files():
        for each in house.imports(path):
            name = FRAMEWORKS.get(each.imported.split(".")[0])
            if name and name not in path.stem:
                wrong.append(f"{each.where}: imports {each.imported}")
    assert not wrong, "\n".join(wrong)


def test_keras_is_known_only_where_training_is() -> None:
    wrong = [
        f"{each.where}: {each.imported}"
        for each in house.all_imports()
        if each.imported.split(".")[0] == "keras" and room_of(each.importer) not in ROOMS_THAT_KNOW_KERAS
    ]
    assert not wrong


def test_only_env_touches_the_environment() -> None:
    names = {"environ", "environb", "getenv", "putenv", "unsetenv"}
    wrong = []
    for path in house.files():
        if house.module_of(path) == "unisono.env":
            continue
        for node in ast.walk(house.tree(path)):
            match node:
                case ast.Attribute(value=ast.Name(id="os"), attr=name) if name in names:
                    wrong.append(f"{path.relative_to(house.ROOT)}:{node.lineno}")
                case ast.ImportFrom(module="os", names=aliases) if names & {alias.name for alias in aliases}:
                    wrong.append(f"{path.relative_to(house.ROOT)}:{node.lineno}")
    assert not wrong, f"read variables through unisono.env: {wrong}"


@pytest.mark.parametrize("path", house.files(), ids=house.module_of)
def test_a_file_has_one_reason_to_exist(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 400
    assert path.stem not in ("utils", "util", "helpers", "common", "misc")
