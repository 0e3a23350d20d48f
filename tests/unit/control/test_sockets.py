"""Names and causes; what needs an open socket is tried with real workers."""

import errno

import pytest

from unisono.control.sockets import is_loopback, why_ended


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.3.2.1", "::1"])
def test_names_of_this_machine_only(host):
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["10.0.0.7", "fd00::2", "worker-0", "0.0.0.0", "localhost.example.org"])
def test_names_that_others_may_use(host):
    assert not is_loopback(host)


def test_a_dead_process_and_a_dead_machine_are_told_apart():
    assert "process has died" in why_ended(None)
    assert "process has died" in why_ended(ConnectionResetError(errno.ECONNRESET, "reset"))
    assert "network is cut" in why_ended(TimeoutError(errno.ETIMEDOUT, "timed out"))
    assert "network is cut" in why_ended(OSError(errno.EHOSTUNREACH, "no route"))
