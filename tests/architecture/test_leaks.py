"""The guard of `conftest.py` sees what it is there to see."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import leaks
import pytest


def kinds(before: leaks.Belongings) -> set[str]:
    return {found.split(":")[0] for found in leaks.leaks(before, grace_seconds=0)}


def test_nothing_left_is_nothing_found() -> None:
    assert leaks.leaks(leaks.belongings(), grace_seconds=0) == []


def test_a_process_is_found() -> None:
    before = leaks.belongings()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        found = kinds(before)
        process.communicate(b"\n")
    assert found == {"processes"}


def test_a_child_is_found_while_its_environment_is_empty() -> None:
    before = leaks.belongings()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env={}) as process:
        found = kinds(before)
        process.communicate(b"\n")
    assert found == {"processes"}


def test_a_process_whose_parent_has_gone_is_found() -> None:
    before = leaks.belongings()
    (read, write), (ready, begun) = os.pipe(), os.pipe()
    inner = f"import os; os.close({write}); os.write({begun}, b'.'); os.read({read}, 1)"
    passed = (read, write, begun)
    outer = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {inner!r}], pass_fds={passed})"
    subprocess.run([sys.executable, "-c", outer], pass_fds=passed, check=True)
    # While it becomes another program it has, for a moment, no environment to be known by.
    os.read(ready, 1)
    found = kinds(before)
    for end in (*passed, ready):
        os.close(end)
    assert found == {"processes"}


def test_a_process_nobody_waited_for_is_found() -> None:
    before = leaks.belongings()
    process = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    found = kinds(before)
    process.wait()
    assert found == {"processes"}


def test_a_thread_is_found() -> None:
    before = leaks.belongings()
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    found = kinds(before)
    end.set()
    thread.join()
    assert found == {"threads"}


def test_a_listening_socket_is_found() -> None:
    before = leaks.belongings()
    with socket.create_server(("127.0.0.1", 0)):
        found = kinds(before)
    assert found == {"listening sockets"}


def test_a_variable_is_found() -> None:
    before = leaks.belongings()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UNISONO_SOMETHING", "1")
        assert kinds(before) == {"environment variables"}


def test_shared_memory_is_found_after_a_test_with_child_processes() -> None:
    before = leaks.belongings()
    path = Path("/dev/shm", f"mpich_shm_test_of_leaks_{os.getpid()}")
    path.write_bytes(b"\0")
    assert kinds(before) == set()
    subprocess.run([sys.executable, "-c", ""], check=True)
    found = kinds(before)
    path.unlink()
    assert found == {"shared memory"}
