"""What must not be found in any file of the repository, and what the package must contain."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import house
import pytest

FOLDERS = ("src", "tests", "docs", "examples", "benchmarks", "scripts", "requirements", ".ci")
TEXT = {".py", ".md", ".toml", ".txt", ".svg", ".csv", ".json", ""}

# Paths of one machine, and marks of unfinished work. Written in pieces, so that this file passes itself.
FORBIDDEN = {
    "a home folder": r"/(?:root|home)" + r"/\w",
    "an environment of one machine": "/tmp" + "/venv",
    "a folder of one machine": "/work" + "/",
    "unfinished work": r"\b(?:TO" + r"DO|FIX" + r"ME|X" + r"XX)\b",
    "a registry's host": r"\bpy" + r"pi\.(?:org|io)\b",
}


def texts() -> list[Path]:
    top = [path for path in house.ROOT.iterdir() if path.is_file() and not path.name.startswith(".git")]
    inner = [path for folder in FOLDERS for path in (house.ROOT / folder).rglob("*") if path.is_file()]
    return sorted(p for p in top + inner if p.suffix in TEXT and not {"__pycache__", ".hypothesis"} & set(p.parts))


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_file_mentions(what: str) -> None:
    found = [
        f"{path.relative_to(house.ROOT)}:{number}: {line.strip()}"
        for path in texts()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if re.search(FORBIDDEN[what], line)
    ]
    assert not found, "\n".join(found)


def test_the_package_says_that_it_is_typed() -> None:
    assert (house.PACKAGE / "py.typed").exists()


def test_pinned_versions_are_ones_that_are_allowed() -> None:
    from packaging.requirements import Requirement

    project = tomllib.loads((house.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [Requirement(text) for text in project["dependencies"]]
    wanted += [Requirement(text) for extra in project["optional-dependencies"].values() for text in extra]
    for name in ("newest.txt", "oldest.txt"):
        lines = (house.ROOT / "requirements" / name).read_text(encoding="utf-8").splitlines()
        pins = dict(line.split("==") for line in lines if line and not line.startswith("#"))
        pins["tensorflow"] = pins["tensorflow-cpu"]
        for requirement in wanted:
            if requirement.name in pins:
                assert requirement.specifier.contains(pins[requirement.name]), f"{name}: {requirement}"


def test_the_oldest_versions_are_those_that_are_promised() -> None:
    project = tomllib.loads((house.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    promised = [
        *project["dependencies"],
        *(e for n in ("tensorflow", "jax") for e in project["optional-dependencies"][n]),
    ]
    pins = (house.ROOT / "requirements" / "oldest.txt").read_text(encoding="utf-8")
    for requirement in promised:
        name, version = re.match(r"([\w-]+)>=([\d.]+)", requirement).groups()  # type: ignore[union-attr]
        name = {"tensorflow": "tensorflow-cpu"}.get(name, name)
        assert re.search(rf"^{name}=={re.escape(version)}\b", pins, re.MULTILINE), requirement
