"""Addresses as users write them: "host:port", IPv6 in brackets."""

from __future__ import annotations

from typing import Any

from unisono.cluster.spec import Address
from unisono.errors import ClusterError

_EXAMPLE = "10.0.0.7:2222 or [::1]:2222"


def parse(text: Any, of: str, source: str) -> Address:
    """Returns the address that a text means.

    Args:
        text: "host:port"; blanks around it, a leading "grpc://" and a trailing "/" are ignored.
        of: Whose address it is, e.g. "worker 1", for messages.
        source: Where it came from, e.g. "TF_CONFIG", for messages.

    Raises:
        ClusterError: If it has no host or no port, or the port is not one.
    """
    where = f"the address of {of} in {source}"
    if not isinstance(text, str):
        raise ClusterError(f'{_capital(where)} must be a text "host:port". Received: {text!r}.')
    bare = text.strip().removeprefix("grpc://").rstrip("/")
    if any(c in "/," or c.isspace() for c in bare):
        raise ClusterError(f"{_capital(where)} is not one address: {text!r}.", remedy=f"write for example {_EXAMPLE}.")
    host, port = _split(bare, where, text)
    if not host:
        raise ClusterError(f"{_capital(where)} has no host name: {text!r}.", remedy=f"write for example {_EXAMPLE}.")
    if not (port.isascii() and port.isdecimal() and 1 <= int(port) <= 65535):
        raise ClusterError(
            f"{_capital(where)} has no valid port: {text!r}.",
            remedy="give each worker a free port from 1 to 65535, the same text in the TF_CONFIG of all workers.",
        )
    return Address(host, int(port))


def _split(bare: str, where: str, text: str) -> tuple[str, str]:
    """Returns host and port as texts."""
    if bare.startswith("["):
        host, bracket, rest = bare[1:].partition("]")
        if not bracket or not rest.startswith(":"):
            raise ClusterError(f"{_capital(where)} has no port: {text!r}.", remedy=f"write for example {_EXAMPLE}.")
        return host, rest[1:]
    host, colon, port = bare.rpartition(":")
    if not colon:
        raise ClusterError(
            f"{_capital(where)} has no port: {text!r}.", remedy=f"write for example {text.strip()}:2222."
        )
    if ":" in host:
        raise ClusterError(
            f"{_capital(where)} looks like IPv6 without brackets: {text!r}.",
            remedy=f"write the host in brackets, for example {_EXAMPLE}.",
        )
    return host, port


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
