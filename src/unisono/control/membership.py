"""Who is in the job: a state machine, events in, instructions out; no sockets, no clock of its own.

    MEETING --all present and equal--> RUNNING --first failure--> BROKEN --all gone--> over
       '------ deadline, versions ------------> OVER                '------------------'

Connections are numbers that the caller chooses. Every method takes the time in seconds and returns what to do, in
order. Rules:

- While workers meet, one whose connection ends may come back; only the chief's end ends the meeting.
- Once they run, a connection that ends without `Leaving` is a death, and a worker unheard of for long is lost.
- Only the first failure counts: what follows from it is not news.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from unisono.control.instructions import Close, CloseDoor, Instruction, Send, Stop
from unisono.control.messages import (
    Accepted,
    Beat,
    Broken,
    Bye,
    Ended,
    Failed,
    Hello,
    Leaving,
    Message,
    NotMet,
    Pulse,
    Quiet,
    Ready,
    Refused,
    StillMissing,
)
from unisono.control.roster import Roster, Worker

_QUIET_SECONDS = 10.0
_REPORT_SECONDS = 10.0
_LEAP_SECONDS = 5.0
_GRACE_SECONDS = 5.0


@dataclass(frozen=True)
class Plan:
    """What the coordinator is told about the job.

    Args:
        addresses: "host:port" of each rank as its cluster description says; "" where unknown.
        fingerprint: Digest of the cluster description.
        source: Where that came from, e.g. "TF_CONFIG".
        generation: How often the job has been restarted.
        job: Secret of the job.
        startup_seconds: Time the workers have to meet.
        silence_seconds: Silence after which a worker counts as lost.
    """

    addresses: tuple[str, ...]
    fingerprint: str
    source: str
    generation: int
    job: str
    startup_seconds: float
    silence_seconds: float

    @property
    def size(self) -> int:
        """Number of workers."""
        return len(self.addresses)

    @property
    def quiet_seconds(self) -> float:
        """Silence after which a line is logged."""
        return min(_QUIET_SECONDS, self.silence_seconds / 2)


class State(enum.Enum):
    """Where the job stands."""

    MEETING = "meeting"
    RUNNING = "running"
    BROKEN = "broken"
    OVER = "over"


@dataclass
class Membership:
    """The state machine; see the module.

    Args:
        plan: What the coordinator was told.
        started: Time at which the meeting began.
    """

    plan: Plan
    started: float
    state: State = State.MEETING
    roster: Roster = field(init=False)
    _cause: Broken | None = None
    _reported: float = field(init=False)
    _ticked: float = field(init=False)
    _over_at: float | None = None

    def __post_init__(self) -> None:
        self.roster = Roster(self.plan.addresses)
        self._reported = self._ticked = self.started

    def receive(self, conn: int, message: Message, now: float) -> list[Instruction]:
        """A worker has said something."""
        if isinstance(message, Hello):
            return self._hello(conn, message, now)
        worker = self.roster.of(conn)
        if worker is None:
            return [Close(conn)]
        worker.heard = now
        match message:
            case Beat():
                self.roster.beat(worker, message, now)
                late = self.roster.late(message.waits, worker.rank, now)
                return [Send(conn, Pulse(late, self.roster.is_missed(worker, now)))]
            case Failed():
                return self._failed(worker, message)
            case Leaving(counts):
                worker.left = True
                worker.counts = counts
                return self._end_if_all_left() if self._cause is None else [Send(conn, Ended(together=False))]
            case Bye():
                worker.left = worker.done = True
                return [Close(conn)] if self.state is not State.OVER else self._part_together()
            case _:
                return [Close(conn)]

    def stranger(self, rank: int, cause: str) -> None:
        """Something that said it was `rank` was turned away; remembered for the message about who is missing."""
        if 0 <= rank < self.plan.size:
            self.roster.workers[rank].cause = cause

    def dropped(self, conn: int, now: float, why: str = "") -> list[Instruction]:
        """A connection has ended, from either side; `why` is a sentence for the user."""
        worker = self.roster.of(conn)
        if worker is None:
            return []
        self.roster.part(worker, f"came from {worker.origin} and went away again after {now - worker.since:.0f} s")
        if self.state is State.MEETING:
            return self.orphaned() if worker.rank == 0 else []
        if worker.done or worker.left or self.state is not State.RUNNING:
            return self._end_if_all_left() + self._part_together() + self._stop_if_empty()
        return self._broken("lost", worker, message=why) + self._stop_if_empty()

    def orphaned(self) -> list[Instruction]:
        """The chief is gone before the workers have met; they will look for the next one."""
        if self.state is not State.MEETING:
            return []
        self.state = State.OVER
        return [CloseDoor(), *(Close(c) for c in self.roster.conns()), Stop()]

    def tick(self, now: float) -> list[Instruction]:
        """Time has passed; called a few times a second."""
        leap = now - self._ticked
        self._ticked = now
        if leap > _LEAP_SECONDS:
            # It was the coordinator that slept: what the others sent meanwhile is still to be read.
            self.roster.forgive(leap)
            return []
        match self.state:
            case State.MEETING:
                return self._tick_meeting(now)
            case State.RUNNING:
                return self._tick_running(now)
            case State.OVER:
                if self._over_at is None:
                    self._over_at = now
                return [Stop()] if now - self._over_at > _GRACE_SECONDS else self._stop_if_empty()
            case State.BROKEN:
                return self._stop_if_empty()

    def _hello(self, conn: int, hello: Hello, now: float) -> list[Instruction]:
        refusal = self._refusal(hello)
        if refusal is not None:
            if refusal.reason != "taken":
                self.stranger(hello.rank, f"a process on {hello.host} was turned away: {refusal.message}")
            return [Send(conn, refusal), Close(conn)]
        self.roster.join(self.roster.workers[hello.rank], conn, hello, now)
        answer: list[Instruction] = [Send(conn, Accepted())]
        if self.roster.absent():
            return answer
        difference = self.roster.difference()
        if difference is not None:
            self.state = State.OVER
            refused = Refused("version", *difference, hello.rank)
            return [*answer, CloseDoor(), *self._everyone(refused)]
        self.state = State.RUNNING
        return answer + self._everyone(Ready(self.plan.job))

    def _refusal(self, hello: Hello) -> Refused | None:
        plan = self.plan
        who = f"worker {hello.rank} ({hello.address or hello.host})"
        same = f"give all workers the same {plan.source}, apart from their own index."
        if hello.size != plan.size:
            text = f"{who} belongs to a cluster of {hello.size} workers, this job has {plan.size}."
            return Refused("cluster", text, same, hello.rank)
        if not 0 <= hello.rank < plan.size:
            return Refused("cluster", f"There is no worker {hello.rank} in this job of {plan.size}.", same, 0)
        if hello.fingerprint != plan.fingerprint:
            ours = plan.addresses[hello.rank]
            detail = (
                f"it lists itself as {hello.address}, the chief lists it as {ours}"
                if hello.address != ours
                else "it lists other addresses for other workers than the chief does"
            )
            return Refused("cluster", f"{who} has another {plan.source}: {detail}.", same, hello.rank)
        if hello.generation != plan.generation:
            text = f"{who} belongs to start number {hello.generation} of the job, this is {plan.generation}."
            return Refused("busy", text, "stop what is left of earlier starts.", hello.rank)
        if self.state is not State.MEETING:
            return Refused("busy", "The job has already started.", "wait until it has ended.", hello.rank)
        holder = self.roster.workers[hello.rank]
        if holder.conn is not None:
            this = f"process {hello.pid} on {hello.host}"
            text = f"{who} is already here: it came from {holder.origin}. This one is {this}."
            return Refused("taken", text, "give each worker its own index.", hello.rank)
        return None

    def _failed(self, worker: Worker, failed: Failed) -> list[Instruction]:
        worker.left = True
        # Also while all leave, for they wait for each other in the end of MPI.
        if self._cause is not None or self.state not in (State.RUNNING, State.OVER):
            return []
        about = self.roster.workers[failed.about] if 0 <= failed.about < self.plan.size else worker
        if failed.kind in ("timeout", "left"):
            out = self._broken(failed.kind, about, message=failed.message)
        else:
            out = self._broken(
                "error", worker, failed.error_type, failed.message, failed.trace, step=failed.step, phase=failed.phase
            )
        return [each for each in out if not (isinstance(each, Send) and each.conn == worker.conn)]

    def _broken(
        self,
        kind: str,
        worker: Worker,
        error_type: str = "",
        message: str = "",
        trace: str = "",
        *,
        step: int | None = None,
        phase: str | None = None,
    ) -> list[Instruction]:
        self.state = State.BROKEN
        self._cause = Broken(
            kind=kind,
            rank=worker.rank,
            name=worker.name,
            step=worker.step if step is None else step,
            phase=worker.phase if phase is None else phase,
            error_type=error_type,
            message=message,
            trace=trace,
        )
        return [*self._everyone(self._cause), CloseDoor()]

    def _everyone(self, message: Message) -> list[Instruction]:
        return [Send(conn, message) for conn in self.roster.conns()]

    def _end_if_all_left(self) -> list[Instruction]:
        if self.state is not State.RUNNING or not all(w.left for w in self.roster.workers):
            return []
        self.state = State.OVER
        together = not self.roster.absent()
        return [CloseDoor(), *self._everyone(Ended(together))]

    def _part_together(self) -> list[Instruction]:
        """Lets workers go once all have said goodbye: a process that ends earlier could disturb its peers in MPI."""
        here = [w for w in self.roster.workers if w.conn is not None]
        if self.state is not State.OVER or not all(w.done for w in here):
            return []
        return [Close(conn) for conn in self.roster.conns()]

    def _stop_if_empty(self) -> list[Instruction]:
        return [Stop()] if self.state in (State.BROKEN, State.OVER) and not self.roster.conns() else []

    def _tick_meeting(self, now: float) -> list[Instruction]:
        seconds = now - self.started
        if seconds >= self.plan.startup_seconds:
            self.state = State.OVER
            missing, more = self.roster.missing()
            return [CloseDoor(), *self._everyone(NotMet(missing, more, seconds))]
        if now - self._reported >= _REPORT_SECONDS:
            self._reported = now
            missing, more = self.roster.missing()
            return self._everyone(StillMissing(tuple(m.name for m in missing), more, seconds))
        return []

    def _tick_running(self, now: float) -> list[Instruction]:
        out: list[Instruction] = []
        for worker in self.roster.workers:
            silent = now - worker.heard
            if worker.conn is None:
                continue
            if silent >= self.plan.silence_seconds and not worker.left:
                conn = worker.conn
                text = f"Nothing was heard of it for {silent:.0f} s, though its connection is open."
                out += [*self._broken("silent", worker, message=text), Close(conn)]
                self.roster.part(worker, "fell silent")
                return out + self._stop_if_empty()
            if (silent >= self.plan.quiet_seconds) != worker.quiet:
                worker.quiet = not worker.quiet
                listener = self.roster.listener(now - self.plan.quiet_seconds)
                if listener is not None:
                    out.append(Send(listener, Quiet(worker.name, silent if worker.quiet else 0.0)))
        return out
