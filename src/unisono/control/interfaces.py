"""Which network of this machine leads to the other workers, and under which names they reach it."""

from __future__ import annotations

import array
import contextlib
import fcntl
import ipaddress
import socket
import struct
from pathlib import Path

from unisono.control.sockets import resolve

_RESOLVE_SECONDS = 5.0
_LIST_ADDRESSES = 0x8912  # SIOCGIFCONF
_ENTRY_BYTES = 40
_NAME_BYTES = 16


def towards(host: str) -> str | None:
    """Returns the name of the interface over which `host` is reached, or None if it cannot be told.

    Args:
        host: Name or address of another worker.
    """
    with contextlib.suppress(OSError):
        for address in resolve(host, _RESOLVE_SECONDS):
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            # No packet is sent: the kernel only says which of its addresses it would use.
            with socket.socket(family, socket.SOCK_DGRAM) as sock:
                sock.connect((address, 9))
                own = ipaddress.ip_address(sock.getsockname()[0].partition("%")[0])
            return _interfaces().get(str(own))
    return None


def own_hosts() -> list[str]:
    """Returns names and addresses under which other machines may reach this one, the likeliest first."""
    name = socket.gethostname()
    found = [name]
    for family, outside in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.connect((outside, 9))
            found.append(sock.getsockname()[0])
    with contextlib.suppress(OSError):
        found += [str(info[4][0]) for info in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)]
    return list(dict.fromkeys(found))


def _interfaces() -> dict[str, str]:
    """Returns the interface of each address of this machine."""
    found: dict[str, str] = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        space = array.array("B", bytes(256 * _ENTRY_BYTES))
        pointer, size = space.buffer_info()
        answer = fcntl.ioctl(sock, _LIST_ADDRESSES, struct.pack("iP", size, pointer))
    (length, _) = struct.unpack("iP", answer)
    for start in range(0, length, _ENTRY_BYTES):
        entry = space[start : start + _ENTRY_BYTES].tobytes()
        name = entry[:_NAME_BYTES].split(b"\0", 1)[0].decode().partition(":")[0]
        found[socket.inet_ntoa(entry[_NAME_BYTES + 4 : _NAME_BYTES + 8])] = name
    table = Path("/proc/net/if_inet6")
    for line in table.read_text().splitlines() if table.exists() else ():
        digits, *_, name = line.split()
        found[str(ipaddress.IPv6Address(int(digits, 16)))] = name
    return found
