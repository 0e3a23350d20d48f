"""All-reduce of float32 between two workers of one core each: the engine, raw MPI, gloo, TensorFlow's ring.

    python benchmarks/allreduce.py            prints a table in Markdown

All four live in the same two processes and take turns at every repetition, so that whatever else the machine does
meets all of them alike. Medians of rank 0; gloo and the ring are left out where torch or TensorFlow is missing.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

SIZES = (1, 1_000, 10_000, 100_000, 1_000_000, 10_000_000)
WORKERS = 2
SECONDS = 900
RAW, ENGINE, GLOO, RING = "raw MPI", "Unisono", "gloo (torch)", "RING (TensorFlow)"

Operation = Callable[[], object]
Row = dict[str, float]
"""Elements under "floats", and microseconds under the name of each engine."""


def measure(sizes: Sequence[int] = SIZES, effort: float = 1.0) -> list[Row]:
    """Runs the comparison.

    Args:
        sizes: Numbers of float32 elements.
        effort: Factor on the number of repetitions.

    Returns:
        One row for each size, with medians in microseconds.
    """
    mpiexec = shutil.which("mpiexec", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if mpiexec is None:
        raise SystemExit("mpiexec of the mpich package is missing: pip install mpich")
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder, "rows.json")
        plan = {"sizes": list(sizes), "effort": effort, "ports": free_ports(1 + WORKERS), "result": str(result)}
        command = [mpiexec, "-n", str(WORKERS), sys.executable, __file__, "--worker", json.dumps(plan)]
        environment = {
            **os.environ,
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "OMP_NUM_THREADS": "1",
            "TF_NUM_INTRAOP_THREADS": "1",
            "TF_NUM_INTEROP_THREADS": "1",
            "GLOO_SOCKET_IFNAME": "lo",
        }
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS)
        if ended.returncode != 0:
            raise SystemExit(f"a worker failed:\n{ended.stdout}{ended.stderr}")
        return json.loads(result.read_text())


def markdown(rows: Sequence[Row]) -> str:
    """Returns the rows as a table: microseconds of raw MPI, and every other engine with its ratio to it."""
    names = [name for name in (ENGINE, GLOO, RING) if name in rows[0]]
    lines = ["| floats | " + " | ".join([RAW, *names]) + " |", "|---" * (2 + len(names)) + "|"]
    for row in rows:
        cells = [f"{row['floats']:,.0f}", f"{row[RAW]:,.0f} us"]
        cells += [f"{row[name]:,.0f} us ({row[name] / row[RAW]:.2f} x)" for name in names]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Patience:
    """A watch that gives the others a minute."""

    def waiting(self, operation: str, seconds: float) -> None:
        if seconds > 60:
            raise TimeoutError(f"{operation}: no answer for {seconds:.0f} s")

    def arrived(self, channel: str, count: int) -> None:
        pass


def work(plan: dict[str, Any]) -> None:
    """What each of the two processes does."""
    import numpy as np

    rank = int(os.environ["PMI_RANK"])
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})
    # torch before TensorFlow: the other way round they crash.
    gloo = gloo_engine(rank, plan["ports"][0]) if importlib.util.find_spec("torch") else None
    ring = ring_engine(rank, plan["ports"][1:]) if importlib.util.find_spec("tensorflow") else None

    from unisono.collectives import mpi

    channel = mpi.connect(Patience())
    from mpi4py import MPI

    raw = MPI.COMM_WORLD.Dup()
    rows: list[Row] = []
    for size in plan["sizes"]:
        array = np.ones(size, np.float32)
        operations: dict[str, Operation] = {
            RAW: lambda array=array: raw.Allreduce(MPI.IN_PLACE, array),
            ENGINE: lambda array=array: channel.all_reduce(array),
        }
        if gloo is not None:
            operations[GLOO] = gloo(size)
        if ring is not None:
            operations[RING] = ring(size)
        repeats = max(3, round(plan["effort"] * min(300, 40_000_000 / size)))
        rows.append({"floats": size, **medians(operations, repeats, channel.barrier, array)})
    channel.close()
    if rank == 0:
        Path(plan["result"]).write_text(json.dumps(rows))


def medians(operations: dict[str, Operation], repeats: int, barrier: Operation, array: Any) -> dict[str, float]:
    """Lets the operations take turns; returns the median of each in microseconds."""
    times: dict[str, list[float]] = {name: [] for name in operations}
    for repeat in range(repeats + 2):
        for name, operation in operations.items():
            array.fill(1)
            barrier()
            began = time.perf_counter()
            operation()
            if repeat >= 2:
                times[name].append(time.perf_counter() - began)
    return {name: median(row) * 1e6 for name, row in times.items()}


def gloo_engine(rank: int, port: int) -> Callable[[int], Operation]:
    import torch
    import torch.distributed

    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=WORKERS)

    def prepare(size: int) -> Operation:
        array = torch.ones(size)
        return lambda: torch.distributed.all_reduce(array)

    return prepare


def ring_engine(rank: int, ports: Sequence[int]) -> Callable[[int], Operation]:
    workers = [f"127.0.0.1:{port}" for port in ports]
    os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}})
    import tensorflow as tf

    options = tf.distribute.experimental.CommunicationOptions(
        implementation=tf.distribute.experimental.CommunicationImplementation.RING
    )
    strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)

    (device,) = strategy.extended.worker_devices

    def on_replica(array: Any) -> Any:
        # The ring wants to know where the array lies.
        with tf.device(device):
            return tf.distribute.get_replica_context().all_reduce("sum", tf.identity(array))

    reduce = tf.function(lambda array: strategy.run(on_replica, args=(array,)))

    def prepare(size: int) -> Operation:
        with tf.device("CPU:0"):
            array = tf.ones(size)
        return lambda: reduce(array).numpy()

    return prepare


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--worker", type=json.loads, help=argparse.SUPPRESS)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="numbers of float32 elements")
    parser.add_argument("--effort", type=float, default=1.0, help="factor on the number of repetitions")
    options = parser.parse_args()
    if options.worker:
        work(options.worker)
    else:
        print(markdown(measure(options.sizes, options.effort)))


if __name__ == "__main__":
    main()
