"""What the state machine of the coordinator tells the sockets to do."""

from __future__ import annotations

from dataclasses import dataclass

from unisono.control.messages import Message


@dataclass(frozen=True)
class Send:
    """Write `message` to connection `conn`."""

    conn: int
    message: Message


@dataclass(frozen=True)
class Close:
    """End connection `conn` after what was sent before."""

    conn: int


@dataclass(frozen=True)
class CloseDoor:
    """Take no more connections, and free the port."""


@dataclass(frozen=True)
class Stop:
    """Nothing is left to do."""


Instruction = Send | Close | CloseDoor | Stop
