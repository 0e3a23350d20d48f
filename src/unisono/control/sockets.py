"""Sockets as the control plane wants them."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import threading
import time
import weakref

from unisono.errors import StartupError

_IDLE_SECONDS = 5
_PROBE_SECONDS = 5
_PROBES = 4
_LAST_HOLDER_SECONDS = 2.0

_not_for_children: weakref.WeakSet[socket.socket] = weakref.WeakSet()
_fork_hook: list[bool] = []


def keep_alive(sock: socket.socket) -> None:
    """Lets the kernel find a peer whose machine is gone, within about 25 s, and sends small messages at once."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_KEEPIDLE", _IDLE_SECONDS),
        ("TCP_KEEPINTVL", _PROBE_SECONDS),
        ("TCP_KEEPCNT", _PROBES),
        ("TCP_USER_TIMEOUT", 1000 * (_IDLE_SECONDS + _PROBE_SECONDS * _PROBES)),
    ):
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def close_in_children(sock: socket.socket) -> None:
    """Closes `sock` in processes forked from this one: a connection held open by a child would hide a death."""
    if not _fork_hook:
        os.register_at_fork(after_in_child=_close_all)
        _fork_hook.append(True)
    _not_for_children.add(sock)


def _close_all() -> None:
    for sock in list(_not_for_children):
        sock.close()


def why_ended(error: OSError | None) -> str:
    """Returns a sentence on why a connection ended.

    Args:
        error: What the system said; None if the other side closed it.
    """
    if error is None or isinstance(error, ConnectionError):
        return "Its connection ended without a word: the process has died."
    return f"Its machine does not answer any more ({error.strerror or error}): it is down, or the network is cut."


def is_loopback(host: str) -> bool:
    """Whether a name or address means this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def listen(host: str, port: int) -> list[socket.socket]:
    """Opens the port at which the workers meet.

    Args:
        host: Name by which the workers know this machine. One that means only this machine is opened on the
            loopback interface alone, any other on all interfaces, because its address may be translated on the way.
        port: TCP port; 0 for any free one.

    Returns:
        Listening sockets, which may be given to a child process.

    Raises:
        StartupError: If the port is taken or forbidden.
    """
    deadline = time.monotonic() + _LAST_HOLDER_SECONDS
    while True:
        try:
            return _listen(host, port)
        except OSError as error:
            # The coordinator of a run that was killed a moment ago may still be on its way out.
            if error.errno == errno.EADDRINUSE and time.monotonic() < deadline:
                time.sleep(0.1)
                continue
            if error.errno == errno.EADDRINUSE:
                text = "another program holds it"
                remedy = (
                    "stop that program (`ss -ltnp` names it), or give the chief another port in the cluster "
                    "description of all workers."
                )
            elif error.errno == errno.EACCES:
                text, remedy = "this user may not open it", "choose a port above 1023."
            else:
                text, remedy = str(error), "check the chief's host and port in the cluster description."
            raise StartupError(
                f"Worker 0 cannot listen on port {port} (of {host}:{port}): {text}.",
                remedy=remedy,
                rank=0,
                host=f"{host}:{port}",
                phase="start-up",
            ) from None


def _listen(host: str, port: int) -> list[socket.socket]:
    if not is_loopback(host):
        dual = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if dual else socket.AF_INET
        return [socket.create_server(("", port), family=family, backlog=1024, dualstack_ipv6=dual)]
    sockets: list[socket.socket] = []
    addresses = {(info[0], str(info[4][0])) for info in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    try:
        for family, address in sorted(addresses):
            try:
                sockets.append(socket.create_server((address, port), family=family, backlog=1024))
            except OSError as error:
                # A machine may know ::1 by name only.
                if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT) or len(addresses) == 1:
                    raise
    except OSError:
        for sock in sockets:
            sock.close()
        raise
    return sockets


def resolve(host: str, seconds: float) -> list[str]:
    """Asks for the addresses of a name, within a deadline.

    Args:
        host: Name or address.
        seconds: How long to wait; the resolver of the system knows no deadline of its own.

    Returns:
        Addresses, the preferred first.

    Raises:
        TimeoutError: If there is no answer in time.
        OSError: If the name does not resolve.
    """
    result: list[list[str]] = []
    failure: list[OSError] = []

    def ask() -> None:
        try:
            infos = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
            result.append(list(dict.fromkeys(str(info[4][0]) for info in infos)))
        except OSError as error:
            failure.append(error)
        except UnicodeError as error:
            # Names such as "a..b" do not even get as far as the resolver.
            failure.append(OSError(str(error)))

    thread = threading.Thread(target=ask, name="unisono-resolve", daemon=True)
    thread.start()
    thread.join(seconds)
    if result:
        return result[0]
    if failure:
        raise failure[0]
    raise TimeoutError(f"no answer for the name {host!r} in {seconds:.0f} s")
