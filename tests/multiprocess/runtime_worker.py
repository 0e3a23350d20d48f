"""One worker of a job without Keras: meets the others, then does what the test asks of it.

Usage: python runtime_worker.py RANK '{"addresses": ["127.0.0.1:1234", ...], "do": "name of a function here", ...}'
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

import numpy as np

from unisono.cluster.spec import Address, Cluster, Task
from unisono.collectives.options import CommunicationOptions
from unisono.errors import ConfigurationError
from unisono.runtime import start
from unisono.runtime.job import Runtime


def cluster(rank: int, plan: dict[str, Any]) -> Cluster:
    if not plan.get("addresses"):
        rank, size = int(os.environ["PMI_RANK"]), int(os.environ["PMI_SIZE"])
        return Cluster(tuple(Task("worker", i) for i in range(size)), (), rank, "mpiexec", bootstrap="pmi")
    split = [text.rpartition(":") for text in plan["addresses"]]
    addresses = tuple(Address(host.strip("[]"), int(port)) for host, _, port in split)
    return Cluster(tuple(Task("worker", i) for i in range(len(addresses))), addresses, rank, "TF_CONFIG")


def steps(job: Runtime, count: int) -> None:
    """Works as a training loop does: an agreement and an exchange a step."""
    for step in range(count):
        job.report(step, "gradient exchange")
        job.agreement.all_reduce(np.ones(4))
        total = job.data.all_reduce(np.full(1000, job.rank + 1.0))
        assert total[0] == job.size * (job.size + 1) / 2
        time.sleep(0.02)


def meet(job: Runtime, plan: dict[str, Any]) -> None:
    steps(job, 5)


def work(job: Runtime, plan: dict[str, Any]) -> None:
    steps(job, 100_000)


def raise_in_fit(job: Runtime, plan: dict[str, Any]) -> None:
    steps(job, 5)
    try:
        raise ValueError("the picture in row 5 is broken")
    except ValueError as error:
        job.fail(error)
        raise


def raise_outside(job: Runtime, plan: dict[str, Any]) -> None:
    steps(job, 5)
    raise ValueError("the picture in row 5 is broken")


def stop_early(job: Runtime, plan: dict[str, Any]) -> None:
    steps(job, 5)
    sys.exit(0)


def get_stuck(job: Runtime, plan: dict[str, Any]) -> None:
    steps(job, 5)
    job.report(5, "callback")
    time.sleep(60)


def die(job: Runtime, plan: dict[str, Any]) -> None:
    steps(job, 5)
    os.kill(os.getpid(), signal.SIGKILL)


def die_with_a_child(job: Runtime, plan: dict[str, Any]) -> None:
    steps(job, 5)
    if os.fork() == 0:
        time.sleep(8)
        os._exit(0)
    time.sleep(0.3)
    os.kill(os.getpid(), signal.SIGKILL)


def fork_and_go_on(job: Runtime, plan: dict[str, Any]) -> None:
    child = os.fork()
    if child == 0:
        sys.exit(0)
    os.waitpid(child, 0)
    steps(job, 5)


def start_programs(job: Runtime, plan: dict[str, Any]) -> None:
    """Starts what uses MPI itself, and is no worker."""
    program = "from mpi4py import MPI; assert MPI.COMM_WORLD.Get_size() == 1"
    subprocess.run([sys.executable, "-c", program], check=True)
    steps(job, 5)


def start_twin(job: Runtime, plan: dict[str, Any]) -> None:
    """Starts this script again, as processes do that `multiprocessing` spawns."""
    twin = subprocess.run([sys.executable, *sys.argv], capture_output=True, text=True)
    print(f"the twin ended with {twin.returncode}: {twin.stderr}", flush=True)
    steps(job, 5)


def fork_and_exchange(job: Runtime, plan: dict[str, Any]) -> None:
    """Has a forked process do what only the worker can."""
    steps(job, 5)
    child = os.fork()
    if child == 0:
        for use in (lambda: steps(job, 1), lambda: start.connect(job.cluster, CommunicationOptions())):
            try:
                use()
            except ConfigurationError as error:
                print(f"refused: {error}", flush=True)
        os._exit(0)
    os.waitpid(child, 0)
    steps(job, 5)


def end_slowly(job: Runtime, plan: dict[str, Any]) -> None:
    steps(job, 5)
    time.sleep(plan["seconds"])


def compute_without_the_lock(job: Runtime, plan: dict[str, Any]) -> None:
    """Holds Python's lock for seconds, as a library may: no heartbeat gets out."""
    steps(job, 5)
    sys.setswitchinterval(1000.0)
    end = time.monotonic() + plan["seconds"]
    while time.monotonic() < end:
        pass
    sys.setswitchinterval(0.005)
    steps(job, 5)


def before(plan: dict[str, Any], rank: int) -> None:
    """Makes this worker strange before it meets the others."""
    strange = plan.get("strange", {}).get(str(rank), "")
    if strange == "other version":
        import unisono

        unisono.__version__ = "0.0.9"
    elif strange == "other protocol":
        from unisono.control import wire

        wire.PROTOCOL = 99
    elif strange == "dies while MPI starts":
        from unisono.collectives import mpi_start

        def die_here(*arguments: Any) -> Any:
            time.sleep(1.0)
            os.kill(os.getpid(), signal.SIGKILL)

        mpi_start.start = die_here


def main() -> None:
    rank, plan = int(sys.argv[1]), json.loads(sys.argv[2])
    before(plan, rank)
    began = time.monotonic()
    own = plan["do"] if isinstance(plan["do"], str) else plan["do"].get(str(rank), "meet")
    try:
        job = start.connect(cluster(rank, plan), CommunicationOptions())
        print(f"ready in {time.monotonic() - began:.3f}", flush=True)
        globals()[own](job, plan)
    except Exception:
        # The clock is the same for all processes of a machine.
        print(f"began at {began} raised at {time.monotonic()}", flush=True)
        raise
    print("done", flush=True)


if __name__ == "__main__":
    main()
