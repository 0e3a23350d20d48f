"""Whole lines, progress bars and the live line of the chief."""

from __future__ import annotations

import io

import pytest

from unisono.launch.output import LONGEST_LINE, QUIET_SECONDS, Assembler, Screen, _fit

BAR = b"\b" * 9 + b"\r"


def test_lines_arrive_in_pieces() -> None:
    stream = Assembler()
    assert stream.feed(b"one\ntw") == ["one"]
    assert stream.pending == "tw"
    assert stream.feed(b"o\n\nthree") == ["two", ""]
    assert stream.feed(b"", final=True) == ["three"]


def test_characters_arrive_in_pieces() -> None:
    stream = Assembler()
    assert stream.feed("aä".encode()[:2]) == []
    assert stream.feed("aä\n".encode()[2:]) == ["aä"]
    assert stream.feed(b"\xff\n") == ["\ufffd"]


def test_of_a_progress_bar_only_the_last_state_becomes_a_line() -> None:
    stream = Assembler()
    assert stream.feed(b"1/3 [=  ]") == []
    assert not stream.redrawn
    assert stream.feed(BAR + b"2/3 [== ]") == []
    assert (stream.pending, stream.redrawn) == ("2/3 [== ]", True)
    assert stream.feed(BAR + b"3/3 [===]\nnext") == ["3/3 [===]"]
    assert (stream.pending, stream.redrawn) == ("next", False)


@pytest.mark.parametrize("text", [b"a\r\nb\r\n", b"a\nb\n"])
def test_line_ends_of_windows(text: bytes) -> None:
    assert Assembler().feed(text) == ["a", "b"]


def test_the_same_whatever_the_pieces() -> None:
    text = b"a\r\n1/3 [=  ]" + BAR + "2/3 [━━ ]".encode() + BAR + b"3/3 [===]\n\x1b[1mb\x1b[0m\nend"
    for size in range(1, len(text)):
        stream = Assembler()
        lines = [line for i in range(0, len(text), size) for line in stream.feed(text[i : i + size])]
        assert lines + stream.feed(b"", final=True) == ["a", "3/3 [===]", "\x1b[1mb\x1b[0m", "end"]


def test_a_line_without_an_end_is_shown_all_the_same() -> None:
    stream = Assembler()
    lines = stream.feed(b"x" * (LONGEST_LINE + 1))
    assert [len(line) for line in lines] == [LONGEST_LINE + 1]
    assert stream.pending == ""


class Desk:
    """A screen whose output and clock a test can see."""

    def __init__(self, columns: int | None) -> None:
        self.out, self.err, self.now = io.StringIO(), io.StringIO(), 0.0
        width = None if columns is None else lambda: columns
        self.screen = Screen(self.out, self.err, width, lambda: self.now)

    def taken(self) -> str:
        text = self.out.getvalue()
        self.out.seek(0)
        self.out.truncate()
        return text


def test_prefix_and_streams() -> None:
    desk = Desk(None)
    desk.screen.lines(1, ["a", "", "b "])
    desk.screen.lines(0, ["oops"], error=True)
    desk.screen.say(["[unisono] bye"])
    assert desk.out.getvalue() == "[worker 1] a\n[worker 1]\n[worker 1] b \n"
    assert desk.err.getvalue() == "[worker 0] oops\n[unisono] bye\n"


def test_in_a_file_a_long_progress_bar_is_shown_now_and_then() -> None:
    desk = Desk(None)
    for second in range(int(2 * QUIET_SECONDS) + 1):
        desk.now = float(second)
        desk.screen.progress(0, f"{second}/99", redrawn=True)
        desk.screen.progress(1, "no bar", redrawn=False)
    assert desk.out.getvalue() == f"[worker 0] {QUIET_SECONDS:.0f}/99\n[worker 0] {2 * QUIET_SECONDS:.0f}/99\n"


def test_on_a_terminal_the_chiefs_bar_stays_below_the_lines_of_others() -> None:
    desk = Desk(80)
    desk.screen.progress(0, "1/3", redrawn=False)
    assert desk.taken() == "\r\x1b[K[worker 0] 1/3"
    desk.screen.progress(1, "9/9", redrawn=True)
    desk.screen.progress(0, "1/3", redrawn=True)
    assert desk.taken() == ""
    desk.screen.lines(1, ["hello"])
    assert desk.taken() == "\r\x1b[K[worker 1] hello\n\r\x1b[K[worker 0] 1/3"
    desk.screen.lines(1, ["oops"], error=True)
    assert desk.taken() == "\r\x1b[K\r\x1b[K[worker 0] 1/3"
    assert desk.err.getvalue() == "[worker 1] oops\n"


def test_on_a_terminal_a_bar_does_not_flicker_between_two_states() -> None:
    desk = Desk(80)
    stream = Assembler()
    for piece in (b"1/3", b"\b\b\b\r", b"2/3"):
        stream.feed(piece)
        desk.screen.progress(0, stream.pending, redrawn=stream.redrawn)
    assert desk.taken() == "\r\x1b[K[worker 0] 1/3\r\x1b[K[worker 0] 2/3"


def test_on_a_terminal_a_finished_bar_becomes_a_line() -> None:
    desk = Desk(80)
    desk.screen.progress(0, "2/3", redrawn=True)
    desk.taken()
    desk.screen.lines(0, ["3/3"])
    desk.screen.progress(0, "", redrawn=False)
    assert desk.taken() == "\r\x1b[K[worker 0] 3/3\n"


def test_on_a_terminal_a_bar_may_come_on_standard_error() -> None:
    desk = Desk(80)
    desk.screen.progress(0, "50%", redrawn=True, error=True)
    desk.screen.lines(0, ["note"])
    desk.screen.progress(0, "", redrawn=False)
    assert desk.taken() == "\r\x1b[K[worker 0] 50%\r\x1b[K[worker 0] note\n\r\x1b[K[worker 0] 50%"


def test_a_bar_never_wraps() -> None:
    desk = Desk(20)
    desk.screen.progress(0, "0123456789ABCDEF", redrawn=True)
    assert desk.taken() == "\r\x1b[K[worker 0] 01234567"


def test_colours_take_no_room() -> None:
    assert _fit("\x1b[1mabc\x1b[0mdef", 4) == "\x1b[1mabc\x1b[0md"
    assert _fit("abc\x1b[32mdef\x1b[0m", 2) == "ab\x1b[32m\x1b[0m"
    assert _fit("abc", 10) == "abc"
