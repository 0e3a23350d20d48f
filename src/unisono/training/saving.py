"""Files are written once, by the chief, and appear whole or not at all.

Saving contains no collective: `model.save` on all workers and `if strategy.is_chief: model.save` both work.
"""

from __future__ import annotations

import functools
import inspect
import logging
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras

from unisono import log
from unisono.training.hooks import Hooks, base_method, over
from unisono.training.keras_private import FILE_WRITERS

WRITERS = ("save", "save_weights", "export")
"""Methods of a model that write to the path in their first argument."""

_WRITER = "_unisono_writer"


class Writer:
    """Writes the files of one model.

    Args:
        is_chief: Whether this worker writes at all.
    """

    def __init__(self, is_chief: bool) -> None:
        self._is_chief = is_chief
        self.at_work = False

    def __call__(
        self, what: str, filepath: Any, write: Callable[[Any], Any], asks: Callable[[], bool] = lambda: False
    ) -> Any:
        """Writes a file on the chief.

        Args:
            what: The function that the user called.
            filepath: Where to.
            write: Writes to the path it is given.
            asks: Tells whether `write` will first ask about a file that is there, and so must see it.

        Returns:
            What `write` returns; None on other workers.
        """
        if not self._is_chief:
            log.once(f"write {what}", f"{what}: the chief writes the file", logging.DEBUG)
            return None
        self.at_work = True
        try:
            if _is_local(filepath) and not asks():
                return atomically(Path(filepath), lambda path: write(str(path)))
            return write(filepath)
        finally:
            self.at_work = False


def hook(model: Any, hooks: Hooks, is_chief: bool, base: type = keras.Model) -> None:
    """Lets one model write its files on the chief only, atomically.

    A method of the model's own class runs on all workers, with what it is given, up to where it calls Keras's.

    Args:
        model: The model.
        hooks: Over its methods.
        is_chief: Whether this worker writes at all.
        base: The class whose methods write.
    """
    writer = Writer(is_chief)
    hooks.set(_WRITER, writer)
    for name in WRITERS:
        hooks.set(name, over(base, model, name, _writing(base, model, name, writer)))


def _writing(base: type, model: Any, name: str, writer: Writer) -> Callable[..., Any]:
    def write(filepath: Any, *args: Any, **kwargs: Any) -> Any:
        original = base_method(base, model, name)
        return writer(
            f"model.{name}",
            filepath,
            lambda path: original(path, *args, **kwargs),
            asks=lambda: _asks_first(original, filepath, args, kwargs),
        )

    return write


def watch() -> Callable[[], None]:
    """Holds functions such as `keras.saving.save_model` to the same rule, for models that are hooked.

    Returns:
        The way back.
    """
    own = [(module, name, getattr(module, name)) for module, name in FILE_WRITERS]
    for module, name, function in own:
        setattr(module, name, _watched(function))

    def unwatch() -> None:
        for module, name, function in own:
            setattr(module, name, function)

    return unwatch


def _watched(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def write(model: Any, filepath: Any, *args: Any, **kwargs: Any) -> Any:
        writer: Writer | None = getattr(model, "__dict__", {}).get(_WRITER)
        if writer is None or writer.at_work:
            return function(model, filepath, *args, **kwargs)
        return writer(function.__name__, filepath, lambda path: function(model, path, *args, **kwargs))

    return write


def _asks_first(write: Callable[..., Any], filepath: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    given = inspect.signature(write).bind_partial(filepath, *args, **kwargs).arguments
    return not given.get("overwrite", True) and os.path.exists(filepath)


def _is_local(filepath: Any) -> bool:
    return isinstance(filepath, str | os.PathLike) and "://" not in str(filepath)


def atomically(path: Path, write: Callable[[Path], Any]) -> Any:
    """Writes a file or folder under a temporary name beside `path`, then renames it.

    Where a folder of that name holds other things beside what is written, they stay, and what is written is moved in
    piece by piece: each file is whole, but the folder is for a moment a mixture.

    Args:
        path: Where it shall appear; its ending is kept for the temporary name, as writers look at it.
        write: Writes a file or a folder at the path it is given.

    Returns:
        What `write` returns.
    """
    path = path.absolute()
    path.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=".unisono-", dir=path.parent))
    try:
        result = write(folder / path.name)
        # What it was asked for last: an index of several files appears when they are there.
        for written in sorted(folder.iterdir(), key=lambda found: (found.name == path.name, found.name)):
            _settle(written)
            _replace(written, path.parent / written.name)
        _sync(path.parent)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return result


def _replace(written: Path, target: Path) -> None:
    if not (written.is_dir() and target.is_dir()):
        written.rename(target)
    elif {entry.name for entry in target.iterdir()} <= {entry.name for entry in written.iterdir()}:
        _exchange(written, target)
    else:
        for entry in sorted(written.iterdir()):
            _replace(entry, target / entry.name)
        _sync(target)


def _exchange(written: Path, target: Path) -> None:
    # A folder cannot be renamed over another that is not empty.
    old = written.parent / f"{target.name}.old"
    target.rename(old)
    try:
        written.rename(target)
    except OSError:
        old.rename(target)
        raise


def _settle(path: Path) -> None:
    for found in [*path.rglob("*"), path]:
        _sync(found)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
