"""How a worker reaches the coordinator and waits for the others, with a deadline and a named cause."""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from unisono.cluster.spec import Address
from unisono.control.messages import Accepted, Hello, Message, NotMet, OpenPmi, Ready, Refused, StillMissing
from unisono.control.sockets import close_in_children, keep_alive, resolve
from unisono.control.verdicts import not_met, refused, still_missing, unreachable
from unisono.control.wire import Lines, OtherProtocolError, WireError, decode, encode
from unisono.errors import StartupError
from unisono.log import logger

_FIRST_ANSWER_SECONDS = 10.0
_CONNECT_SECONDS = 5.0
_RESOLVE_SECONDS = 10.0
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 1.0
_REPORT_SECONDS = 10.0
_GRACE_SECONDS = 3.0
_CHUNK = 64 * 1024
_NOTES_SECONDS = 5.0


@dataclass(frozen=True)
class Endpoint:
    """The coordinator, once all have met.

    Args:
        sock: Open connection.
        lines: What was received on it beyond the answer.
        address: Numeric address that answered.
        job: Secret of the job.
    """

    sock: socket.socket
    lines: Lines
    address: Address
    job: str


class _NotYetError(Exception):
    """This attempt failed, for a cause that may pass."""

    def __init__(self, cause: str) -> None:
        super().__init__(cause)
        self.cause = cause


def meet(
    coordinator: Sequence[Address],
    hello: Hello,
    chief: str,
    seconds: float,
    check: Callable[[], None] = lambda: None,
) -> Endpoint:
    """Joins the job: returns when all workers have.

    Args:
        coordinator: Addresses to try, in this order.
        hello: Who this worker is.
        chief: Name of the worker that runs the coordinator, for messages.
        seconds: How long to try.
        check: Called before each attempt; raises if there is no point in trying.

    Returns:
        The open connection.

    Raises:
        StartupError: If the workers have not met in time, or this one is refused.
    """
    start = time.monotonic()
    deadline = start + seconds
    pause = _FIRST_PAUSE
    reported = start
    cause = "no attempt was made"
    while True:
        check()
        for address in coordinator:
            try:
                return _attempt(address, hello, deadline, seconds)
            except _NotYetError as error:
                cause = error.cause
        now = time.monotonic()
        if now >= deadline:
            raise unreachable(chief, coordinator[0], cause, now - start)
        if now - reported >= _REPORT_SECONDS:
            reported = now
            logger.info("%s cannot be reached yet, after %.0f s: %s.", chief, now - start, cause)
        time.sleep(min(pause, max(0.0, deadline - now)))
        pause = min(pause * 1.5, _LONGEST_PAUSE)


def open_pmi(endpoint: Endpoint, rank: int, seconds: float) -> int:
    """Opens a second connection over which MPI will speak PMI-1.

    Args:
        endpoint: Where the workers met.
        rank: Rank of this worker.
        seconds: How long to try.

    Returns:
        A file descriptor that the caller owns.

    Raises:
        StartupError: If the coordinator is gone.
    """
    try:
        sock = socket.create_connection((endpoint.address.host, endpoint.address.port), timeout=seconds)
    except OSError as error:
        raise StartupError(
            f"The coordinator at {endpoint.address} did not take the connection for MPI: {error}.",
            remedy="look for an error of worker 0.",
            rank=0,
            host=str(endpoint.address),
            phase="start-up",
        ) from error
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.sendall(encode(OpenPmi(rank, endpoint.job)))
    sock.settimeout(None)
    return sock.detach()


def _attempt(address: Address, hello: Hello, deadline: float, seconds: float) -> Endpoint:
    sock, peer = _connect(address, deadline)
    done = False
    try:
        keep_alive(sock)
        close_in_children(sock)
        sock.sendall(encode(hello))
        endpoint = _converse(sock, peer, address, deadline, seconds)
        done = True
        return endpoint
    except OtherProtocolError as error:
        raise StartupError(
            f"The coordinator at {address} is of another release of unisono: {error}",
            remedy="install the same version of unisono on all workers.",
            rank=0,
            host=str(address),
            phase="start-up",
        ) from None
    except WireError:
        raise _NotYetError(
            f"the port is held by another program: what answers at {address} is no Unisono worker"
        ) from None
    except OSError:
        raise _NotYetError(_hung_up(address)) from None
    finally:
        if not done:
            sock.close()


def _connect(address: Address, deadline: float) -> tuple[socket.socket, Address]:
    left = max(0.1, deadline - time.monotonic())
    try:
        numeric = resolve(address.host, min(_RESOLVE_SECONDS, left))
    except OSError as error:
        raise _NotYetError(f"the name {address.host!r} does not resolve here: {error}") from None
    cause = ""
    for host in numeric:
        left = max(0.1, deadline - time.monotonic())
        try:
            sock = socket.create_connection((host, address.port), timeout=min(_CONNECT_SECONDS, left))
        except OSError as error:
            cause = cause or _why_not_connected(error, address)
            continue
        if sock.getsockname() == sock.getpeername():
            # Without a listener, the kernel may connect a port of this machine to itself.
            sock.close()
            cause = cause or _why_not_connected(ConnectionRefusedError(), address)
            continue
        return sock, Address(host, address.port)
    raise _NotYetError(cause)


def _hung_up(address: Address) -> str:
    return f"{address} hung up: the port is held by another program, or its job has just ended"


def _notes(message: NotMet) -> dict[int, str]:
    """Returns what can be seen from here about missing workers: whether their names resolve."""
    notes: dict[int, str] = {}
    deadline = time.monotonic() + _NOTES_SECONDS
    for missing in message.workers:
        host = missing.address.rpartition(":")[0].strip("[]")
        left = deadline - time.monotonic()
        if not host or left <= 0:
            continue
        try:
            resolve(host, left)
        except TimeoutError:
            notes[missing.rank] = f"nobody here answers what the address of {host!r} is"
        except OSError as error:
            notes[missing.rank] = f"the name {host!r} does not resolve here ({error.strerror or error})"
    return notes


def _why_not_connected(error: OSError, address: Address) -> str:
    if isinstance(error, ConnectionRefusedError):
        return f"connection refused: nothing listens at {address} yet"
    if isinstance(error, TimeoutError):
        return f"no answer from {address}: the machine is down or a firewall drops the packets"
    if error.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH):
        return f"no route to {address}"
    return f"cannot connect to {address}: {error}"


def _converse(sock: socket.socket, peer: Address, address: Address, deadline: float, seconds: float) -> Endpoint:
    lines = Lines()
    waiting: list[Message] = []
    accepted = False
    first_answer = time.monotonic() + _FIRST_ANSWER_SECONDS
    while True:
        # The coordinator says more about a missed deadline than this side knows: it goes first.
        limit = deadline + _GRACE_SECONDS if accepted else min(first_answer, deadline)
        sock.settimeout(max(0.05, limit - time.monotonic()))
        try:
            data = sock.recv(_CHUNK)
        except OSError:
            # Either the time is over, or the other side is no longer there.
            data = b""
        if not data and time.monotonic() >= limit:
            if accepted:
                raise not_met(NotMet((), 0, seconds), seconds)
            raise _NotYetError(f"{address} takes connections but does not answer: the port is held by another program")
        if not data:
            if accepted:
                raise _NotYetError(f"the coordinator at {address} went away before all workers had come")
            raise _NotYetError(_hung_up(address))
        waiting += [decode(line) for line in lines.feed(data)]
        while waiting:
            message = waiting.pop(0)
            match message:
                case Accepted():
                    accepted = True
                case StillMissing():
                    logger.info(still_missing(message))
                case Ready(job):
                    return Endpoint(sock, lines, peer, job)
                case Refused(reason="busy"):
                    raise _NotYetError(f"turned away at {address}: {message.message.removesuffix('.')}")
                case Refused():
                    raise refused(message)
                case NotMet():
                    raise not_met(message, seconds, _notes(message))
                case _:
                    raise WireError(f"Unexpected {type(message).__name__}.")
