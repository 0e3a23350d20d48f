"""`unisono run` with real processes and scripts that need no Keras."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from unisono.launch import ports, processes
from unisono.launch.plan import WorkerPlan

SECONDS = 60.0

HEAD = """
import json, os, signal, subprocess, sys, time
rank = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
def ready():
    # A file that is closed by its destructor would swallow a KeyboardInterrupt.
    with open(f"{rank}.part", "w") as file:
        file.write(str(os.getpid()))
    os.rename(f"{rank}.part", f"ready{rank}")
def await_file(name):
    end = time.monotonic() + 50
    while not os.path.exists(name) or not open(name).read():
        assert time.monotonic() < end, f"{name} never came"
        time.sleep(0.01)
"""


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], Path]:
    """Writes a script that knows its `rank`."""

    def write(text: str, name: str = "train.py") -> Path:
        path = tmp_path / name
        path.write_text(HEAD + textwrap.dedent(text))
        return path

    return write


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "unisono", *map(str, arguments)]


def environ(**more: str) -> dict[str, str]:
    mine = {name: text for name, text in os.environ.items() if name not in ("TF_CONFIG", "OMP_NUM_THREADS")}
    return {**mine, **more}


def unisono(*arguments: object, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments), cwd=cwd, env=environ(**more), capture_output=True, text=True, timeout=SECONDS
    )


@contextlib.contextmanager
def running(*arguments: object, cwd: Path) -> Iterator[subprocess.Popen[str]]:
    """A launcher in the background; whatever the test does, nothing of it is left."""
    process = subprocess.Popen(
        command(*arguments), cwd=cwd, env=environ(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        children = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
        for child in [*children, process]:
            with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
                child.kill()
        process.communicate(timeout=SECONDS)


def awaited(path: Path) -> int:
    """Returns the process number that a worker wrote to a file."""
    end = time.monotonic() + SECONDS
    while not path.exists() or not path.read_text():
        assert time.monotonic() < end, f"{path.name} never came"
        time.sleep(0.01)
    return int(path.read_text())


def gone(pid: int, seconds: float = 10.0) -> bool:
    """Whether a process ends within these seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.02)
    return False


def test_each_worker_knows_who_it_is(script, tmp_path):
    script("print(rank, sys.argv[1:], os.environ['TF_CONFIG'])")
    done = unisono("run", "-n", 3, "train.py", "-n", "7", "--own", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = sorted(done.stdout.splitlines())
    assert [line[:33] for line in lines] == [f"[worker {i}] {i} ['-n', '7', '--own']" for i in range(3)]
    clusters = {line.partition('"cluster": ')[2].partition("}")[0] for line in lines}
    assert len(clusters) == 1
    assert done.stderr.count("\n") == 1, done.stderr


def test_a_module(script, tmp_path):
    (tmp_path / "package").mkdir()
    script("print(rank, __name__, sys.argv[1:])", "package/module.py")
    done = unisono("run", "-n", 2, "-m", "package.module", "-m", "x", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"[worker {i}] {i} __main__ ['-m', 'x']" for i in range(2)]


def test_workers_share_the_cores(script, tmp_path):
    script("print(*sorted(os.sched_getaffinity(0)), os.environ.get('OMP_NUM_THREADS'))")
    usable = sorted(os.sched_getaffinity(0))
    done = unisono("run", "-n", len(usable), "train.py", cwd=tmp_path)
    found = sorted(line.partition("] ")[2] for line in done.stdout.splitlines())
    assert found == sorted(f"{core} None" for core in usable), done.stderr
    done = unisono("run", "-n", len(usable) + 1, "train.py", cwd=tmp_path)
    found = [line.partition("] ")[2] for line in done.stdout.splitlines()]
    assert found == [f"{' '.join(map(str, usable))} 1"] * (len(usable) + 1), done.stderr
    done = unisono("run", "-n", 1, "train.py", cwd=tmp_path, OMP_NUM_THREADS="5")
    assert done.stdout == f"[worker 0] {' '.join(map(str, usable))} 5\n"
    assert "OMP_NUM_THREADS=5 is set" in done.stderr


def test_lines_are_never_mixed(script, tmp_path):
    script(
        """
        for i in range(300):
            for piece in (f"{rank}", "." * 200, f" {i}", "\\n"):
                sys.stdout.write(piece)
        """
    )
    done = unisono("run", "-n", 3, "train.py", cwd=tmp_path)
    lines = done.stdout.splitlines()
    for rank in range(3):
        mine = [line for line in lines if line.startswith(f"[worker {rank}] ")]
        assert mine == [f"[worker {rank}] {rank}{'.' * 200} {i}" for i in range(300)]
    assert len(lines) == 900


def test_output_appears_as_it_is_written_and_a_line_needs_no_end(script, tmp_path):
    script("print('first'); await_file('go') if rank == 0 else None; print('last', end='')")
    with running("run", "-n", 1, "train.py", cwd=tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "[worker 0] first\n"
        (tmp_path / "go").write_text("1")
        out, _ = process.communicate(timeout=SECONDS)
    assert out == "[worker 0] last\n"


def test_standard_streams_stay_apart_and_input_is_empty(script, tmp_path):
    script("print('in:', repr(sys.stdin.read())); print('err', file=sys.stderr)")
    done = unisono("run", "-n", 1, "train.py", cwd=tmp_path)
    assert done.stdout == "[worker 0] in: ''\n"
    assert done.stderr.splitlines()[1:] == ["[worker 0] err"]


def test_failure_of_one_stops_the_others_and_its_traceback_is_last(script, tmp_path):
    script(
        """
        if rank == 1:
            await_file("ready0")
            raise ValueError("boom on worker 1")
        ready()
        time.sleep(100)
        """
    )
    start = time.monotonic()
    done = unisono("run", "-n", 2, "train.py", cwd=tmp_path)
    assert done.returncode == 1
    assert time.monotonic() - start < processes.LINGER + processes.GRACE
    lines = done.stderr.splitlines()
    assert lines[-1] == "ValueError: boom on worker 1"
    first = lines.index("Traceback (most recent call last):")
    assert lines[first - 1].startswith("[unisono] worker 1 failed with exit code 1, ")
    assert any("worker 0 has 5 s to end by itself" in line for line in lines), done.stderr
    assert gone(awaited(tmp_path / "ready0"))


def test_the_cause_is_reported_although_another_ends_first(script, tmp_path):
    script(
        """
        if rank == 1:
            import atexit
            ready()
            atexit.register(await_file, "told")
            raise ValueError("the cause")
        await_file("ready1")
        class WorkerFailedError(Exception):
            pass
        WorkerFailedError.__module__ = "unisono.errors"
        raise WorkerFailedError("worker 1 raised ValueError: the cause")
        """
    )
    with running("run", "-n", 2, "train.py", cwd=tmp_path) as process:
        assert process.stderr is not None
        lines = []
        for line in process.stderr:
            lines.append(line.rstrip("\n"))
            if "worker 0 failed" in line:
                (tmp_path / "told").write_text("1")
        assert process.wait(SECONDS) == 1
    assert lines[-1] == "ValueError: the cause"


@pytest.mark.parametrize(
    ("how", "code", "said"),
    [
        ("sys.exit(3)", 3, "worker 1 failed with exit code 3"),
        ("os.kill(os.getpid(), signal.SIGKILL)", 137, "worker 1 was killed by signal 9 (SIGKILL)"),
        ("os.abort()", 134, "worker 1 was killed by signal 6 (SIGABRT)"),
    ],
)
def test_exit_code_of_the_first_failure(script, tmp_path, how, code, said):
    script(
        f"""
        if rank == 1:
            {how}
        """
    )
    done = unisono("run", "-n", 2, "train.py", cwd=tmp_path)
    assert done.returncode == code, done.stderr
    assert said in done.stderr


def test_a_failure_while_all_end_by_themselves_is_not_waited_for(script, tmp_path):
    script("sys.exit(rank)")
    start = time.monotonic()
    assert unisono("run", "-n", 2, "train.py", cwd=tmp_path).returncode == 1
    assert time.monotonic() - start < processes.LINGER


@pytest.mark.parametrize(
    ("signum", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGQUIT, 131)],
)
def test_a_signal_stops_all(script, tmp_path, signum, code):
    script("ready(); time.sleep(100)")
    with running("run", "-n", 2, "train.py", cwd=tmp_path) as process:
        pids = [awaited(tmp_path / f"ready{rank}") for rank in range(2)]
        process.send_signal(signum)
        _, err = process.communicate(timeout=processes.GRACE)
    assert process.returncode == code, err
    assert f"signal {int(signum)} ({signum.name}): stopping all workers." in err
    assert all(map(gone, pids))


@pytest.mark.parametrize("signum", [signal.SIGUSR1, signal.SIGUSR2])
def test_signals_for_the_workers_reach_them(script, tmp_path, signum):
    script(
        f"""
        got = []
        signal.signal({int(signum)}, lambda number, frame: got.append(number))
        ready()
        while not got:
            time.sleep(0.01)
        print("got", got)
        """
    )
    with running("run", "-n", 2, "train.py", cwd=tmp_path) as process:
        for rank in range(2):
            awaited(tmp_path / f"ready{rank}")
        process.send_signal(signum)
        out, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, err
    assert sorted(out.splitlines()) == [f"[worker {rank}] got [{int(signum)}]" for rank in range(2)]


def test_ctrl_c_lets_a_script_finish_its_work(script, tmp_path):
    script(
        """
        try:
            ready()
            time.sleep(100)
        except KeyboardInterrupt:
            print("saved")
        """
    )
    with running("run", "-n", 2, "train.py", cwd=tmp_path) as process:
        pids = [awaited(tmp_path / f"ready{rank}") for rank in range(2)]
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=processes.GRACE)
    assert sorted(out.splitlines()) == ["[worker 0] saved", "[worker 1] saved"]
    assert process.returncode == 130
    assert all(map(gone, pids))


def test_a_second_ctrl_c_does_not_wait_for_the_stubborn(script, tmp_path):
    script("signal.signal(signal.SIGINT, lambda *_: print('no')); ready(); [time.sleep(1) for _ in range(100)]")
    with running("run", "-n", 1, "train.py", cwd=tmp_path) as process:
        pid = awaited(tmp_path / "ready0")
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        assert process.stdout.readline() == "[worker 0] no\n"
        start = time.monotonic()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=SECONDS)
    assert time.monotonic() - start < processes.GRACE / 2
    assert gone(pid)


def test_the_stubborn_are_killed_with_all_they_started(script, tmp_path, capfd):
    script(
        """
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        code = "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); " \\
               "open('ready_child', 'w').write(str(os.getpid())); time.sleep(100)"
        if rank == 0:
            subprocess.Popen([sys.executable, "-c", code])
            time.sleep(100)
        await_file("ready_child")
        sys.exit(4)
        """
    )
    plans = [
        WorkerPlan(
            rank,
            (sys.executable, str(tmp_path / "train.py")),
            {**os.environ, "TF_CONFIG": f'{{"task": {{"index": {rank}}}}}'},
            (),
        )
        for rank in range(2)
    ]
    cwd = Path.cwd()
    os.chdir(tmp_path)
    try:
        start = time.monotonic()
        assert processes.run(plans, linger=0.2, grace=0.5) == 4
    finally:
        os.chdir(cwd)
    assert time.monotonic() - start < 30
    assert "worker 0 did not stop within 0.5 s: killed." in capfd.readouterr().err
    assert gone(awaited(tmp_path / "ready_child"), 1.0)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_what_a_finished_worker_left_running_is_stopped(script, tmp_path):
    script(
        """
        code = "import os, time; open('ready_child', 'w').write(str(os.getpid())); time.sleep(100)"
        subprocess.Popen([sys.executable, "-c", code])
        await_file("ready_child")
        """
    )
    start = time.monotonic()
    done = unisono("run", "-n", 1, "train.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - start < SECONDS / 2
    assert gone(awaited(tmp_path / "ready_child"), 1.0)


def test_workers_do_not_outlive_a_killed_launcher(script, tmp_path):
    script("ready(); time.sleep(100)")
    with running("run", "-n", 2, "train.py", cwd=tmp_path) as process:
        pids = [awaited(tmp_path / f"ready{rank}") for rank in range(2)]
        process.kill()
        process.communicate(timeout=SECONDS)
        assert all(map(gone, pids))


def test_a_reader_that_has_seen_enough_ends_the_job(script, tmp_path):
    script("ready(); [print(i) or time.sleep(0.001) for i in range(100_000)]")
    with running("run", "-n", 2, "train.py", cwd=tmp_path) as process:
        pids = [awaited(tmp_path / f"ready{rank}") for rank in range(2)]
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(SECONDS) == 141
        assert process.stderr is not None
        err = process.stderr.read()
    assert "Traceback" not in err
    assert "BrokenPipe" not in err
    assert all(map(gone, pids))


def test_workers_that_all_end_at_once(capfd):
    plans = [WorkerPlan(rank, ("/bin/sh", "-c", "echo out; echo err >&2"), {}, ()) for rank in range(4)]
    for _ in range(5):
        assert processes.run(plans) == 0
        out, err = capfd.readouterr()
        assert sorted(out.splitlines()) == [f"[worker {rank}] out" for rank in range(4)]
        assert sorted(err.splitlines()) == [f"[worker {rank}] err" for rank in range(4)]


def test_a_program_that_cannot_be_started_leaves_nothing(tmp_path):
    plans = [
        WorkerPlan(0, (sys.executable, "-c", "import time; time.sleep(100)"), dict(os.environ), ()),
        WorkerPlan(1, ("no-such-program",), dict(os.environ), ()),
    ]
    with pytest.raises(ValueError, match="Cannot start 'no-such-program': No such file"):
        processes.run(plans)


def test_free_ports_are_different_and_free() -> None:
    found = ports.free(5)
    assert len(set(found)) == 5
    for port in found:
        with socket.create_server(("127.0.0.1", port)):
            pass


def test_mpiexec_is_recognised(tmp_path):
    code = (
        "import os; from unisono import env; from unisono.cluster import resolve; c = resolve.resolve(env.snapshot());"
        # In one piece, as mpiexec mixes the pieces that its processes write.
        "os.write(1, f'{c.rank} {c.size} {c.bootstrap}\\n'.encode())"
    )
    mpiexec = Path(sys.executable).with_name("mpiexec")
    done = subprocess.run(
        [str(mpiexec), "-n", "2", sys.executable, "-c", code],
        env=environ(), capture_output=True, text=True, timeout=SECONDS, check=True, cwd=tmp_path,
    )  # fmt: skip
    assert sorted(done.stdout.splitlines()) == ["0 2 pmi", "1 2 pmi"]


def test_the_command_line_needs_no_engine(tmp_path):
    heavy = ["keras", "tensorflow", "jax", "torch", "mpi4py", "numpy"]
    code = f"import sys, unisono.cli; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ(), capture_output=True, text=True, timeout=SECONDS, check=True
    )
    assert done.stdout == "[]\n"
