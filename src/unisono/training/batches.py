"""Feeds Keras's own training loops with this worker's part of each global batch.

The agreement of each step is made where the loop asks for data: an epoch therefore ends on all workers at the same
step, by the same `StopIteration` that ends it in one process. In training, what a worker states about the next step
travels with the gradients of this one where it can: for that, data is read one batch ahead. Other loops over files
state what they have a few batches before it is their turn, so that nobody waits for the others at each batch.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import keras

from unisono.collectives.base import Begun
from unisono.data.base import Part, Source
from unisono.training.agreement import Statement, StepAgreement, Verdict
from unisono.training.census import Census
from unisono.training.keras_private import DataAdapter
from unisono.training.rider import Rider, Ticket


class LocalBatch(tuple[Any, ...]):
    """This worker's part of a global batch, as the tuple Keras expects, and what was agreed about it.

    A worker without examples gets a stand-in: a sample of the data, to be looked at but not used.
    """

    verdict: Verdict
    data: Any

    @classmethod
    def of(cls, data: Any, verdict: Verdict) -> LocalBatch:
        """Joins data and verdict."""
        batch = cls(data if isinstance(data, tuple) else (data,))
        batch.data, batch.verdict = data, verdict
        return batch


class Feed(DataAdapter):  # type: ignore[misc]
    """A source of the data layer in the form that Keras's loops take in place of `x`.

    Args:
        source: Global batches and this worker's part of them.
        agreement: Agrees on each step.
        activity: What the loop does, e.g. "fit".
        wants: Asked before each step: does this worker want logs after it, does it want to stop before it?
        settle: Waits until the step before has ended; called when the next part of the data is at hand.
        stopped: Called when all workers stop because one of them wanted to.
    """

    def __init__(
        self,
        source: Source,
        agreement: StepAgreement,
        activity: str,
        wants: Callable[[], tuple[bool, bool]] = lambda: (False, False),
        stopped: Callable[[], None] = lambda: None,
        settle: Callable[[], None] = lambda: None,
    ) -> None:
        self._source = source
        self._agreement = agreement
        self._activity = activity
        self._wants = wants
        self._stopped = stopped
        self._settle = settle
        self._step = 0
        self.rider: Rider | None = None
        """Takes statements along with exchanges of gradients; None where each step is agreed on by itself."""
        self.census: Census | None = None
        """Counts examples; None where nobody has asked for it."""
        self.may_stop = False
        """Whether a worker may want to stop before a step, so that nothing can be agreed before the step is near."""

    def __iter__(self) -> Iterator[LocalBatch]:
        # Data sets take their next order where Keras's loop begins to iterate them: with TensorFlow at `iter()`, also
        # for iterations that come to nothing; elsewhere Keras has generators, which begin when they are first asked.
        if keras.backend.backend() == "tensorflow":
            return self._batches(self._source.epoch())
        return self._batches(None)

    def _batches(self, begun: Iterator[Part] | None) -> Iterator[LocalBatch]:
        parts = self._source.epoch() if begun is None else begun
        steps = self._steps_ahead(parts) if self._source.ahead and not self.may_stop else self._steps(parts)
        try:
            for part, verdict in steps:
                if verdict.over or verdict.stop:
                    break
                if self.census is not None:
                    self.census.add(part)
                yield LocalBatch.of(self._data(part), verdict)
            if verdict.stop:
                self._stopped()
            if self.census is not None:
                self.census.close_epoch()
        finally:
            steps.close()  # type: ignore[attr-defined]
            parts.close()  # type: ignore[attr-defined]

    def _steps(self, parts: Iterator[Part]) -> Iterator[tuple[Part | None, Verdict]]:
        """Yields this worker's part of each step and what holds for it, for as long as somebody asks."""
        ticket: Ticket | None = None
        try:
            statement = self._statement(next(parts, None))
            self._settle()
            verdict = self._agreement.step(statement)
            while True:
                part = statement.part
                if self.rider is None or self._agreement.alone or verdict.over or verdict.stop:
                    yield part, verdict
                    statement = self._statement(next(parts, None))
                else:
                    statement = self._statement(next(parts, None))
                    ticket = self.rider.load(statement.vector())
                    yield part, verdict
                verdict = self._next(statement, ticket)
        finally:
            if ticket is not None and self.rider is not None:
                self.rider.drop(ticket)

    def _steps_ahead(self, parts: Iterator[Part]) -> Iterator[tuple[Part | None, Verdict]]:
        """Like `_steps`, but what is agreed on a step has been on its way since some steps before."""
        asked: deque[tuple[Statement, Begun]] = deque()
        for ahead in itertools.count():
            # The first batch waits for no other; all workers have asked equally often when a batch is yielded.
            while len(asked) <= min(ahead, self._source.ahead):
                ended = bool(asked) and asked[-1][0].part is None
                statement = self._statement(None if ended else next(parts, None))
                asked.append((statement, self._agreement.ask(statement)))
            self._settle()
            statement, sums = asked.popleft()
            yield statement.part, self._agreement.heard(sums.result(), statement)

    def _data(self, part: Part | None) -> Any:
        return self._source.sample() if part is None or part.data is None else part.batch

    def _statement(self, part: Part | None) -> Statement:
        want_logs, stop = self._wants()
        statement = Statement(part, f"{self._activity} step {self._step}", want_logs, stop, self._source.apart)
        self._step += 1
        return statement

    def _next(self, statement: Statement, ticket: Ticket | None) -> Verdict:
        if ticket is None or ticket.sums is None:
            # Steps may run behind the caller's back; the exchange is over when the step is.
            self._settle()
        if ticket is None or ticket.sums is None:
            return self._agreement.step(statement)
        return self._agreement.heard(ticket.sums, statement)

    def get_numpy_iterator(self) -> Feed:
        """See `DataAdapter`; the same object serves all backends."""
        return self

    get_tf_dataset = get_jax_iterator = get_torch_dataloader = get_numpy_iterator

    @property
    def num_batches(self) -> int | None:
        """Global batches per epoch."""
        return self._source.num_batches

    @property
    def batch_size(self) -> int | None:
        """Not known to this adapter."""
        return None

    @property
    def has_partial_batch(self) -> bool | None:
        """Not known to this adapter."""
        return None

    @property
    def partial_batch_size(self) -> int | None:
        """Not known to this adapter."""
        return None

    @property
    def builtin_prefetch(self) -> bool:
        """Asked for by Keras before 3.14 on JAX: batches shall reach the step as they are, not as device arrays."""
        return True

    def on_epoch_begin(self) -> None:
        """Passes on to the user's object."""
        self._source.on_epoch_begin()

    def on_epoch_end(self) -> None:
        """Passes on to the user's object."""
        self._source.on_epoch_end()
