"""What coordinator and workers say to each other: frozen values, each one line on the wire."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Hello:
    """First line of a worker.

    Args:
        rank: Who it is.
        size: Number of workers it expects.
        address: Its own "host:port" in its cluster description, "" under an MPI launcher.
        host: Name of its machine.
        pid: Its process.
        place: Equal for workers that can share memory.
        fingerprint: Digest of its cluster description.
        generation: How often the job has been restarted.
        versions: What must be equal on all workers, e.g. {"keras": "3.15.1"}; unknown ones are left out.
    """

    rank: int
    size: int
    address: str
    host: str
    pid: int
    place: str
    fingerprint: str
    generation: int = 0
    versions: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class OpenPmi:
    """First line of a connection that goes on with the PMI-1 protocol of MPI.

    Args:
        rank: Whose it is.
        job: Secret of the job, from `Ready`.
    """

    rank: int
    job: str


@dataclass(frozen=True)
class Wait:
    """An operation in which a worker waits.

    Args:
        channel: Name of the channel.
        count: Which operation of that channel, counted from 1.
        operation: Its name, for messages.
        seconds: How long it has waited.
    """

    channel: str
    count: int
    operation: str
    seconds: float


@dataclass(frozen=True)
class Beat:
    """Heartbeat of a worker.

    Args:
        counts: Operations it has entered, by channel.
        step: Its last reported step; -1 before the first.
        phase: Its last reported phase.
        waits: Where it waits now.
        stack: Where its main thread is, if the coordinator has asked.
    """

    counts: dict[str, int]
    step: int
    phase: str
    waits: tuple[Wait, ...] = ()
    stack: str = ""


@dataclass(frozen=True)
class Failed:
    """A worker gives up, and why.

    Args:
        kind: "error" when it raised, "timeout" when it waited too long for worker `about`, "left" when that
            worker is gone.
        error_type: Name of the exception's class.
        message: What the exception says.
        trace: Last lines of the traceback.
        about: Rank that the message is about.
        step: Step in which it happened, -1 if unknown.
        phase: Phase in which it happened.
    """

    kind: str
    error_type: str
    message: str
    trace: str
    about: int
    step: int
    phase: str


@dataclass(frozen=True)
class Leaving:
    """A worker's script has ended in good order.

    Args:
        counts: Operations it has entered, by channel; there will be no more.
    """

    counts: dict[str, int]


@dataclass(frozen=True)
class Bye:
    """The connection ends now, and that is no death."""


@dataclass(frozen=True)
class Accepted:
    """The coordinator knows this worker and waits for the others."""


@dataclass(frozen=True)
class StillMissing:
    """Progress of the meeting.

    Args:
        workers: Names of the first few workers that are missing.
        more: How many more are missing.
        seconds: How long the meeting has lasted.
    """

    workers: tuple[str, ...]
    more: int
    seconds: float


@dataclass(frozen=True)
class Ready:
    """All workers are present and agree.

    Args:
        job: Secret of this job; also makes its names in MPI unique.
    """

    job: str


@dataclass(frozen=True)
class Refused:
    """The worker cannot take part.

    Args:
        reason: "version", "cluster", "taken", or "busy" when trying again may help.
        message: Why, for the user.
        remedy: What to do.
        rank: Rank of the worker the message is about.
    """

    reason: str
    message: str
    remedy: str
    rank: int


@dataclass(frozen=True)
class Missing:
    """A worker that did not come.

    Args:
        rank: Which.
        name: Its name with host and port.
        address: Its "host:port", "" under an MPI launcher.
        cause: What the coordinator knows about it.
    """

    rank: int
    name: str
    address: str
    cause: str


@dataclass(frozen=True)
class NotMet:
    """The deadline passed before all were present."""

    workers: tuple[Missing, ...]
    more: int
    seconds: float


@dataclass(frozen=True)
class LateWorker:
    """A worker that others wait for.

    Args:
        rank: Which.
        name: Its name with host and port.
        step: Its last reported step, -1 before the first.
        phase: Its last reported phase.
        since: Seconds since it last reported something new.
        silent: Seconds since it was last heard of.
        left: Whether its script has ended.
        waits_in: Operation in which it waits itself, or "".
        stack: Where its main thread was a moment ago, as far as it has told; only of the first that is named.
    """

    rank: int
    name: str
    step: int
    phase: str
    since: float
    silent: float
    left: bool
    waits_in: str
    stack: str = ""


@dataclass(frozen=True)
class Late:
    """Who has not arrived at one operation.

    Args:
        channel: Channel of the operation.
        count: Which operation.
        workers: The first few that are late; none if all have arrived.
        more: How many more are late.
    """

    channel: str
    count: int
    workers: tuple[LateWorker, ...]
    more: int


@dataclass(frozen=True)
class Pulse:
    """Answer to a heartbeat.

    Args:
        late: One for each of its waits.
        show_stack: Whether others have been waiting for this worker: its heartbeats shall say where it is.
    """

    late: tuple[Late, ...] = ()
    show_stack: bool = False


@dataclass(frozen=True)
class Broken:
    """The job cannot go on; the first cause that the coordinator learnt of.

    Args:
        kind: "lost" (connection ended), "silent", "error" (it raised), "timeout" (it did not arrive), "left"
            (its script ended early), "coordinator" (the coordinator itself).
        rank: Worker it is about.
        name: Its name with host and port.
        step: Its last step, -1 if unknown.
        phase: Its last phase.
        error_type: Class of the exception, for "error".
        message: What it said, or how it was noticed.
        trace: Last lines of its traceback.
    """

    kind: str
    rank: int
    name: str
    step: int
    phase: str
    error_type: str
    message: str
    trace: str


@dataclass(frozen=True)
class Quiet:
    """A worker has not been heard of for a while, or is heard again (0 seconds)."""

    name: str
    seconds: float


@dataclass(frozen=True)
class Ended:
    """Answer to `Leaving` when nobody is waited for any more.

    Args:
        together: Whether all workers are still there, so that MPI can be ended in good order.
    """

    together: bool


Message = (
    Hello
    | OpenPmi
    | Beat
    | Failed
    | Leaving
    | Bye
    | Accepted
    | StillMissing
    | Ready
    | Refused
    | NotMet
    | Pulse
    | Broken
    | Quiet
    | Ended
)
