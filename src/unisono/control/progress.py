"""What a worker is doing, written by the threads that do it and read by the heartbeat."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from unisono.clock import Clock, monotonic
from unisono.control.messages import Wait

_STALE_SECONDS = 1.0
_WORTH_TELLING_SECONDS = 0.5


@dataclass
class Progress:
    """The latest of everything; single assignments only, so that no lock is needed.

    Args:
        clock: Where the time comes from.
    """

    clock: Clock = monotonic
    step: int = -1
    phase: str = ""
    counts: dict[str, int] = field(default_factory=dict)
    _current: dict[int, tuple[str, int]] = field(default_factory=dict)
    _waits: dict[str, tuple[Wait, float]] = field(default_factory=dict)

    def arrived(self, channel: str, count: int) -> None:
        """The calling thread enters the `count`-th operation of `channel`."""
        self.counts[channel] = count
        self._current[threading.get_ident()] = (channel, count)

    def returned(self, channel: str, count: int) -> None:
        """The calling thread turns to an operation again that it entered before others."""
        self._current[threading.get_ident()] = (channel, count)

    def waiting(self, operation: str, seconds: float) -> Wait:
        """The calling thread waits in the operation to which it turned last."""
        channel, count = self._current.get(threading.get_ident(), (operation, 0))
        wait = Wait(channel, count, operation, seconds)
        self._waits[channel] = (wait, self.clock())
        return wait

    def waits(self) -> tuple[Wait, ...]:
        """Returns where threads wait now, and have for long enough to be told."""
        fresh, current = self.clock() - _STALE_SECONDS, set(self._current.values())
        return tuple(
            wait
            for wait, at in list(self._waits.values())
            if at >= fresh and wait.seconds >= _WORTH_TELLING_SECONDS and (wait.channel, wait.count) in current
        )
