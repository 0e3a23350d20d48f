"""What an engine asks while it waits: may I go on waiting?"""

from __future__ import annotations

from unisono.control.client import Client
from unisono.control.messages import Broken, Late, Wait
from unisono.control.progress import Progress
from unisono.control.verdicts import broken, ended_early, late_line, not_connected, timed_out, where
from unisono.errors import UnisonoError
from unisono.log import logger

_TELL_SECONDS = 10.0
_LAST_ANSWER_SECONDS = 3.0


class ControlWatch:
    """Ends waits for workers that are gone or too late, and says in the log for whom the others wait.

    Implements `unisono.collectives.base.Watch`. Before a client is set (under an MPI launcher MPI starts first),
    only the timeout counts.

    Args:
        rank: This worker.
        progress: Where its state is written down.
        timeout_seconds: Longest wait in one operation; may be changed between operations.
    """

    def __init__(self, rank: int, progress: Progress, timeout_seconds: float) -> None:
        self._rank = rank
        self._progress = progress
        self.timeout_seconds = timeout_seconds
        self._told: dict[str, tuple[tuple[object, ...], float]] = {}
        self.client: Client | None = None

    def arrived(self, channel: str, count: int) -> None:
        """See `Watch`."""
        self._progress.arrived(channel, count)

    def returned(self, channel: str, count: int) -> None:
        """See `Watch`."""
        self._progress.returned(channel, count)

    def waiting(self, operation: str, seconds: float) -> None:
        """See `Watch`."""
        wait = self._progress.waiting(operation, seconds)
        client = self.client
        late = None
        if client is not None:
            if client.broken is not None:
                raise self._broken(client.broken, operation)
            late = client.late(wait.channel, wait.count)
        if late is not None:
            if client is not None and not client.ended:
                self._raise_if_left(late, operation)
            if seconds >= min(_TELL_SECONDS, self.timeout_seconds / 2):
                self._tell(late, wait)
        if seconds >= self.timeout_seconds:
            raise self._timed_out(wait, late)

    def _broken(self, message: Broken, operation: str) -> UnisonoError:
        return broken(message, f"waiting in {operation}" + where(self._progress.step, self._progress.phase))

    def _raise_if_left(self, late: Late, operation: str) -> None:
        for worker in late.workers:
            if worker.left:
                raise ended_early(worker, self._rank, operation, self._progress.step)

    def _tell(self, late: Late, wait: Wait) -> None:
        # Another line only if others are late than was said, and not more often than the first.
        who = (wait.channel, wait.count, *(worker.rank for worker in late.workers))
        told, at = self._told.get(wait.channel, ((), 0.0))
        if who != told and (who[:2] != told[:2] or wait.seconds - at >= _TELL_SECONDS):
            self._told[wait.channel] = (who, wait.seconds)
            logger.warning(late_line(late, wait.operation, wait.seconds))

    def _timed_out(self, wait: Wait, late: Late | None) -> UnisonoError:
        if wait.count == 0:
            return not_connected(wait.operation, wait.seconds)
        client = self.client
        if late is None and client is not None:
            client.wait_for_news(
                _LAST_ANSWER_SECONDS,
                lambda: client.broken is not None or client.late(wait.channel, wait.count) is not None,
            )
            if client.broken is not None:
                return self._broken(client.broken, wait.operation)
            late = client.late(wait.channel, wait.count)
        return timed_out(late, wait.operation, wait.seconds, self._progress.step, self._progress.phase)
