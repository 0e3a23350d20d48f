"""Which failure was the cause, and what it said last."""

from __future__ import annotations

from unisono.launch.policy import Ending
from unisono.launch.report import TAIL, cause, last_words, story

BOOM = ["Traceback (most recent call last):", '  File "train.py", line 3, in <module>', "ValueError: boom"]
TOLD = [
    "Traceback (most recent call last):",
    "  ...",
    "unisono.errors.WorkerFailedError: worker 1 (127.0.0.1:5001) raised ValueError: boom",
    *(f"  {line}" for line in BOOM),
    "Hint: see the error of worker 1.",
]


def ending(rank: int, code: int = 1, at: float = 0.0) -> Ending:
    return Ending(rank, code, at)


def test_the_first_to_fail_is_the_cause() -> None:
    assert cause([ending(0), ending(1)], [BOOM, ["other"]]).rank == 0


def test_a_worker_that_was_only_told_is_not_the_cause_even_if_it_ended_first() -> None:
    assert cause([ending(0), ending(1)], [TOLD, BOOM]).rank == 1
    lost = ["unisono.errors.WorkerLostError: worker 1 (h:1) died"]
    assert cause([ending(0), ending(2), ending(1, -9)], [lost, [], lost]).rank == 1


def test_if_all_were_told_the_first_stands_for_them() -> None:
    assert cause([ending(1), ending(0)], [TOLD, TOLD]).rank == 1


def test_last_words_are_the_last_traceback() -> None:
    assert last_words(["warning", *BOOM, "later warning"]) == [*BOOM, "later warning"]
    assert last_words([*BOOM, "went on", *BOOM[:2], "KeyError: 1"]) == [*BOOM[:2], "KeyError: 1"]


def test_what_an_exception_was_raised_from_belongs_to_it() -> None:
    for link in (
        "During handling of the above exception, another exception occurred:",
        "The above exception was the direct cause of the following exception:",
    ):
        chain = [*BOOM, "", link, "", *BOOM, "", link, "", *BOOM]
        assert last_words(["noise", *BOOM, "noise", *chain]) == chain


def test_a_repeated_traceback_of_another_worker_does_not_hide_the_own_one() -> None:
    assert last_words(TOLD) == TOLD


def test_without_a_traceback_the_last_lines() -> None:
    lines = [str(i) for i in range(100)]
    assert last_words(lines) == lines[-TAIL:]


def test_story() -> None:
    assert story(ending(1, 3, at=12.25), BOOM, 10.0) == [
        "[unisono] worker 1 failed with exit code 3, 2.2 s after the start; it wrote:",
        *BOOM,
    ]
    (line,) = story(ending(1, -11), [], 0.0)
    assert "signal 11 (SIGSEGV)" in line
    assert "nothing to standard error" in line
    assert "memory" in story(ending(0, -9), [], 0.0)[0]
