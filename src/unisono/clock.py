"""Time as a value that can be injected, so that tests of deadlines never sleep."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

Clock = Callable[[], float]
"""Returns seconds from an arbitrary origin; never goes back."""

monotonic: Clock = time.monotonic

LONGEST_SECONDS = 2_000_000.0
"""The longest wait that can be asked for, 23 days: the system counts in milliseconds, in 31 bits."""


def is_duration(seconds: float) -> bool:
    """Returns whether one can wait for so long: more than 0 seconds, and at most `LONGEST_SECONDS`."""
    return 0 < seconds <= LONGEST_SECONDS


@dataclass(frozen=True)
class Deadline:
    """A moment by which something must have happened.

    Args:
        seconds: Seconds allowed, from `start`.
        start: Value of `clock` when the wait began.
        clock: Where the time comes from.
    """

    seconds: float
    start: float
    clock: Clock = monotonic

    @classmethod
    def after(cls, seconds: float, clock: Clock = monotonic) -> Deadline:
        """Returns a deadline `seconds` from now."""
        return cls(seconds, clock(), clock)

    @property
    def elapsed(self) -> float:
        """Seconds since the wait began."""
        return self.clock() - self.start

    @property
    def left(self) -> float:
        """Seconds left, never below 0."""
        return max(0.0, self.seconds - self.elapsed)

    @property
    def passed(self) -> bool:
        """Whether no time is left."""
        return self.elapsed >= self.seconds
