"""When workers are stopped: events in, instructions out; no processes and no clock in here.

    running --a worker fails--> lingering --linger over--> stopping --grace over--> killed
       `------Ctrl-C, SIGTERM------------------------------^

A worker that loses a peer ends by itself with an error that names it; `linger` is the time for that. One that ends
well although others run on is only spoken of: they may wait for it, when its script has made no strategy.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass, field
from enum import Enum

EARLY_SECONDS = 5.0
"""Seconds after which a worker that ended well, while others run on, is spoken of."""


class Phase(Enum):
    """How far the end of the job has come."""

    RUNNING = "running"
    LINGERING = "lingering"
    STOPPING = "stopping"
    KILLED = "killed"


@dataclass(frozen=True)
class Send:
    """Instruction: send a signal.

    Args:
        signum: Which.
        ranks: To which workers; with SIGKILL also to all processes they have started.
    """

    signum: int
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class Say:
    """Instruction: tell the user."""

    text: str


Instruction = Send | Say


@dataclass(frozen=True)
class Ending:
    """How a worker ended.

    Args:
        rank: Which worker.
        code: Its exit code, or minus the number of the signal that killed it.
        at: When, in seconds on the clock.
    """

    rank: int
    code: int
    at: float

    @property
    def exit_code(self) -> int:
        """The code as a shell would give it: 128 + number for a signal."""
        return self.code if self.code >= 0 else 128 - self.code

    def __str__(self) -> str:
        if self.code >= 0:
            return f"worker {self.rank} failed with exit code {self.code}"
        return f"worker {self.rank} was killed by {signal_name(-self.code)}"


@dataclass
class Policy:
    """The state of a job and what to do next.

    Args:
        size: Number of workers.
        linger: Seconds that the others get to end by themselves after a failure.
        grace: Seconds between asking a worker to stop and killing it.
        start: When the workers were started, in seconds on the clock.
    """

    size: int
    linger: float
    grace: float
    start: float = 0.0
    phase: Phase = Phase.RUNNING
    until: float | None = None
    interrupt: int | None = None
    failures: list[Ending] = field(default_factory=list)
    running: set[int] = field(init=False)
    _early: list[Ending] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.running = set(range(self.size))

    @property
    def over(self) -> bool:
        """Whether all workers have ended."""
        return not self.running

    @property
    def wake_at(self) -> float | None:
        """When `tick` has something to do, in seconds on the clock; None if only events count."""
        if self.phase is Phase.RUNNING and self._early:
            return self._early[0].at + EARLY_SECONDS
        return self.until

    def ended(self, rank: int, code: int, now: float) -> list[Instruction]:
        """A worker ended.

        Args:
            rank: Which.
            code: Its exit code, or minus a signal number.
            now: Seconds on the clock.
        """
        self.running.discard(rank)
        asked_to = self.phase in (Phase.STOPPING, Phase.KILLED)
        if asked_to:
            return []
        ending = Ending(rank, code, now)
        if code == 0:
            self._early.append(ending)
            return []
        self.failures.append(ending)
        if self.phase is not Phase.RUNNING or self.over:
            return []
        self.phase, self.until = Phase.LINGERING, now + self.linger
        return [Say(f"{ending}; {self._others()}.")]

    def interrupted(self, signum: int, now: float) -> list[Instruction]:
        """The launcher was told to end: politely the first time, at once the second.

        Args:
            signum: The signal it got; SIGPIPE when nobody reads its output any more.
            now: Seconds on the clock.
        """
        if self.over:
            return []
        if self.phase in (Phase.STOPPING, Phase.KILLED):
            return self._kill()
        self.interrupt = signum
        polite = signal.SIGINT if signum == signal.SIGINT else signal.SIGTERM
        return [Say(f"{signal_name(signum)}: stopping all workers."), *self._stop(polite, now)]

    def passed_on(self, signum: int) -> list[Instruction]:
        """The launcher got a signal that is meant for the workers, such as Slurm's word that the time is nearly over.

        Args:
            signum: Which.
        """
        return [Send(signum, tuple(sorted(self.running)))] if self.running else []

    def tick(self, now: float) -> list[Instruction]:
        """Time passed."""
        if self.over or self.wake_at is None or now < self.wake_at:
            return []
        if self.phase is Phase.RUNNING:
            return [self._ended_early(self._early.pop(0))]
        if self.phase is Phase.LINGERING:
            return [Say(f"stopping {self._names()}."), *self._stop(signal.SIGTERM, now)]
        return [Say(f"{self._names()} did not stop within {self.grace:g} s: killed."), *self._kill()]

    def _stop(self, signum: int, now: float) -> list[Instruction]:
        self.phase, self.until = Phase.STOPPING, now + self.grace
        return [Send(signum, tuple(sorted(self.running)))]

    def _kill(self) -> list[Instruction]:
        self.phase, self.until = Phase.KILLED, None
        return [Send(signal.SIGKILL, tuple(sorted(self.running)))]

    def _ended_early(self, ending: Ending) -> Say:
        verb = "runs" if len(self.running) == 1 else "run"
        seconds = ending.at - self.start
        return Say(f"worker {ending.rank} ended with exit code 0 after {seconds:.1f} s; {self._names()} still {verb}.")

    def _names(self) -> str:
        return f"worker{'s' if len(self.running) > 1 else ''} {', '.join(map(str, sorted(self.running)))}"

    def _others(self) -> str:
        verb, selves = ("have", "themselves") if len(self.running) > 1 else ("has", "itself")
        return f"{self._names()} {verb} {self.linger:g} s to end by {selves}"


def signal_name(signum: int) -> str:
    """Returns a signal's number with its name, e.g. "signal 9 (SIGKILL)"."""
    try:
        return f"signal {signum} ({signal.Signals(signum).name})"
    except ValueError:
        return f"signal {signum}"
