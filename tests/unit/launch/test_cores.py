"""Which cores may be used, in which order."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from unisono.launch import cores


def describe(topology: Path, place: dict[int, tuple[int, int]]) -> None:
    for core, (socket, number) in place.items():
        folder = topology / f"cpu{core}" / "topology"
        folder.mkdir(parents=True)
        (folder / "physical_package_id").write_text(f"{socket}\n")
        (folder / "core_id").write_text(f"{number}\n")


def test_hardware_threads_of_a_core_and_cores_of_a_socket_are_neighbours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    describe(tmp_path, {core: (core % 2, core // 2 % 2) for core in range(8)})
    assert cores.available(tmp_path) == (0, 4, 2, 6, 1, 5, 3, 7)


def test_only_what_is_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {2, 5})
    describe(tmp_path, {core: (0, core) for core in range(8)})
    assert cores.available(tmp_path) == (2, 5)


def test_in_order_of_numbers_where_the_kernel_does_not_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3, 1, 2})
    assert cores.available(tmp_path) == (1, 2, 3)


def test_this_machine() -> None:
    assert set(cores.available()) == os.sched_getaffinity(0)
