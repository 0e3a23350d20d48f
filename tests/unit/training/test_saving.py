"""Files appear whole or not at all; only the chief writes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import pytest

from unisono.training import saving
from unisono.training.hooks import Hooks
from unisono.training.saving import atomically


def entries(folder: Path) -> dict[str, str]:
    """Returns every file below a folder with its text, hidden ones too."""
    return {str(p.relative_to(folder)): p.read_text() for p in sorted(folder.rglob("*")) if p.is_file()}


def writes(text: str) -> Callable[[Path], str]:
    def write(path: Path) -> str:
        path.write_text(text)
        return f"wrote {path.name}"

    return write


def writes_folder(**texts: str) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        for name, text in texts.items():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_text(text)

    return write


def half(path: Path) -> None:
    path.write_text("ha")
    raise OSError(28, "No space left on device")


def test_a_file_appears_under_its_name(tmp_path: Path):
    assert atomically(tmp_path / "new" / "m.keras", writes("whole")) == "wrote m.keras"
    assert entries(tmp_path) == {"new/m.keras": "whole"}


def test_a_relative_path_is_that_of_the_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    atomically(Path("m.keras"), writes("whole"))
    assert entries(tmp_path) == {"m.keras": "whole"}


def test_a_file_is_replaced_in_one_move(tmp_path: Path):
    target = tmp_path / "m.keras"
    target.write_text("old")

    def write(path: Path) -> None:
        path.write_text("new")
        assert target.read_text() == "old"
        assert path.suffix == ".keras"  # Keras looks at the ending

    atomically(target, write)
    assert entries(tmp_path) == {"m.keras": "new"}


@pytest.mark.parametrize("old", [{}, {"m.keras": "old"}])
def test_a_failure_in_the_middle_leaves_nothing_new(tmp_path: Path, old: dict[str, str]):
    for name, text in old.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(OSError, match="No space left"):
        atomically(tmp_path / "m.keras", half)
    assert entries(tmp_path) == old
    assert len(list(tmp_path.iterdir())) == len(old)


def test_a_failed_folder_leaves_the_old_one(tmp_path: Path):
    atomically(tmp_path / "out", writes_folder(a="1"))

    def fails(path: Path) -> None:
        writes_folder(a="2", b="2")(path)
        raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        atomically(tmp_path / "out", fails)
    assert entries(tmp_path) == {"out/a": "1"}
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_an_interrupt_cleans_up_too(tmp_path: Path):
    def interrupted(path: Path) -> None:
        path.write_text("ha")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        atomically(tmp_path / "m.keras", interrupted)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_replaced_by_its_next_version(tmp_path: Path):
    atomically(tmp_path / "out", writes_folder(**{"a": "1", "sub/b": "1"}))
    atomically(tmp_path / "out", writes_folder(**{"a": "2", "sub/b": "2", "c": "2"}))
    assert entries(tmp_path) == {"out/a": "2", "out/sub/b": "2", "out/c": "2"}
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_what_else_lies_in_a_folder_stays(tmp_path: Path):
    (tmp_path / "out" / "sub").mkdir(parents=True)
    (tmp_path / "out" / "notes.txt").write_text("mine")
    (tmp_path / "out" / "sub" / "more.txt").write_text("mine")
    atomically(tmp_path / "out", writes_folder(**{"a": "1", "sub/b": "1"}))
    atomically(tmp_path / "out", writes_folder(**{"a": "2", "sub/b": "2"}))
    assert entries(tmp_path / "out") == {"a": "2", "notes.txt": "mine", "sub/b": "2", "sub/more.txt": "mine"}
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_a_file_does_not_take_the_place_of_a_folder(tmp_path: Path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes.txt").write_text("mine")
    with pytest.raises(IsADirectoryError):
        atomically(tmp_path / "out", writes("whole"))
    assert entries(tmp_path) == {"out/notes.txt": "mine"}


def test_an_index_appears_after_its_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    moved: list[str] = []
    replace = saving._replace
    monkeypatch.setattr(saving, "_replace", lambda a, b: (moved.append(b.name), replace(a, b)))

    def write(path: Path) -> None:
        path.write_text("index")
        path.with_name("m_0.weights.h5").write_text("shard")
        path.with_name("zz.weights.h5").write_text("shard")

    atomically(tmp_path / "m.weights.json", write)
    assert moved == ["m_0.weights.h5", "zz.weights.h5", "m.weights.json"]
    assert len(entries(tmp_path)) == 3


class Model:
    """Saves like a Keras model, and asks before it overwrites."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, bool]] = []

    def save(self, filepath: Any, overwrite: bool = True, zipped: bool | None = None) -> None:
        self.calls.append((str(filepath), overwrite))
        if Path(filepath).exists() and not overwrite:
            return
        Path(filepath).write_text("new")

    save_weights = save

    def export(self, filepath: Any, format: str = "tf_saved_model") -> str:
        Path(filepath).mkdir()
        return format


def adopted(is_chief: bool) -> Model:
    model = Model()
    saving.hook(model, Hooks(model), is_chief, base=Model)
    return model


def test_others_than_the_chief_write_nothing(tmp_path: Path):
    model = adopted(is_chief=False)
    model.save(tmp_path / "m.keras")
    model.save_weights(filepath=tmp_path / "m.weights.h5", overwrite=True)
    model.export(tmp_path / "out")
    assert (model.calls, list(tmp_path.iterdir())) == ([], [])


def test_the_chief_writes_beside_and_moves(tmp_path: Path):
    model = adopted(is_chief=True)
    model.save(str(tmp_path / "m.keras"))
    assert model.export(tmp_path / "out", "onnx") == "onnx"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.keras", "out"]
    (written, _), *others = model.calls
    assert not others and Path(written).name == "m.keras" and Path(written).parent != tmp_path


@pytest.mark.parametrize("given", [((False,), {}), ((), {"overwrite": False})])
def test_asking_before_overwriting_stays_with_keras(tmp_path: Path, given: tuple[tuple[Any, ...], dict[str, Any]]):
    args, kwargs = given
    (tmp_path / "m.keras").write_text("old")
    model = adopted(is_chief=True)
    model.save(tmp_path / "m.keras", *args, **kwargs)
    assert model.calls == [(str(tmp_path / "m.keras"), False)]
    assert entries(tmp_path) == {"m.keras": "old"}


def test_a_remote_path_goes_to_keras_as_it_is():
    model = adopted(is_chief=True)
    with pytest.raises(FileNotFoundError):  # Model knows no remote files; Keras does
        model.save("gs://bucket/m.keras")
    assert model.calls == [("gs://bucket/m.keras", True)]


# Keras hands its variables to NumPy 2 in an old way.
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
@pytest.mark.parametrize("is_chief", [True, False])
@pytest.mark.parametrize(
    ("name", "save"),
    [
        ("m.keras", lambda model, path: keras.saving.save_model(model, path)),
        ("m.h5", lambda model, path: keras.saving.save_model(model, path)),
        ("m.weights.h5", lambda model, path: keras.saving.save_weights(model, path)),
    ],
)
def test_functions_that_save_write_on_the_chief_only(tmp_path: Path, is_chief: bool, name: str, save: Any):
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    hooks = Hooks(model)
    saving.hook(model, hooks, is_chief)
    unwatch = saving.watch()
    try:
        save(model, tmp_path / name)
        assert [path.name for path in tmp_path.iterdir()] == [name] * is_chief
        save(keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)]), tmp_path / f"other-{name}")
        assert (tmp_path / f"other-{name}").exists()
    finally:
        unwatch()
        hooks.remove()
    save(model, tmp_path / name)
    assert (tmp_path / name).exists()
