"""Free ports on this machine."""

from __future__ import annotations

import contextlib
import socket


def free(count: int, host: str = "127.0.0.1") -> list[int]:
    """Returns ports of `host` that nobody listened on a moment ago, all different.

    The kernel picks them; they are given back before the workers start, so another program could take one in
    between. Then the chief's start-up fails with an error that names the port, and a second run picks others.

    Args:
        count: How many.
        host: Numeric address or name of this machine.
    """
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server((host, 0))) for _ in range(count)]
        return [int(s.getsockname()[1]) for s in sockets]
