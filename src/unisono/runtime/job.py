"""The running job, and its end: together if all scripts end, without waiting for anyone after a failure.

runtime.data.all_reduce(array)            # gradients, from the framework's threads
runtime.agreement.all_reduce(small)       # what the workers agree on, from the main thread
runtime.report(step, "gradient exchange")
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import weakref
from dataclasses import dataclass
from typing import Any

from unisono.cluster.spec import Cluster
from unisono.collectives.base import Collectives
from unisono.control import children, verdicts
from unisono.control.client import Client
from unisono.control.coordinator import Coordinator
from unisono.control.messages import Broken
from unisono.control.progress import Progress
from unisono.errors import UnisonoError, WorkerFailedError, WorkerLostError
from unisono.log import logger

FAIL_SECONDS = 2.0
"""How long the others are told of a failure."""
_CLOSE_SECONDS = 2.0


@dataclass
class Line:
    """What ties this worker to the others beside the engine."""

    client: Client
    progress: Progress
    coordinator: Coordinator | None


class Runtime:
    """The running job as one worker sees it.

    Args:
        cluster: Who is in the job.
        data: Channel for gradients; may be called from threads of the framework.
        agreement: Independent channel for small agreements on the host, from the main thread.
        line: Control plane; None for one worker.
        timeout_seconds: How long a worker may be late, in a step and at the end.
    """

    def __init__(
        self,
        cluster: Cluster,
        data: Collectives,
        agreement: Collectives,
        line: Line | None,
        timeout_seconds: float,
    ) -> None:
        self.cluster = cluster
        self.rank = data.rank
        self.size = data.size
        self.data = data
        self.agreement = agreement
        self._line = line
        self.timeout_seconds = timeout_seconds
        self.sums: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        """Tensors that are sums over the workers already, by their `id`, whichever strategy of the job made them."""
        self.pid = os.getpid()
        self._ending = threading.Lock()
        self._failed = False
        self._closed = False
        if line is not None:
            atexit.register(self._at_exit)
            line.client.on_broken(self._stop_working)

    def report(self, step: int, phase: str) -> None:
        """Notes what this worker is doing; told to the others with the next heartbeat.

        Args:
            step: Step, counted from 0.
            phase: A word or two, e.g. "gradient exchange".
        """
        if self._line is not None:
            self._line.progress.step = step
            self._line.progress.phase = phase

    @property
    def failure(self) -> UnisonoError | None:
        """The first failure known about another worker."""
        broken = self._line.client.broken if self._line is not None else None
        return verdicts.broken(broken) if broken is not None else None

    @property
    def closed(self) -> bool:
        """Whether the job is over for this worker."""
        return self._closed or self._failed

    def fail(self, error: BaseException) -> None:
        """Tells all others that this worker gives up, and why; never raises, takes a few seconds at most.

        Args:
            error: What it raised; its type and message are repeated on the other workers.
        """
        with self._ending:
            if self._failed or self._closed or self._line is None or os.getpid() != self.pid:
                return
            self._failed = True
        children.unmark()
        self._tell(self._line, error)

    def close(self) -> None:
        """Ends the job in good order; after a failure, without waiting for anyone."""
        with self._ending:
            # A child forked from this process has inherited the object, not the job.
            if self._closed or os.getpid() != self.pid:
                return
            self._closed = True
        if self._line is None:
            self.agreement.close()
            self.data.close()
            return
        atexit.unregister(self._at_exit)
        children.unmark()
        try:
            self._part(self._line)
        except BaseException as error:
            # The others wait for this worker in the end of the engine.
            self._tell(self._line, error)
            raise
        finally:
            if self._line.coordinator is not None:
                self._line.coordinator.release()

    def _part(self, line: Line) -> None:
        client = line.client
        if not self._failed:
            together = client.leave(self.timeout_seconds)
            if not together:
                self._abandon(self.failure or WorkerLostError("The job is over for this worker."))
            if client.broken is not None:
                logger.warning("this worker's script has ended; meanwhile: %s", self.failure)
        try:
            self.agreement.close()
            self.data.close()
        except UnisonoError as error:
            logger.warning("the job ended well, but the engine could not be closed in good order: %s", error)
        client.close(_CLOSE_SECONDS)
        if line.coordinator is not None and not self._failed and client.broken is None:
            line.coordinator.wait()

    def _tell(self, line: Line, error: BaseException) -> None:
        self._abandon(error)
        progress = line.progress
        line.client.fail(verdicts.failed(error, self.rank, progress.step, progress.phase), FAIL_SECONDS)

    def disown(self) -> None:
        """Refuses all operations from now on; for a process forked from this one, which would wait for ever."""
        self.data.abandon(children.forked(self.rank, self.pid))

    def _stop_working(self, message: Broken) -> None:
        """Ends work that could go on for a while without the one that is lost; called from the client's thread."""
        assert self._line is not None
        progress = self._line.progress
        self._abandon(verdicts.broken(message, verdicts.where(progress.step, progress.phase).strip()))

    def _abandon(self, error: BaseException) -> None:
        if not isinstance(error, UnisonoError):
            text = f"This worker failed with {type(error).__name__}: {error}"
            error = WorkerFailedError(text, rank=self.rank)
        self.agreement.abandon(error)
        self.data.abandon(error)

    def _at_exit(self) -> None:
        # What the script did not catch. In an interactive session it may be long over.
        error = getattr(sys, "last_value", None)
        if isinstance(error, BaseException) and not hasattr(sys, "ps1"):
            self.fail(error)
        self.close()
