"""The output of several workers on one screen: whole lines with the worker in front, one live progress bar."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Sequence
from typing import TextIO

from unisono.clock import Clock

_CONTROL = re.compile(r"([\r\n\b])")
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_ERASE = "\r\x1b[K"

LONGEST_LINE = 64 * 1024
"""Characters after which a line without an end is shown all the same."""

QUIET_SECONDS = 10.0
"""Seconds after which a progress bar that only redraws itself is shown once, where output is not a terminal."""


class Assembler:
    """Puts the bytes of one stream together to lines, as a terminal would show them.

    A carriage return goes back to the start of the line, so of a progress bar only its last state becomes a
    line; a backspace takes one character back.
    """

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
        self._returned = False
        self.pending = ""
        """The line that has not ended yet."""
        self.redrawn = False
        """Whether `pending` has been drawn over, as progress bars do."""

    def feed(self, data: bytes, *, final: bool = False) -> list[str]:
        """Returns the lines that these bytes complete, without their ends.

        Args:
            data: What was read.
            final: Whether the stream has ended; a last line without an end then counts as a line.
        """
        lines = []
        for part in _CONTROL.split(self._decode(data, final)):
            if part == "\n":
                lines.append(self._take())
            elif part == "\r":
                self._returned = self.redrawn = True
            elif part == "\b":
                self.pending, self.redrawn = self.pending[:-1], True
            elif part:
                self.pending = part if self._returned else self.pending + part
                self._returned = False
                if len(self.pending) > LONGEST_LINE:
                    lines.append(self._take())
        if final and self.pending:
            lines.append(self._take())
        return lines

    def _take(self) -> str:
        line, self.pending, self._returned, self.redrawn = self.pending, "", False, False
        return line


class Screen:
    """Writes lines of workers, never two into one another.

    On a terminal the unfinished line of the chief, its progress bar, stays at the bottom and is redrawn below
    what others write. Elsewhere (a file, a pipe) a progress bar becomes one line when it is done, and one
    every `QUIET_SECONDS` before that.

    Args:
        out: Where standard output of the workers goes.
        err: Where their standard error, and words of the launcher, go.
        width: Returns the columns of the terminal; None where `out` is none.
        clock: Where the time comes from.
    """

    def __init__(self, out: TextIO, err: TextIO, width: Callable[[], int] | None, clock: Clock) -> None:
        self._out = out
        self._err = err
        self._width = width
        self._clock = clock
        self._drawn = ""
        self._live = {False: "", True: ""}
        self._last_line: dict[int, float] = {}

    def lines(self, rank: int, lines: Sequence[str], *, error: bool = False) -> None:
        """Writes whole lines of one worker.

        Args:
            rank: Which worker.
            lines: Without their ends.
            error: Whether they come from its standard error.
        """
        if lines:
            self._last_line[rank] = self._clock()
            if rank == 0 and self._live[error] == self._drawn:
                # What was drawn has just become a line, or the start of one.
                self._draw("")
            self._write(
                [f"[worker {rank}] {line}" if line else f"[worker {rank}]" for line in lines],
                self._err if error else self._out,
            )

    def say(self, lines: Sequence[str]) -> None:
        """Writes lines of the launcher itself to standard error, as they are."""
        self._write(lines, self._err)

    def progress(self, rank: int, pending: str, *, redrawn: bool, error: bool = False) -> None:
        """Shows the unfinished line of a worker, if this is the place and time for it.

        Args:
            rank: Which worker.
            pending: The line so far.
            redrawn: Whether it has been drawn over.
            error: Whether it comes from standard error.
        """
        if self._width is not None:
            between_two_states = redrawn and not pending
            if rank == 0 and not between_two_states:
                self._live[error] = pending
                self._draw(pending or self._live[not error])
        elif redrawn and pending:
            since = self._last_line.setdefault(rank, self._clock())
            if self._clock() - since >= QUIET_SECONDS:
                self.lines(rank, [pending], error=error)

    def _write(self, lines: Sequence[str], stream: TextIO) -> None:
        drawn = self._drawn
        self._draw("")
        stream.write("".join(f"{line}\n" for line in lines))
        stream.flush()
        self._draw(drawn)

    def _draw(self, pending: str) -> None:
        if pending == self._drawn or self._width is None:
            return
        text = _fit(f"[worker 0] {pending}", self._width() - 1) if pending else ""
        self._out.write(f"{_ERASE}{text}")
        self._out.flush()
        self._drawn = pending


def _fit(text: str, columns: int) -> str:
    """Returns the text cut to the columns; colour codes take no room and are all kept."""
    parts, room = [], columns
    end = 0
    for code in _COLOUR.finditer(text):
        parts += [text[end : code.start()][:room], code.group()]
        room = max(0, room - (code.start() - end))
        end = code.end()
    return "".join([*parts, text[end:][:room]])
