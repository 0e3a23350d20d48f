"""What the coordinator knows of each worker."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from unisono.control.messages import Beat, Hello, Late, LateWorker, Missing, Wait

BACKEND = "Keras backend"
"""Among what must be equal, the one thing that is chosen, not installed."""

_NAMED_AT_MOST = 8
_MISSED_AFTER_SECONDS = 1.0
_MISSED_FOR_SECONDS = 3.0
_INSTALL = "install the same versions on all workers."
_SET_BACKEND = "set KERAS_BACKEND alike on all workers."


@dataclass
class Worker:
    """One worker.

    Args:
        rank: Which.
        address: Its "host:port" from the cluster description, or "".
        cause: Why it is not here, as far as is known.
    """

    rank: int
    address: str
    cause: str = "it has never connected"
    conn: int | None = None
    hello: Hello | None = None
    since: float = 0.0
    heard: float = 0.0
    changed: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)
    step: int = -1
    phase: str = ""
    waits: tuple[Wait, ...] = ()
    left: bool = False
    done: bool = False
    quiet: bool = False
    stack: str = ""
    missed: float = -math.inf
    """Time at which somebody last asked for whom it waits, and this was one."""

    @property
    def name(self) -> str:
        """Name for messages, e.g. "worker 1 (10.0.0.7:2222)"."""
        where = self.address or (f"{self.hello.host}, process {self.hello.pid}" if self.hello else "")
        return f"worker {self.rank} ({where})" if where else f"worker {self.rank}"

    @property
    def origin(self) -> str:
        """Where it connected from."""
        return f"process {self.hello.pid} on {self.hello.host}" if self.hello else "nowhere"


class Roster:
    """All workers of the job, by rank and by connection."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self.workers = [Worker(rank, address) for rank, address in enumerate(addresses)]
        self._by_conn: dict[int, Worker] = {}

    def of(self, conn: int) -> Worker | None:
        """Returns the worker behind a connection."""
        return self._by_conn.get(conn)

    def conns(self) -> list[int]:
        """Returns the connections of all workers that are there."""
        return list(self._by_conn)

    def join(self, worker: Worker, conn: int, hello: Hello, now: float) -> None:
        """Notes that `worker` has come over `conn`."""
        worker.conn, worker.hello = conn, hello
        worker.since = worker.heard = worker.changed = now
        self._by_conn[conn] = worker

    def part(self, worker: Worker, cause: str) -> None:
        """Notes that the connection of `worker` has ended."""
        if worker.conn is not None:
            del self._by_conn[worker.conn]
        worker.conn, worker.cause = None, cause

    def beat(self, worker: Worker, beat: Beat, now: float) -> None:
        """Notes what a heartbeat says."""
        if (worker.step, worker.phase) != (beat.step, beat.phase):
            worker.step, worker.phase, worker.changed = beat.step, beat.phase, now
        worker.counts, worker.waits, worker.stack = beat.counts, beat.waits, beat.stack

    def is_missed(self, worker: Worker, now: float) -> bool:
        """Returns whether others have been waiting for a worker for a while."""
        return now - worker.missed <= _MISSED_FOR_SECONDS

    def forgive(self, seconds: float) -> None:
        """Moves all times of `heard` forward: the coordinator itself was not listening."""
        for worker in self.workers:
            worker.heard += seconds

    def absent(self) -> int:
        """Returns how many workers are not connected."""
        return len(self.workers) - len(self._by_conn)

    def missing(self) -> tuple[tuple[Missing, ...], int]:
        """Returns the first few workers that are not connected, and how many more there are."""
        absent = [w for w in self.workers if w.conn is None]
        named = tuple(Missing(w.rank, w.name, w.address, w.cause) for w in absent[:_NAMED_AT_MOST])
        return named, len(absent) - len(named)

    def listener(self, heard_after: float) -> int | None:
        """Returns the connection of the lowest rank heard of since then, to which notices go."""
        return next((w.conn for w in self.workers if w.conn is not None and w.heard > heard_after), None)

    def difference(self) -> tuple[str, str] | None:
        """Returns a sentence on the first version that is not equal on all workers that know it, and what to do."""
        said = [(w, w.hello.versions) for w in self.workers if w.hello is not None]
        for key in sorted({key for _, versions in said for key in versions}):
            holders: dict[str, list[Worker]] = {}
            for worker, versions in said:
                if key in versions:
                    holders.setdefault(versions[key], []).append(worker)
            if len(holders) > 1:
                parts = (f"{value} on {_names(workers)}" for value, workers in sorted(holders.items()))
                if key == BACKEND:
                    return f"The workers have different Keras backends: {'; '.join(parts)}.", _SET_BACKEND
                return f"The workers have different versions of {key}: {'; '.join(parts)}.", _INSTALL
        return None

    def late(self, waits: Sequence[Wait], asker: int, now: float) -> tuple[Late, ...]:
        """Returns, for each operation in which worker `asker` waits, who has not arrived there; the first is missed."""
        return tuple(self._late(wait, asker, now) for wait in waits)

    def _late(self, wait: Wait, asker: int, now: float) -> Late:
        late = [w for w in self.workers if w.rank != asker and w.counts.get(wait.channel, 0) < wait.count]
        # Whoever will never come is named first.
        late.sort(key=lambda w: not w.left)
        if late and wait.seconds >= _MISSED_AFTER_SECONDS:
            late[0].missed = now
        named = tuple(
            LateWorker(
                rank=w.rank,
                name=w.name,
                step=w.step,
                phase=w.phase,
                since=now - w.changed,
                silent=now - w.heard,
                left=w.left,
                waits_in=w.waits[0].operation if w.waits else "",
                stack=w.stack if w is late[0] else "",
            )
            for w in late[:_NAMED_AT_MOST]
        )
        return Late(wait.channel, wait.count, named, len(late) - len(named))


def _names(workers: Sequence[Worker]) -> str:
    names = [w.name for w in workers[:_NAMED_AT_MOST]]
    more = len(workers) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")
