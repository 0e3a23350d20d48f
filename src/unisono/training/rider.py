"""A few numbers that travel along with an exchange of gradients, so that they need no exchange of their own."""

from __future__ import annotations

import numpy as np

_CARRIERS = (np.dtype(np.float32), np.dtype(np.float64))


class Rider:
    """The place of one ticket: it is taken along by the next exchange that can carry it."""

    def __init__(self) -> None:
        self._waiting: Ticket | None = None

    def load(self, numbers: np.ndarray) -> Ticket:
        """Lets numbers wait for the next exchange; all workers must do so at the same point.

        Args:
            numbers: Whole numbers, int64, whose sums over the workers are below 2**24.

        Returns:
            Where their sums will be.
        """
        self._waiting = Ticket(numbers)
        return self._waiting

    def board(self, dtype: np.dtype) -> Ticket | None:
        """Returns the ticket that goes with an exchange of arrays of this dtype, once."""
        ticket = self._waiting
        if ticket is None or dtype not in _CARRIERS:
            return None
        self._waiting = None
        return ticket

    def drop(self, ticket: Ticket) -> None:
        """Leaves a ticket behind that no exchange has taken."""
        if self._waiting is ticket:
            self._waiting = None


class Ticket:
    """Numbers on their way.

    Args:
        numbers: Those of this worker.
    """

    def __init__(self, numbers: np.ndarray) -> None:
        self.numbers = numbers
        self.sums: np.ndarray | None = None
        """Sums over all workers, int64; None until an exchange has carried them."""
