"""Real workers, without Keras: they meet, work, fail in every way, and leave nothing behind."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import unisono
from ports import free_ports

HERE = Path(__file__).parent
SOON = 2.0
"""Seconds within which survivors must have raised; on an idle machine it takes less than 0.1."""

END = 10.0
"""Seconds within which a process must have ended, Python and all, though others keep the machine busy."""

LONGEST = 60.0


@dataclasses.dataclass
class End:
    """How a worker ended."""

    code: int
    out: str
    err: str
    at: float

    @property
    def complaints(self) -> str:
        """What it wrote on standard error, but for lines about others whose start takes longer than ten seconds."""
        lines = self.err.splitlines(keepends=True)
        return "".join(line for line in lines if " to connect, since " not in line and "be reached yet" not in line)

    @property
    def raised(self) -> float:
        """When it raised."""
        return float(self.out.rpartition("raised at ")[2])

    @property
    def tried(self) -> float:
        """How long it had tried when it raised."""
        return self.raised - float(self.out.rpartition("began at ")[2].split()[0])


class Party:
    """Starts workers and ends whatever is left of them.

    Args:
        folder: For their output.
        env: Variables for all of them.
    """

    def __init__(self, folder: Path, **env: str) -> None:
        self.folder = folder
        drop = ("TF_CONFIG", "PMI", "UNISONO_STARTUP", "UNISONO_TIMEOUT", "UNISONO_SILENCE", "PYTHONPATH")
        self.env = {name: text for name, text in os.environ.items() if not name.startswith(drop)}
        self.env.update(env, PYTHONPATH=str(Path(unisono.__file__).parent.parent))
        self.env.setdefault("UNISONO_STARTUP_TIMEOUT", "30")
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.addresses: list[str] = []

    def start(self, rank: int, do: Any = "meet", *, name: str = "", command: tuple[str, ...] = (), **plan: Any) -> None:
        name = name or str(rank)
        plan = {"addresses": self.addresses, "do": do, **plan}
        with open(self.folder / f"{name}.out", "wb") as out, open(self.folder / f"{name}.err", "wb") as err:
            self.processes[name] = subprocess.Popen(
                [*command, sys.executable, str(HERE / "runtime_worker.py"), str(rank), json.dumps(plan)],
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )

    def start_all(self, size: int, do: Any = "meet", **plan: Any) -> None:
        self.addresses = self.addresses or [f"127.0.0.1:{port}" for port in free_ports(size)]
        for rank in range(size):
            self.start(rank, do, **plan)

    def text(self, name: str, kind: str = "out") -> str:
        return (self.folder / f"{name}.{kind}").read_text()

    def await_text(self, name: str, words: str, kind: str = "out", seconds: float = LONGEST) -> float:
        """Waits until a worker has printed `words`; returns when that was."""
        deadline = time.monotonic() + seconds
        while True:
            ended = self.processes[name].poll() is not None
            if words in self.text(name, kind):
                return time.monotonic()
            assert not ended, f"{name} ended: {self.text(name, 'err')}"
            assert time.monotonic() < deadline, f"{name} did not say {words!r}: {self.text(name, 'err')}"
            time.sleep(0.02)

    def working(self, *names: str) -> None:
        """Waits until workers are in the middle of their steps."""
        for name in names:
            self.await_text(name, "ready")
        time.sleep(0.5)

    def pid(self, name: str) -> int:
        return self.processes[name].pid

    def coordinator(self, chief: str = "0") -> psutil.Process:
        deadline = time.monotonic() + LONGEST
        while True:
            # A moment after the fork, the child still looks like its parent.
            for child in psutil.Process(self.pid(chief)).children():
                if "unisono.control.server" in child.cmdline():
                    return child
            assert time.monotonic() < deadline, self.text(chief, "err")
            time.sleep(0.02)

    def connected(self, count: int, chief: str = "0") -> None:
        """Waits until so many workers have connected to the coordinator."""
        deadline = time.monotonic() + LONGEST
        while True:
            found = self.coordinator(chief).net_connections(kind="tcp")
            if sum(each.status == psutil.CONN_ESTABLISHED for each in found) >= count:
                return
            assert time.monotonic() < deadline, self.text(chief, "err")
            time.sleep(0.05)

    def ends(self, seconds: float = LONGEST) -> dict[str, End]:
        """Waits until all have ended."""
        deadline = time.monotonic() + seconds
        ended: dict[str, float] = {}
        while len(ended) < len(self.processes):
            for name, process in self.processes.items():
                if name not in ended and process.poll() is not None:
                    ended[name] = time.monotonic()
            assert time.monotonic() < deadline, {n: self.text(n, "err") for n in self.processes if n not in ended}
            time.sleep(0.02)
        return {
            name: End(process.returncode, self.text(name), self.text(name, "err"), ended[name])
            for name, process in self.processes.items()
        }

    def close(self) -> None:
        for process in self.processes.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)


@pytest.fixture
def party(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Party]:
    made = Party(tmp_path, **getattr(request, "param", {}))
    yield made
    made.close()


def env(**variables: str) -> pytest.MarkDecorator:
    """Starts the workers of a test with these variables."""
    return pytest.mark.parametrize("party", [variables], indirect=True, ids=[""])


def only(end: End) -> str:
    """Returns the last error of a worker that must have failed."""
    assert end.code == 1, end
    return end.err[end.err.rindex("\nunisono.errors.") :]


@pytest.mark.parametrize("size", [2, 3, 4])
def test_they_meet_work_and_end_without_a_word(party, size):
    party.start_all(size)
    for end in party.ends().values():
        assert (end.code, end.complaints) == (0, ""), end
        assert end.out.endswith("done\n")


def test_ipv6(party):
    party.addresses = [f"[::1]:{port}" for port in free_ports(2)]
    party.start_all(2)
    assert {(end.code, end.complaints) for end in party.ends().values()} == {(0, "")}


def test_they_meet_in_any_order(party):
    party.addresses = [f"localhost:{port}" for port in free_ports(2)]
    party.start(1)
    time.sleep(1.0)
    party.start(0)
    assert {(end.code, end.complaints) for end in party.ends().values()} == {(0, "")}


def mpiexec() -> str:
    found = Path(sys.executable).parent / "mpiexec"
    assert found.exists(), "the wheel of MPICH brings mpiexec"
    return str(found)


def test_under_mpiexec(party):
    party.start(-1, name="mpiexec", command=(mpiexec(), "-n", "3"))
    (end,) = party.ends().values()
    assert (end.code, end.complaints) == (0, ""), end
    assert end.out.count("done") == 3


def test_under_mpiexec_what_a_worker_raised_is_named(party):
    party.start(-1, name="mpiexec", command=(mpiexec(), "-n", "2"), do="raise_outside")
    (end,) = party.ends().values()
    assert end.code != 0
    assert "the picture in row 5 is broken" in end.err


@env(UNISONO_STARTUP_TIMEOUT="2")
def test_a_worker_that_never_starts_is_named(party):
    party.addresses = [f"127.0.0.1:{port}" for port in free_ports(2)]
    party.start(0)
    end = party.ends()["0"]
    assert 2 <= end.tried < 2 + SOON + 5, "a few seconds are for looking up the names of those who are missing"
    error = only(end)
    assert f"worker 1 ({party.addresses[1]}): it has never connected" in error
    assert "StartupError" in error and "UNISONO_STARTUP_TIMEOUT" in error


@env(UNISONO_STARTUP_TIMEOUT="2")
def test_a_chief_that_never_starts_is_named(party):
    party.addresses = [f"127.0.0.1:{port}" for port in free_ports(2)]
    party.start(1)
    end = party.ends()["1"]
    assert 2 <= end.tried < 2 + SOON
    assert f"could not reach worker 0 ({party.addresses[0]}) in 2 s: connection refused" in only(end)


@env(UNISONO_STARTUP_TIMEOUT="15")
def test_a_long_meeting_is_no_silence(party):
    """After ten seconds those who met say whom they wait for, and one that knows no coordinator says that."""
    party.addresses = [f"127.0.0.1:{port}" for port in free_ports(3)]
    party.start(0)
    party.start(1)
    third = party.addresses[2]
    party.addresses = [f"127.0.0.1:{port}" for port in free_ports(3)]
    party.start(2)
    ends = party.ends()
    for name in "01":
        assert f"[unisono worker {name}] waiting for worker 2 ({third}) to connect, since 1" in ends[name].err
        assert f"worker 2 ({third}): it has never connected" in only(ends[name])
    assert f"[unisono worker 2] worker 0 ({party.addresses[0]}) cannot be reached yet, after 1" in ends["2"].err


@env(UNISONO_STARTUP_TIMEOUT="2")
@pytest.mark.parametrize("rank", [0, 1])
def test_a_name_that_does_not_resolve_is_named(party, rank):
    ports = free_ports(2)
    party.addresses = [f"127.0.0.1:{ports[0]}", f"127.0.0.1:{ports[1]}"]
    party.addresses[1 - rank] = f"no-such-host.invalid:{ports[1 - rank]}"
    party.start(rank)
    error = only(party.ends()[str(rank)])
    assert f"worker {1 - rank} (no-such-host.invalid:{ports[1 - rank]})" in error
    assert "the name 'no-such-host.invalid' does not resolve here" in error or "nobody here answers" in error


@env(UNISONO_STARTUP_TIMEOUT="2")
def test_a_name_that_is_none_is_named(party):
    party.addresses = [f"no..host:{port}" for port in free_ports(2)]
    party.start(1)
    assert "the name 'no..host' does not resolve here" in only(party.ends()["1"])


def test_the_chief_says_at_once_that_its_port_is_held(party):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        party.addresses = [f"127.0.0.1:{port}", "127.0.0.1:1"]
        party.start(0)
        end = party.ends()["0"]
    assert end.tried < 2 + SOON, "two seconds are for the coordinator of a run that was just killed"
    assert f"cannot listen on port {port}" in only(end) and "another program holds it" in end.err


@env(UNISONO_STARTUP_TIMEOUT="2")
@pytest.mark.parametrize("says", [None, b"", b"SSH-2.0-OpenSSH_9.9\r\n", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_another_program_at_the_chiefs_address_is_told_apart(party, says):
    with socket.create_server(("127.0.0.1", 0)) as other:
        other.settimeout(0.05)
        party.addresses = [f"127.0.0.1:{other.getsockname()[1]}", "127.0.0.1:1"]
        party.start(1)
        while party.processes["1"].poll() is None:
            with contextlib.suppress(TimeoutError):
                connection, _ = other.accept()
                with connection, contextlib.suppress(OSError):
                    if says is None:
                        party.processes["1"].wait(LONGEST)
                    elif says:
                        connection.recv(1000)
                        connection.sendall(says)
    assert "the port is held by another program" in only(party.ends()["1"])


@pytest.mark.parametrize("strange", ["other version", "other protocol"])
def test_another_version_is_refused_with_both_named(party, strange):
    party.start_all(2, strange={"1": strange})
    party.await_text("1", "StartupError", "err")
    if strange == "other protocol":
        os.kill(party.pid("0"), signal.SIGKILL)
        assert "release" in only(party.ends()["1"])
        return
    for end in party.ends().values():
        error = only(end)
        assert f"0.0.9 on worker 1 ({party.addresses[1]})" in error
        assert f"{unisono.__version__} on worker 0 ({party.addresses[0]})" in error


@env(UNISONO_STARTUP_TIMEOUT="4")
def test_a_worker_with_another_cluster_is_refused_by_name(party):
    ports = free_ports(3)
    party.addresses = [f"127.0.0.1:{port}" for port in ports[:2]]
    party.start(0)
    party.addresses = [party.addresses[0], f"127.0.0.1:{ports[2]}"]
    party.start(1)
    ends = party.ends()
    assert f"lists itself as 127.0.0.1:{ports[2]}, the chief lists it as 127.0.0.1:{ports[1]}" in only(ends["1"])
    assert ends["1"].at < ends["0"].at
    assert "was turned away" in only(ends["0"]) and "another TF_CONFIG" in ends["0"].err


@env(UNISONO_STARTUP_TIMEOUT="2")
def test_a_worker_of_another_start_is_named(party):
    party.addresses = [f"127.0.0.1:{port}" for port in free_ports(2)]
    party.start(0)
    party.env["UNISONO_GENERATION"] = "1"
    party.start(1)
    assert "belongs to start number 1 of the job, this is 0.\n" in only(party.ends()["1"])


def test_the_second_worker_of_one_rank_is_refused(party):
    party.addresses = [f"127.0.0.1:{port}" for port in free_ports(3)]
    party.start(0)
    party.start(1)
    party.connected(2)
    party.start(1, name="again")
    party.await_text("again", "already here", "err")
    party.start(2)
    ends = party.ends()
    assert f"process {party.pid('1')} on {socket.gethostname()}" in only(ends.pop("again"))
    assert {(end.code, end.complaints) for end in ends.values()} == {(0, "")}


def test_a_chief_started_again_finds_the_workers_that_waited(party):
    party.addresses = [f"127.0.0.1:{port}" for port in free_ports(3)]
    party.start(0, name="first")
    party.start(1)
    party.connected(2, "first")
    os.kill(party.pid("first"), signal.SIGKILL)
    party.start(0)
    party.start(2)
    ends = party.ends()
    assert ends.pop("first").code == -9
    assert {(end.code, end.complaints) for end in ends.values()} == {(0, "")}


@pytest.mark.parametrize(("size", "victim"), [(2, 1), (3, 2), (2, 0), (4, 0)])
def test_a_killed_worker_is_named_and_ends_the_others(party, size, victim):
    party.start_all(size, "work")
    party.working(*map(str, range(size)))
    killed = time.monotonic()
    os.kill(party.pid(str(victim)), signal.SIGKILL)
    ends = party.ends()
    assert ends.pop(str(victim)).code == -9
    for end in ends.values():
        error = only(end)
        assert f"WorkerLostError: Worker {victim} ({party.addresses[victim]}) is lost" in error
        assert end.raised - killed < SOON
        assert end.at - killed < END


def test_a_killed_coordinator_ends_the_job_with_a_reason(party):
    party.start_all(2, "work")
    party.working("0", "1")
    coordinator, killed = party.coordinator(), time.monotonic()
    coordinator.kill()
    for end in party.ends().values():
        error = only(end)
        assert f"The coordinator, which worker 0 ({party.addresses[0]}) runs, is lost. Its connection ended" in error
        assert end.raised - killed < SOON


def test_all_killed_at_once_leave_no_coordinator(party):
    party.start_all(3, "work")
    party.working("0", "1", "2")
    coordinator = party.coordinator()
    for name in "012":
        os.kill(party.pid(name), signal.SIGKILL)
    party.ends()
    coordinator.wait(END)


def test_ctrl_c_ends_all_and_the_coordinator(party):
    party.start_all(2, "work")
    party.working("0", "1")
    coordinator = party.coordinator()
    for name in "01":
        os.killpg(party.pid(name), signal.SIGINT)
    for end in party.ends().values():
        assert end.code != 0 and ("KeyboardInterrupt" in end.err or "WorkerFailedError" in end.err), end
    coordinator.wait(END)


def test_a_death_while_mpi_starts_is_named(party):
    party.start_all(3, strange={"2": "dies while MPI starts"})
    ends = party.ends()
    assert ends.pop("2").code == -9
    for end in ends.values():
        assert f"Worker 2 ({party.addresses[2]}) is lost" in only(end)


def test_a_child_process_does_not_hide_the_death_of_its_parent(party):
    party.start_all(2, {"0": "work", "1": "die_with_a_child"})
    ends = party.ends()
    assert ends["0"].raised - ends["1"].at < SOON
    assert "Worker 1" in only(ends["0"])


def test_a_child_that_ends_does_not_end_the_job(party):
    party.start_all(2, "fork_and_go_on")
    assert {(end.code, end.complaints) for end in party.ends().values()} == {(0, "")}


def test_a_program_that_a_worker_starts_may_use_mpi_alone(party):
    party.start_all(2, "start_programs")
    assert {(end.code, end.complaints) for end in party.ends().values()} == {(0, "")}


def test_a_twin_that_a_worker_starts_is_refused_at_once(party):
    party.start_all(2, "start_twin")
    ends = party.ends(LONGEST / 2)
    assert {(end.code, end.complaints) for end in ends.values()} == {(0, "")}
    for name, end in ends.items():
        assert "the twin ended with 1" in end.out
        assert f"ConfigurationError: This process was started by worker {name} (process {party.pid(name)})" in end.out


def test_a_forked_child_is_refused_at_once(party):
    party.start_all(2, "fork_and_exchange")
    ends = party.ends(LONGEST / 2)
    assert {(end.code, end.complaints) for end in ends.values()} == {(0, "")}
    for name, end in ends.items():
        said = f"refused: This process was forked from worker {name} (process {party.pid(name)})"
        assert end.out.count(said) == 2


@env(UNISONO_SILENCE_TIMEOUT="4")
def test_a_silent_worker_is_named_then_lost(party):
    party.start_all(2, "work")
    party.working("0", "1")
    stopped = time.monotonic()
    os.kill(party.pid("1"), signal.SIGSTOP)
    said = party.await_text("0", "has been silent", "err")
    assert 1.0 < said - stopped < 4.0
    while party.processes["0"].poll() is None:
        time.sleep(0.05)
    assert 3.0 < time.monotonic() - stopped < 4.0 + END
    os.kill(party.pid("1"), signal.SIGCONT)
    ends = party.ends()
    assert f"worker 1 ({party.addresses[1]}) has been silent for 2 s" in ends["0"].err
    assert "Nothing was heard of it for 4 s" in only(ends["0"])
    assert "WorkerLostError" in only(ends["1"])


@env(UNISONO_SILENCE_TIMEOUT="30")
def test_a_worker_that_holds_pythons_lock_for_a_while_is_not_lost(party):
    party.start_all(2, {"0": "compute_without_the_lock", "1": "compute_without_the_lock"}, seconds=3.0)
    assert {(end.code, end.complaints) for end in party.ends().values()} == {(0, "")}


@env(UNISONO_TIMEOUT="4")
def test_a_stuck_worker_is_named_then_given_up(party):
    party.start_all(3, {"0": "work", "1": "work", "2": "get_stuck"})
    for name in "01":
        party.await_text(name, "raised at")
    os.kill(party.pid("2"), signal.SIGINT)
    ends = party.ends()
    for name in "01":
        error = only(ends[name])
        assert "CollectiveTimeoutError" in error
        assert f"worker 2 ({party.addresses[2]}) has not arrived; its last report is step 5, callback" in error
        assert re.search(r"waiting in .* on channel '\w+' since 2 s: worker 2", ends[name].err)


@pytest.mark.parametrize("how", ["raise_in_fit", "raise_outside"])
def test_what_one_raised_ends_the_others_and_is_repeated(party, how):
    party.start_all(3, {"0": "work", "1": how, "2": "work"})
    ends = party.ends()
    assert ends.pop("1").code == 1
    for end in ends.values():
        error = end.err[end.err.index("\nunisono.errors.") :]
        assert f"WorkerFailedError: Worker 1 ({party.addresses[1]}) failed" in error
        assert "with ValueError: the picture in row 5 is broken" in error
        assert "runtime_worker.py" in error and "--- traceback of worker 1 ---" in error


def test_who_ends_early_is_named_by_those_who_wait(party):
    party.start_all(2, {"0": "work", "1": "stop_early"})
    ends = party.ends()
    assert ends["1"].code == 0
    assert f"Worker 1 ({party.addresses[1]}) ended its script" in only(ends["0"])
    assert "while worker 0 waits for it" in ends["0"].err


@pytest.mark.parametrize("slow", ["0", "1"])
def test_a_worker_that_ends_late_is_waited_for(party, slow):
    party.start_all(2, {slow: "end_slowly"}, seconds=3.0)
    ends = party.ends()
    assert {(end.code, end.complaints) for end in ends.values()} == {(0, "")}
    assert abs(ends["0"].at - ends["1"].at) < 2.5


@env(UNISONO_TIMEOUT="1")
def test_nobody_waits_for_ever_for_a_late_end(party):
    party.start_all(2, {"0": "end_slowly"}, seconds=4.0)
    ends = party.ends()
    assert {(end.code, end.complaints) for end in ends.values()} == {(0, "")}
    assert ends["0"].at - ends["1"].at > 1.5


def test_alone_there_are_no_sockets_threads_children_and_no_mpi():
    program = (
        "import sys, threading, psutil\n"
        "from unisono.runtime import start\n"
        "from unisono.cluster.spec import ALONE\n"
        "from unisono.collectives.options import CommunicationOptions\n"
        "job = start.connect(ALONE, CommunicationOptions())\n"
        "me = psutil.Process()\n"
        "assert me.net_connections() == [] and me.children() == [] and threading.active_count() == 1\n"
        "assert not {'mpi4py', 'keras', 'tensorflow', 'jax', 'torch'} & set(sys.modules)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(unisono.__file__).parent.parent)}
    subprocess.run([sys.executable, "-c", program], check=True, timeout=LONGEST, env=environment)
