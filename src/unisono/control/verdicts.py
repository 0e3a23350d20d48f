"""Between messages of the control plane and what the user reads: errors and log lines, as plain functions."""

from __future__ import annotations

import traceback
from collections.abc import Mapping

from unisono.cluster.spec import Address
from unisono.control.messages import Broken, Failed, Late, LateWorker, NotMet, Refused, StillMissing
from unisono.control.wire import clip
from unisono.errors import (
    CollectiveTimeoutError,
    StartupError,
    UnisonoError,
    WorkerFailedError,
    WorkerLostError,
)

_TRACE_LINES = 30


def unreachable(chief: str, address: Address, cause: str, seconds: float) -> StartupError:
    """Returns the error of a worker that could not reach the chief."""
    return StartupError(
        f"This worker could not reach {chief} in {seconds:.0f} s: {cause}.",
        remedy=f"start worker 0, and check that {address} is right and open in the firewall; "
        "UNISONO_STARTUP_TIMEOUT is how many seconds to wait.",
        rank=0,
        host=str(address),
        phase="start-up",
    )


def not_met(message: NotMet, seconds: float, notes: Mapping[int, str] | None = None) -> StartupError:
    """Returns the error of a worker that waited for others in vain.

    Args:
        message: What the coordinator said.
        seconds: How long this worker waited.
        notes: By rank, what this worker itself has found out about a missing one.
    """
    if not message.workers:
        return StartupError(
            f"The coordinator did not say within {seconds:.0f} s that all workers are present, nor who is missing.",
            remedy="look for an error of worker 0.",
            rank=0,
            phase="start-up",
        )
    notes = notes or {}
    parts = [f"{m.name}: {m.cause}" + (f", and {notes[m.rank]}" if m.rank in notes else "") for m in message.workers]
    more = f"; and {message.more} more" if message.more else ""
    first = message.workers[0]
    return StartupError(
        f"{_count(len(parts) + message.more)} not come within {message.seconds:.0f} s. {'; '.join(parts)}{more}.",
        remedy="look at the output of the missing workers; UNISONO_STARTUP_TIMEOUT is how many seconds to wait.",
        rank=first.rank,
        host=_host(first.name),
        phase="start-up",
    )


def still_missing(message: StillMissing) -> str:
    """Returns the log line about a meeting that lasts."""
    more = f" and {message.more} more" if message.more else ""
    return f"waiting for {', '.join(message.workers)}{more} to connect, since {message.seconds:.0f} s"


def refused(message: Refused) -> StartupError:
    """Returns the error of a worker that was turned away."""
    return StartupError(message.message, remedy=message.remedy, rank=message.rank, phase="start-up")


def not_connected(operation: str, seconds: float) -> StartupError:
    """Returns the error of a worker whose engine did not reach the others, though all of them are there."""
    return StartupError(
        f"All workers are here, but {operation} did not connect them within {seconds:.0f} s.",
        remedy="open the ports between them in the firewall; if the machines have several networks, set FI_TCP_IFACE "
        "to the interface that leads to the others, e.g. eth0.",
        phase="start-up",
    )


def broken(message: Broken, doing: str = "") -> UnisonoError:
    """Returns the error that the first failure of the job is on the other workers.

    Args:
        message: What the coordinator said.
        doing: What this worker was doing, e.g. "in step 5", or "".
    """
    here = f" This worker was {doing}." if doing else ""
    at = where(message.step, message.phase)
    fields = {
        "rank": message.rank,
        "host": _host(message.name),
        "step": message.step if message.step >= 0 else None,
        "phase": message.phase or None,
    }
    if message.kind == "error":
        text = f"{_upper(message.name)} failed{at} with {message.error_type}: {message.message}"
        trace = f"\n--- traceback of worker {message.rank} ---\n{message.trace.rstrip()}\n---" if message.trace else ""
        return WorkerFailedError(text + here + trace, **fields)  # type: ignore[arg-type]
    if message.kind == "timeout":
        return CollectiveTimeoutError(f"{message.message}{here}", **fields)  # type: ignore[arg-type]
    if message.kind == "left":
        return WorkerLostError(f"{message.message}{here}", **fields)  # type: ignore[arg-type]
    if message.kind == "coordinator":
        trace = f"\n{message.trace.rstrip()}" if message.trace else ""
        return WorkerLostError(
            f"{message.message}{here}{trace}",
            remedy="look for an error of worker 0, whose child process the coordinator is.",
            **fields,  # type: ignore[arg-type]
        )
    last = f"; its last report was{where(message.step, message.phase)[3:]}" if message.step >= 0 else ""
    return WorkerLostError(
        f"{_upper(message.name)} is lost{last}. {message.message}{here}",
        remedy="look at the end of that worker's output; a process that the system killed often ran out of memory.",
        **fields,  # type: ignore[arg-type]
    )


def late_line(late: Late, operation: str, seconds: float) -> str:
    """Returns the log line of a worker that has waited for long."""
    return f"waiting in {operation} since {seconds:.0f} s: {_late_text(late)}{_stack_text(late)}"


def ended_early(worker: LateWorker, rank: int, operation: str, step: int) -> WorkerLostError:
    """Returns the error of a worker that waits for one whose script has ended."""
    return WorkerLostError(
        f"{_upper(worker.name)} ended its script{where(worker.step, worker.phase)}, while worker {rank} waits for it "
        f"in {operation}{where(step, '')}.",
        remedy="let all workers run the same steps, epochs and calls; only reading and writing of files may differ.",
        rank=worker.rank,
        host=_host(worker.name),
        step=worker.step if worker.step >= 0 else None,
        phase=worker.phase or None,
    )


def timed_out(late: Late | None, operation: str, seconds: float, step: int, phase: str) -> CollectiveTimeoutError:
    """Returns the error of a worker that has waited as long as it may.

    Args:
        late: Who had not arrived when last asked; None if the coordinator did not say.
        operation: Where this worker waits.
        seconds: How long it did.
        step: Its own step.
        phase: Its own phase.
    """
    if late is None:
        what = "the coordinator did not say who is late"
    else:
        what = _late_text(late)
    first = late.workers[0] if late is not None and late.workers else None
    return CollectiveTimeoutError(
        f"Waited {seconds:.0f} s in {operation}{where(step, phase)}: {what}.{_stack_text(late) if late else ''}",
        remedy="if a step may take longer, give CommunicationOptions(timeout_seconds=...) or UNISONO_TIMEOUT.",
        rank=first.rank if first else None,
        host=_host(first.name) if first else None,
        step=first.step if first and first.step >= 0 else None,
        phase=(first.phase or None) if first else None,
    )


def failed(error: BaseException, rank: int, step: int, phase: str) -> Failed:
    """Returns what the others are told about an error of this worker.

    Args:
        error: What it raised.
        rank: This worker.
        step: Its step, -1 if unknown.
        phase: Its phase.
    """
    kind = "error"
    if isinstance(error, CollectiveTimeoutError):
        kind = "timeout"
    elif isinstance(error, WorkerLostError):
        kind = "left"
    about = error.rank if kind != "error" and isinstance(error, UnisonoError) and error.rank is not None else rank
    lines = "".join(traceback.format_exception(error)).splitlines()
    return Failed(
        kind=kind,
        error_type=type(error).__name__,
        message=clip(_said(error)),
        trace=clip("\n".join(lines[-_TRACE_LINES:])) if kind == "error" else "",
        about=about,
        step=step,
        phase=phase,
    )


def where(step: int, phase: str) -> str:
    """Returns " in step 5, gradient exchange", or what of it is known."""
    parts = ([f"step {step}"] if step >= 0 else []) + ([phase] if phase else [])
    return f" in {', '.join(parts)}" if parts else ""


def _said(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as problem:  # noqa: BLE001
        # An exception of the user's that cannot be printed must not stop the others from being told.
        return f"(its message cannot be shown: {type(problem).__name__})"


def _late_text(late: Late) -> str:
    if not late.workers:
        return "all workers have arrived, yet the exchange does not complete: the network between them may be cut"
    more = f"; and {late.more} more" if late.more else ""
    return "; ".join(_one_late(w) for w in late.workers) + more


def _stack_text(late: Late) -> str:
    first = late.workers[0] if late.workers else None
    return f"\nWhere {first.name} is:\n{first.stack}" if first is not None and first.stack else ""


def _one_late(worker: LateWorker) -> str:
    text = f"{worker.name} has not arrived; its last report is "
    text += f"{where(worker.step, worker.phase)[4:] or 'that of its start'}, {worker.since:.0f} s ago"
    if worker.waits_in:
        text += f"; it waits in {worker.waits_in} itself"
    if worker.silent >= 5:
        text += f"; nothing was heard of it for {worker.silent:.0f} s"
    return text


def _count(number: int) -> str:
    return "1 worker has" if number == 1 else f"{number} workers have"


def _host(name: str) -> str | None:
    """Returns what stands in the brackets of a worker's name."""
    _, found, rest = name.partition(" (")
    return rest.removesuffix(")") if found else None


def _upper(name: str) -> str:
    return name[:1].upper() + name[1:]
