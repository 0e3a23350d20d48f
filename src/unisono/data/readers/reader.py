"""The contract of a format: blocks of rows out of one file, or out of a range of it.

A block is a structure of arrays with one row per example each: one array, a dict of columns, or `(features, label)`.
A reader is a value: it holds what the user asked for, and nothing of the files. What all workers must know of them
before they read (the columns of a CSV file, say) are `facts`, found once by the chief.
"""

from __future__ import annotations

import abc
from collections.abc import Iterator, Sequence
from typing import Any

from unisono.data.file_list import File
from unisono.data.pieces import Piece, ranges
from unisono.errors import ConfigurationError

Block = Any
"""Structure of NumPy arrays with equally many rows."""


class Reader(abc.ABC):
    """How to read one format."""

    noun: str
    """What a file is called, e.g. "text file"."""

    def facts(self, files: Sequence[File]) -> Any:
        """Returns what must be known of the files before any is read; picklable. May open files."""
        return None

    def uncuttable(self, files: Sequence[File]) -> str | None:
        """Returns why files cannot be read in ranges, as the end of a sentence; None if they can."""
        return "their sizes are not known" if any(file.size is None for file in files) else None

    def counts(self, files: Sequence[File]) -> list[Any]:
        """Returns for each file where it can be cut, for `cut`; picklable. May open files."""
        return [file.size for file in files]

    def cut(self, counts: list[Any], rank: int, workers: int) -> list[Piece]:
        """Returns one worker's ranges of cuttable files; those of all workers cover every row exactly once."""
        return ranges(counts, rank, workers)

    def measure(self, file: File, piece: Piece | None) -> tuple[int | None, int | None]:
        """Returns how many bytes and how many rows a file or a range of it has; None for what is not known."""
        return (file.size if piece is None else piece.stop - piece.start), None

    @abc.abstractmethod
    def read(self, file: File, piece: Piece | None, facts: Any) -> Iterator[Block]:
        """Yields the rows of a file in order, some thousand at a time.

        Args:
            file: The file.
            piece: The range to read; a row belongs to the range that holds its first byte. None for all.
            facts: What `facts` returned on the chief.

        Raises:
            DataError: If the file is broken, has changed, or is not like the others.
        """


def labelled(columns: dict[str, Any], label: str | None) -> Block:
    """Returns columns as `fit` takes them: all of them, or `(features, label)`."""
    if label is None:
        return columns
    return {name: column for name, column in columns.items() if name != label}, columns[label]


def known(names: Sequence[str], asked: Sequence[str], argument: str, file: File) -> None:
    """Checks that columns exist.

    Args:
        names: Those of the file.
        asked: Those the user speaks of.
        argument: Where.
        file: The file.

    Raises:
        ConfigurationError: If there are others among `asked`.
    """
    unknown = [name for name in asked if name not in names]
    if unknown:
        raise ConfigurationError(
            f"{argument} names {', '.join(map(repr, unknown))}, which {file.path} does not have.",
            remedy=f"its columns are {', '.join(map(repr, names))}.",
        )
