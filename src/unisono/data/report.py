"""What each worker gets of a data set that lies in files, as values and in words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from unisono.data import pieces
from unisono.data.policy import Way

SHOWN = 4
"""Workers that the line for the log speaks of one by one; the table shows all."""


@dataclass(frozen=True, slots=True)
class Share:
    """What one worker reads in an epoch.

    Args:
        worker: Its rank.
        files: Number of files it opens; None if not known.
        bytes: How much of them it reads; None if not known.
        examples: Number of examples; None if only reading tells.
    """

    worker: int
    files: int | None
    bytes: int | None
    examples: int | None


@dataclass(frozen=True, slots=True)
class Report:
    """How the workers share a data set.

    Args:
        kind: What it is, e.g. "33 text files".
        way: What each worker does to get its part.
        reason: Why, as the end of a sentence.
        shares: What each worker reads, by rank.
    """

    kind: str
    way: Way
    reason: str
    shares: Sequence[Share]

    def line(self) -> str:
        """Returns one line for the log."""
        if len(self.shares) == 1:
            return f"{self.kind}: {_amounts(self.shares[0]) or 'one worker reads all'}"
        head = f"{self.kind}, {self.way.value} ({self.reason})"
        if self.way in (Way.SLICES, Way.ALL):
            return f"{head}: every worker reads {_amounts(self.shares[0]) or 'all'}"
        told = [f"{_amounts(share) or 'an unknown part'} on worker {share.worker}" for share in self.shares[:SHOWN]]
        if len(self.shares) > SHOWN:
            told.append(f"and so on for {len(self.shares)} workers")
        return f"{head}: {'; '.join(told)}{self._uneven()}"

    def table(self) -> str:
        """Returns a table with a row for each worker, under a line that says how they share the data."""
        rows = [("worker", "files", "bytes", "examples")]
        rows += [(str(s.worker), _number(s.files), _size(s.bytes), _number(s.examples)) for s in self.shares]
        widths = [max(len(row[column]) for row in rows) for column in range(4)]
        lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
        return "\n".join([f"{self.kind}, {self.way.value} ({self.reason}){self._uneven()}", *lines])

    def _uneven(self) -> str:
        for unit in ("examples", "bytes"):
            amounts = [getattr(share, unit) for share in self.shares]
            if None not in amounts:
                found = pieces.uneven(amounts) if len(amounts) > 1 else None
                return f"; worker {found[0]} gets {found[1]:.2g} times the average, others wait for it" if found else ""
        return ""


def unknown_shares(workers: int) -> list[Share]:
    """Returns a share for each worker of which nothing is known beforehand."""
    return [Share(worker, None, None, None) for worker in range(workers)]


def total(amounts: Iterable[int | None]) -> int | None:
    """Returns the sum; None if a part of it is not known."""
    told = list(amounts)
    known = [amount for amount in told if amount is not None]
    return sum(known) if len(known) == len(told) else None


def ordinal(number: int) -> str:
    """Returns e.g. "2nd", "21st"."""
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th") if number // 10 % 10 != 1 else "th"
    return f"{number}{ending}"


def count(number: int, thing: str) -> str:
    """Returns e.g. "1 file", "2 files"."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def _amounts(share: Share) -> str:
    told = []
    if share.files is not None:
        told.append(count(share.files, "file"))
    if share.bytes is not None:
        told.append(_size(share.bytes))
    if share.examples is not None:
        told.append(count(share.examples, "example"))
    return ", ".join(told)


def _number(number: int | None) -> str:
    return "?" if number is None else f"{number:,}"


def _size(size: int | None) -> str:
    if size is None:
        return "?"
    value = float(size)
    for unit in ("bytes", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "bytes" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:,.1f} TB"
