"""The coordinator: a process of its own that listens, and does what the state machine says.

It is started by the chief, reads its orders as JSON from standard input, and takes the listening sockets from
the chief. It ends by itself when all workers are gone, whatever way they went. Signals meant for the workers do
not stop it: it must live to tell the others who died.
"""

from __future__ import annotations

import dataclasses
import json
import os
import selectors
import signal
import socket
import sys
import time
import traceback
from dataclasses import dataclass, field

from unisono.control import pmi
from unisono.control.instructions import Close, CloseDoor, Instruction, Send, Stop
from unisono.control.membership import Membership, Plan, State
from unisono.control.messages import Broken, Hello, Message, OpenPmi, Refused
from unisono.control.sockets import keep_alive, why_ended
from unisono.control.wire import Lines, OtherProtocolError, WireError, clip, decode, encode

_TICK_SECONDS = 0.25
_FIRST_LINE_SECONDS = 10.0
_CHUNK = 64 * 1024
_BACKLOG_LIMIT = 4 * 1024 * 1024
_STRANGERS_AT_MOST = 256


@dataclass
class _Connection:
    number: int
    sock: socket.socket
    opened: float
    lines: Lines = field(default_factory=Lines)
    out: bytearray = field(default_factory=bytearray)
    kind: str = "unknown"
    rank: int = -1
    closing: bool = False


class Server:
    """Sockets and time around `Membership` and `pmi.Space`, in one thread.

    Args:
        plan: What the chief has told.
        doors: Listening sockets.
        parent: Process of the chief.
    """

    def __init__(self, plan: Plan, doors: list[socket.socket], parent: int) -> None:
        self._plan = plan
        self._membership = Membership(plan, time.monotonic())
        self._space: pmi.Space | None = None
        self._doors = doors
        self._parent = parent
        self._selector = selectors.DefaultSelector()
        self._connections: dict[int, _Connection] = {}
        self._next = 0
        self._stopped = False
        for door in doors:
            door.setblocking(False)
            self._selector.register(door, selectors.EVENT_READ, None)

    def run(self) -> None:
        """Serves until nobody is left."""
        ticked = 0.0
        while not self._stopped:
            for key, events in self._selector.select(_TICK_SECONDS):
                if key.data is None:
                    self._accept(key.fileobj)  # type: ignore[arg-type]
                    continue
                if events & selectors.EVENT_WRITE:
                    self._flush(key.data)
                if events & selectors.EVENT_READ:
                    self._read(key.data)
            now = time.monotonic()
            if now - ticked >= _TICK_SECONDS:
                ticked = now
                self._tick(now)

    def report_crash(self, text: str) -> None:
        """Tells all workers that the coordinator itself has failed."""
        message = "The coordinator failed by a mistake of its own."
        broken = Broken("coordinator", 0, "the coordinator", -1, "", "", message, clip(text))
        for connection in list(self._connections.values()):
            if connection.kind == "worker":
                self._send(connection, broken)
                self._flush(connection)

    def close(self) -> None:
        """Closes all sockets."""
        for connection in list(self._connections.values()):
            connection.sock.close()
        self._close_door()
        self._selector.close()

    def _tick(self, now: float) -> None:
        if os.getppid() != self._parent and self._membership.roster.workers[0].conn is None:
            self._do(self._membership.orphaned())
        for connection in list(self._connections.values()):
            if connection.kind == "unknown" and now - connection.opened > _FIRST_LINE_SECONDS:
                self._drop(connection)
        self._do(self._membership.tick(now))

    def _accept(self, door: socket.socket) -> None:
        try:
            sock, _ = door.accept()
        except OSError:
            # The other side has given up between its request and now.
            return
        if sum(c.kind == "unknown" for c in self._connections.values()) >= self._plan.size + _STRANGERS_AT_MOST:
            sock.close()
            return
        sock.setblocking(False)
        keep_alive(sock)
        self._next += 1
        connection = _Connection(self._next, sock, time.monotonic())
        self._connections[connection.number] = connection
        self._selector.register(sock, selectors.EVENT_READ, connection)

    def _read(self, connection: _Connection) -> None:
        if connection.number not in self._connections or connection.closing:
            return
        try:
            data = connection.sock.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError as error:
            self._drop(connection, error)
            return
        if not data:
            self._drop(connection)
            return
        try:
            for line in connection.lines.feed(data):
                if connection.number in self._connections and not connection.closing:
                    self._line(connection, line)
        except OtherProtocolError as error:
            text = f"{error} The unisono packages of the workers are of different releases."
            self._send(connection, Refused("version", text, "install the same version on all workers.", 0))
            self._close_soon(connection)
        except (WireError, pmi.PmiError):
            self._drop(connection)

    def _line(self, connection: _Connection, line: bytes) -> None:
        if connection.kind == "pmi":
            self._pmi(connection, line.decode("utf-8", "replace"))
            return
        message = decode(line)
        if isinstance(message, OpenPmi):
            self._open_pmi(connection, message)
            return
        if isinstance(message, Hello):
            connection.kind, connection.rank = "worker", message.rank
        elif connection.kind != "worker":
            raise WireError("A connection begins with who is there.")
        self._do(self._membership.receive(connection.number, message, time.monotonic()))

    def _open_pmi(self, connection: _Connection, message: OpenPmi) -> None:
        running = self._membership.state is State.RUNNING
        if not running or message.job != self._plan.job or not 0 <= message.rank < self._plan.size:
            raise WireError("This process does not belong to the job.")
        connection.kind, connection.rank = "pmi", message.rank

    def _pmi(self, connection: _Connection, line: str) -> None:
        if self._space is None:
            hellos = [w.hello for w in self._membership.roster.workers]
            places = [h.place if h is not None else str(rank) for rank, h in enumerate(hellos)]
            self._space = pmi.Space(self._plan.size, f"unisono_{self._plan.job}", places)
        replies = self._space.handle(connection.rank, line)
        by_rank = {c.rank: c for c in self._connections.values() if c.kind == "pmi"}
        for reply in replies:
            if reply.rank in by_rank:
                self._write(by_rank[reply.rank], reply.line.encode() + b"\n")

    def _do(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case Send(number, message):
                    if number in self._connections:
                        self._send(self._connections[number], message)
                case Close(number):
                    if number in self._connections:
                        self._close_soon(self._connections[number])
                case CloseDoor():
                    self._close_door()
                case Stop():
                    self._stopped = True

    def _send(self, connection: _Connection, message: Message) -> None:
        self._write(connection, encode(message))

    def _write(self, connection: _Connection, data: bytes) -> None:
        connection.out += data
        if len(connection.out) > _BACKLOG_LIMIT:
            self._drop(connection)
        else:
            self._flush(connection)

    def _flush(self, connection: _Connection) -> None:
        if connection.number not in self._connections:
            return
        try:
            sent = connection.sock.send(connection.out) if connection.out else 0
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self._drop(connection, error)
            return
        del connection.out[:sent]
        if connection.closing and not connection.out:
            self._drop(connection)
            return
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if connection.out else 0)
        if self._selector.get_key(connection.sock).events != wanted:
            self._selector.modify(connection.sock, wanted, connection)

    def _close_soon(self, connection: _Connection) -> None:
        connection.closing = True
        self._flush(connection)

    def _drop(self, connection: _Connection, error: OSError | None = None) -> None:
        if self._connections.pop(connection.number, None) is None:
            return
        self._selector.unregister(connection.sock)
        connection.sock.close()
        if connection.kind == "worker":
            self._do(self._membership.dropped(connection.number, time.monotonic(), why_ended(error)))

    def _close_door(self) -> None:
        for door in self._doors:
            self._selector.unregister(door)
            door.close()
        self._doors = []


def main() -> int:
    """Runs a coordinator on the orders that stand on standard input.

    Returns:
        Exit code of the process.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    orders = json.load(sys.stdin)
    orders["plan"]["addresses"] = tuple(orders["plan"]["addresses"])
    doors = [socket.socket(fileno=fd) for fd in orders["doors"]]
    server = Server(Plan(**orders["plan"]), doors, orders["parent"])
    try:
        server.run()
    except Exception:
        # Nobody reads this process's output while it runs: the workers must be told.
        server.report_crash(traceback.format_exc())
        raise
    finally:
        server.close()
    return 0


def orders(plan: Plan, doors: list[int], parent: int) -> str:
    """Returns what `main` reads, as JSON."""
    return json.dumps({"plan": dataclasses.asdict(plan), "doors": doors, "parent": parent})


if __name__ == "__main__":
    sys.exit(main())
