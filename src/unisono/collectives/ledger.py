"""What a worker has called on a channel, as one number to compare with the others.

MPI does not tell when workers bring arrays of different sizes to one non-blocking operation: it combines what
overlaps and says nothing. So the workers compare their ledgers: at every call at first, and whenever a call is of
a new kind; then, when a job goes round and round, once in a while.
"""

from __future__ import annotations

_FIRST = 32
_EVERY = 64
_MOST_KINDS = 1000
_PRIME = (1 << 61) - 1
_FACTOR = 1_000_003


class Ledger:
    """The calls of one worker on one channel."""

    def __init__(self) -> None:
        self._count = 0
        self._digest = 0
        self._kinds: dict[tuple[int, ...], int] = {}

    @property
    def digest(self) -> int:
        """A number in [0, 2**61) that depends on all calls so far and their order."""
        return self._digest

    def note(self, call: tuple[int, ...]) -> bool:
        """Writes down a call.

        Args:
            call: Numbers that must be the same on all workers: operation, size, dtype and the like, each 0 or more.

        Returns:
            Whether to compare the ledgers before the call is carried out.
        """
        self._count += 1
        kind = self._kinds.get(call)
        is_new = kind is None
        if kind is None:
            if len(self._kinds) == _MOST_KINDS:
                self._kinds.clear()
            kind = self._kinds[call] = _mix(0, call)
        self._digest = _mix(self._digest, (kind,))
        return is_new or self._count <= _FIRST or self._count % _EVERY == 0


def _mix(digest: int, numbers: tuple[int, ...]) -> int:
    for number in numbers:
        digest = (digest * _FACTOR + number + 1) % _PRIME
    return digest
