"""Which failure was the cause, and its last words."""

from __future__ import annotations

import signal
from collections.abc import Sequence

from unisono.errors import CollectiveTimeoutError, StartupError, WorkerFailedError, WorkerLostError
from unisono.launch.policy import Ending

_TRACEBACK = "Traceback (most recent call last):"
_LINKS = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)
_CONSEQUENCES = tuple(
    f"{error.__module__}.{error.__qualname__}"
    for error in (WorkerLostError, WorkerFailedError, CollectiveTimeoutError, StartupError)
)
"""Errors that only say that another worker is in trouble."""

TAIL = 20
"""Lines shown of a worker that died without a traceback."""


def cause(failures: Sequence[Ending], words: Sequence[Sequence[str]]) -> Ending:
    """Returns the failure that brought the others about.

    A worker that raised can take longer to end than one that was told so: its interpreter must still take down
    the framework. So the first to end is not always the first to fail, and what they said decides.

    Args:
        failures: In the order in which the workers ended; at least one.
        words: Lines of standard error of each worker, by rank.

    Returns:
        The first that said nothing of another worker's trouble; if there is none, the first.
    """
    for failure in failures:
        if not any(line.startswith(_CONSEQUENCES) for line in words[failure.rank]):
            return failure
    return failures[0]


def last_words(lines: Sequence[str]) -> list[str]:
    """Returns the last traceback with those it was raised from, or the last lines if there is none.

    Args:
        lines: What a worker wrote to standard error, in order.
    """
    starts = [i for i, line in enumerate(lines) if line.rstrip() == _TRACEBACK]
    if not starts:
        return list(lines[-TAIL:])
    first = starts.pop()
    while starts and any(line.strip() in _LINKS for line in lines[max(0, first - 2) : first]):
        first = starts.pop()
    return list(lines[first:])


def story(failure: Ending, lines: Sequence[str], start: float) -> list[str]:
    """Returns what the user reads last: who failed first, how, and what it said.

    Args:
        failure: The cause.
        lines: What that worker wrote to standard error.
        start: When the job started, in seconds on the same clock.
    """
    said = last_words(lines)
    head = f"[unisono] {failure}, {failure.at - start:.1f} s after the start"
    if failure.code == -signal.SIGKILL:
        head += ". Nobody here killed it: the system may have run out of memory (see `dmesg`)"
    return [f"{head}; it wrote:", *said] if said else [f"{head}; it wrote nothing to standard error."]
