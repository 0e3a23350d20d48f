"""Which files a data set has: patterns of any file system that fsspec knows, expanded, and agreed on by all workers."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unisono.data.file_difference import SORT, difference
from unisono.errors import ConfigurationError, DataError, DivergenceError

Patterns = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
"""What users write for files: a path or pattern, or several."""


@dataclass(frozen=True, slots=True)
class File:
    """One file.

    Args:
        path: Where it is: a path of this machine, or with the protocol in front, e.g. "s3://bucket/part-0.csv".
        size: Bytes, as they lie in the file system; None if it does not tell.
    """

    path: str
    size: int | None

    @property
    def system(self) -> tuple[Any, str]:
        """The fsspec file system that holds the file, and its path there."""
        system, path = library("fsspec").core.url_to_fs(self.path)
        return system, path

    def check(self) -> None:
        """Compares the file with what it was when the data set was made.

        Raises:
            DataError: If it has vanished, or has another size.
        """
        system, path = self.system
        try:
            size = system.info(path)["size"]
        except FileNotFoundError:
            raise DataError(
                f"{self.path} has vanished since the data set was made.",
                remedy="leave the files alone while they are read; make the data set anew after changing them.",
            ) from None
        if size is not None and size != self.size:
            raise DataError(
                f"{self.path} has {size:,} bytes now; it had {self.size or 0:,} when the data set was made.",
                remedy="leave the files alone while they are read; make the data set anew after changing them.",
            )


def library(name: str) -> Any:
    """Imports an optional library that reads files.

    Args:
        name: Its module, e.g. "pyarrow.parquet".

    Raises:
        ConfigurationError: If it is not installed.
    """
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ConfigurationError(
            f"Reading these files needs {name.split('.')[0]}: {error}.",
            remedy="pip install '.[files]' in the folder of Unisono",
        ) from None


def expand(patterns: Patterns) -> tuple[File, ...]:
    """Finds the files that a user means.

    Args:
        patterns: A path or glob pattern, local or of any file system that fsspec knows, or several of them.

    Returns:
        In the order of the patterns, those of one pattern sorted; a file that several patterns match counts once.

    Raises:
        ConfigurationError: If a pattern matches no file, names a folder, or its file system cannot be used.
    """
    given = [patterns] if isinstance(patterns, str | os.PathLike) else list(patterns)
    if not given:
        raise ConfigurationError("The list of files is empty.", remedy='give paths or patterns, e.g. "data/*.csv".')
    found: dict[str, File] = {}
    for pattern in given:
        for file in _matches(os.fspath(pattern)):
            found.setdefault(file.path, file)
    return tuple(found.values())


def _matches(pattern: str) -> Iterator[File]:
    fsspec = library("fsspec")
    try:
        system, path = fsspec.core.url_to_fs(pattern)
    except (ImportError, ValueError) as error:
        raise ConfigurationError(
            f"The file system of {pattern!r} cannot be used: {error}.",
            remedy="install what fsspec needs for it, e.g. s3fs for s3://, gcsfs for gs://, pyarrow for hdfs://.",
        ) from None
    infos: dict[str, Any] = {}
    if system.exists(path):
        if system.isdir(path):
            raise ConfigurationError(f"{pattern!r} is a folder.", remedy=f"name its files: {pattern.rstrip('/')}/*")
        infos = {path: system.info(path)}
    elif any(sign in path for sign in "*?["):
        found = system.glob(path, detail=True).items()
        infos = {p: info for p, info in found if info["type"] == "file" or not system.isdir(p)}
    if not infos:
        here = f" (working folder: {Path.cwd()})" if "://" not in pattern else ""
        raise ConfigurationError(f"No file matches {pattern!r}{here}.", remedy="check the path and the pattern.")
    for found_path in sorted(infos):
        yield File(_full(system, pattern, path, found_path), infos[found_path].get("size"))


def _full(system: Any, pattern: str, path: str, found: str) -> str:
    """Returns the path of a file with what the user wrote before the path of the pattern: protocol, perhaps a host."""
    if "file" in system.protocol and "::" not in pattern:
        return found
    if pattern.endswith(path):
        return pattern.removesuffix(path) + found
    if "::" in pattern:
        raise ConfigurationError(
            f"Files of {pattern!r} cannot be named one by one.", remedy="unpack the archive, or name a plain path."
        )
    return str(system.unstrip_protocol(found))


def agree(mine: tuple[File, ...], chiefs: tuple[File, ...], rank: int) -> None:
    """Checks that this worker finds the same files as the chief.

    Args:
        mine: What this worker finds.
        chiefs: What the chief finds.
        rank: This worker.

    Raises:
        DivergenceError: If the lists differ; names the files.
    """
    if mine == chiefs:
        return
    if set(mine) == set(chiefs):
        raise DivergenceError(f"Worker {rank} finds the files in another order than the chief.", remedy=SORT, rank=rank)
    told = difference({file.path: file.size for file in mine}, {file.path: file.size for file in chiefs})
    raise DivergenceError(
        f"Worker {rank} finds other files than the chief: {told}.",
        remedy="give all workers the same files, or use AutoShardPolicy.OFF and give each worker files of its own.",
        rank=rank,
    )
