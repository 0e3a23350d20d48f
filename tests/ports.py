"""TCP ports for tests."""

from __future__ import annotations

import random
import socket

_LOWEST, _HIGHEST = 10_000, 32_000
"""Below the ports that the system gives to outgoing connections."""


def free_ports(count: int) -> list[int]:
    """Returns ports that are free on 127.0.0.1; several test processes at a time hardly ever get the same ones."""
    found: list[int] = []
    # Not the global generator, which tests seed.
    candidates = random.SystemRandom().sample(range(_LOWEST, _HIGHEST), 100 * count)
    for port in candidates:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise OSError(f"no {count} free ports among {len(candidates)} between {_LOWEST} and {_HIGHEST}")
