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
        self._kinds: set[int] = set()

    @property
    def digest(self) -> int:
        """A number in [0, 2**61) that depends on all calls so far and their order."""
        return self._digest

    def note(self, call: int) -> bool:
        """Writes down a call.

        Args:
            call: A number, 0 or more, that is the same for the same call on all workers; see `number`.

        Returns:
            Whether to compare the ledgers before the call is carried out.
        """
        self._count = count = self._count + 1
        self._digest = (self._digest * _FACTOR + call + 1) % _PRIME
        if call in self._kinds:
            return count <= _FIRST or count % _EVERY == 0
        if len(self._kinds) == _MOST_KINDS:
            self._kinds.clear()
        self._kinds.add(call)
        return True


def number(operation: int, size: int = 0) -> int:
    """Returns the number of a call.

    Args:
        operation: What is called and on which dtype or with which root, in [0, 2**20).
        size: Number of elements or bytes that must be the same on all workers.
    """
    return size << 20 | operation
