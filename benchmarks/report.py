"""What measurements are held against, and tables in Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """A number that should be reached.

    Args:
        what: What was measured.
        value: The number found.
        limit: The number to reach.
        at_most: Whether the limit is an upper one.
        unit: Put behind both.
    """

    what: str
    value: float
    limit: float
    at_most: bool = True
    unit: str = "x"

    @property
    def met(self) -> bool:
        """Whether it was reached."""
        return self.value <= self.limit if self.at_most else self.value >= self.limit

    @property
    def wanted(self) -> str:
        """The limit in words."""
        return f"{'at most' if self.at_most else 'at least'} {self.limit:g} {self.unit}"

    @property
    def found(self) -> str:
        """The value with its unit."""
        return f"{self.value:.{2 if self.value < 10 else 1 if self.value < 100 else 0}f} {self.unit}"


@dataclass(frozen=True)
class Section:
    """One part of the results.

    Args:
        title: Heading.
        text: Markdown below it.
        targets: What was to be reached.
        faults: What went wrong, a sentence each.
        headline: Lines of a short table for the front page.
    """

    title: str
    text: str
    targets: tuple[Target, ...] = ()
    faults: tuple[str, ...] = ()
    headline: tuple[tuple[str, ...], ...] = ()


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a table in Markdown.

    Args:
        head: Names of the columns.
        rows: Cells.
    """
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def target_table(targets: Sequence[Target]) -> str:
    """Returns the targets as a table; those that were missed say so.

    Args:
        targets: In order.
    """
    rows = [(each.what, each.found, each.wanted, "yes" if each.met else "**no**") for each in targets]
    return table(("target", "found", "wanted", "reached"), rows)


def render(section: Section) -> str:
    """Returns a section in Markdown.

    Args:
        section: To be shown.
    """
    parts = [f"## {section.title}", *(f"**{in_one_line(fault)}**" for fault in section.faults), section.text]
    if section.targets:
        parts.append(target_table(section.targets))
    return "\n\n".join(parts)


def in_one_line(fault: str) -> str:
    """Returns what went wrong, without the traceback in between.

    Args:
        fault: May have many lines.
    """
    first, *rest = fault.splitlines()
    return f"{first} ({rest[-1].strip()})" if rest else first
