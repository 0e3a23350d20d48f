"""Patterns, expanded and agreed on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from unisono.data.file_list import File, agree, expand, library
from unisono.errors import ConfigurationError, DataError, DivergenceError


@pytest.fixture
def memory() -> Iterator[fsspec.AbstractFileSystem]:
    system = fsspec.filesystem("memory")
    yield system
    system.store.clear()


def write(folder: Path, **texts: str) -> None:
    for name, text in texts.items():
        (folder / f"{name}.txt").write_text(text, encoding="utf-8")


def test_a_pattern_is_expanded_and_sorted(tmp_path: Path) -> None:
    write(tmp_path, c="3", a="1", b="22")
    (tmp_path / "folder.txt").mkdir()
    assert expand(tmp_path / "*.txt") == tuple(
        File(str(tmp_path / name), size) for name, size in [("a.txt", 1), ("b.txt", 2), ("c.txt", 1)]
    )


def test_several_patterns_keep_their_order_and_a_file_counts_once(tmp_path: Path) -> None:
    write(tmp_path, a="1", b="2", c="3")
    found = expand([tmp_path / "c.txt", str(tmp_path / "[ab].txt"), tmp_path / "*.txt"])
    assert [Path(file.path).stem for file in found] == ["c", "a", "b"]


def test_a_path_that_looks_like_a_pattern_is_a_path(tmp_path: Path) -> None:
    (tmp_path / "a[1].txt").write_text("x")
    assert [Path(file.path).name for file in expand(tmp_path / "a[1].txt")] == ["a[1].txt"]


def test_other_file_systems(memory: fsspec.AbstractFileSystem) -> None:
    memory.pipe({"/d/b.txt": b"12", "/d/a.txt": b"1"})
    assert expand("memory://d/*.txt") == (File("memory://d/a.txt", 1), File("memory://d/b.txt", 2))
    for file in expand("memory://d/*.txt"):
        file.check()


def test_what_comes_before_a_path_is_kept(memory: fsspec.AbstractFileSystem) -> None:
    # As in hdfs://host:8020/d/*.txt, where the path within the file system says nothing of the host.
    memory.pipe({"/d/a.txt": b"1"})
    assert expand("memory:///d/*.txt") == (File("memory:///d/a.txt", 1),)


def test_links_to_folders_are_no_files(tmp_path: Path) -> None:
    write(tmp_path, a="12")
    (tmp_path / "folder").mkdir()
    (tmp_path / "b.txt").symlink_to(tmp_path / "folder")
    (tmp_path / "c.txt").symlink_to(tmp_path / "a.txt")
    assert [(Path(file.path).name, file.size) for file in expand(tmp_path / "*.txt")] == [("a.txt", 2), ("c.txt", 2)]


def test_no_file_matches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError) as caught:
        expand("nothing/*.csv")
    assert "'nothing/*.csv'" in str(caught.value) and str(tmp_path) in str(caught.value)


@pytest.mark.parametrize(("pattern", "said"), [("nix://a", "nix"), ([], "empty")])
def test_what_cannot_be_used(pattern: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        expand(pattern)


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"is a folder.\nHint: name its files: .*/\*"):
        expand(tmp_path)


def test_a_missing_library_is_named_with_what_to_install() -> None:
    with pytest.raises(ConfigurationError, match=r"nosuch(.|\n)*pip install '\.\[files\]'"):
        library("nosuch.thing")


def test_workers_that_find_other_files_are_told() -> None:
    chiefs = (File("a", 1), File("b", 2), File("c", 3))
    agree(chiefs, chiefs, 1)
    with pytest.raises(DivergenceError) as caught:
        agree((File("a", 1), File("c", 4), File("d", 1)), chiefs, 1)
    text = str(caught.value)
    assert "Worker 1" in text and "only on this worker: d" in text and "only on the chief: b" in text
    assert "c (4 bytes on this worker, 3 on the chief)" in text
    assert caught.value.rank == 1
    with pytest.raises(DivergenceError, match=r"another order.*\n.*sort"):
        agree(chiefs[::-1], chiefs, 1)


def test_long_differences_are_cut_short() -> None:
    with pytest.raises(DivergenceError, match=r"file4 and 95 more\."):
        agree((), tuple(File(f"file{k}", 1) for k in range(100)), 1)


def test_a_file_that_changed_or_vanished(tmp_path: Path) -> None:
    write(tmp_path, a="1234")
    (file,) = expand(tmp_path / "a.txt")
    write(tmp_path, a="12345")
    with pytest.raises(DataError, match=r"a\.txt has 5 bytes now; it had 4"):
        file.check()
    (tmp_path / "a.txt").unlink()
    with pytest.raises(DataError, match=r"a\.txt has vanished"):
        file.check()
