"""What ends all channels of a worker: the first failure, said again to every later call."""

from __future__ import annotations

import copy

from unisono.errors import UnisonoError


class Fate:
    """Shared by all channels of one worker."""

    def __init__(self) -> None:
        self._error: UnisonoError | None = None
        self.is_over = False
        """Whether no operation is possible any more."""

    def end(self, error: UnisonoError) -> UnisonoError:
        """Ends all channels, unless they have ended.

        Args:
            error: Why.

        Returns:
            The error to raise now: that of the first end.
        """
        if self._error is None:
            self._error = error
            self.is_over = True
            return error
        return self._again(self._error)

    def raise_if_over(self) -> None:
        """Raises the error of the first end, if there was one."""
        if self._error is not None:
            raise self._again(self._error)

    def _again(self, error: UnisonoError) -> UnisonoError:
        # A copy, for a traceback grows each time one object is raised, in whichever thread.
        return copy.copy(error)
