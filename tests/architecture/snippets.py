"""The code blocks of the documentation."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import house

FENCE = re.compile(
    r"(?:<!-- test: (?P<mark>[\w ]+) -->\n)?^```(?P<info>[^\n]*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Block:
    """One fenced block.

    Args:
        page: The file it is in.
        language: First word after the fence; "" without one.
        backend: What follows "backend=" after the fence; "" without it.
        mark: Text of the comment `<!-- test: ... -->` before it; "" without one.
        code: What is inside.
        line: Line of its first line of code, counted from 1.
    """

    page: Path
    language: str
    backend: str
    mark: str
    code: str
    line: int


def pages() -> list[Path]:
    """Returns the Markdown pages a user reads."""
    return sorted([house.ROOT / "README.md", house.ROOT / "CONTRIBUTING.md", *(house.ROOT / "docs").glob("*.md")])


def blocks(page: Path) -> list[Block]:
    """Returns the blocks of a page in their order."""
    text = page.read_text(encoding="utf-8")
    found = []
    for match in FENCE.finditer(text):
        language, *more = match["info"].split() or [""]
        options = dict(word.split("=", 1) for word in more)
        line = text.count("\n", 0, match.start("code")) + 1
        found.append(Block(page, language, options.get("backend", ""), match["mark"] or "", match["code"], line))
    return found
