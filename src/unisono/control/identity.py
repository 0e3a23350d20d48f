"""What a worker says about itself: where it runs, which versions, which cluster it believes in."""

from __future__ import annotations

import hashlib
import os
import platform
import socket
import sys

import unisono
from unisono.cluster.spec import Cluster
from unisono.control.messages import Hello
from unisono.control.roster import BACKEND


def hello(cluster: Cluster, generation: int) -> Hello:
    """Returns the first message of this worker."""
    return Hello(
        rank=cluster.rank,
        size=cluster.size,
        address=str(cluster.addresses[cluster.rank]) if cluster.addresses else "",
        host=socket.gethostname(),
        pid=os.getpid(),
        place=place(),
        fingerprint=fingerprint(cluster),
        generation=generation,
        versions=versions(),
    )


def fingerprint(cluster: Cluster) -> str:
    """Returns a digest equal on all workers of a job, and different if their cluster descriptions differ."""
    text = repr([(task.type, task.index) for task in cluster.tasks] + [str(a) for a in cluster.addresses])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def versions() -> dict[str, str]:
    """Returns the versions that workers must have in common; Keras's only if the script has imported it."""
    found = {"unisono": unisono.__version__, "Python": ".".join(platform.python_version_tuple()[:2])}
    keras = sys.modules.get("keras")
    if keras is not None and hasattr(keras, "__version__"):
        found["Keras"] = str(keras.__version__)
        if hasattr(keras, "config"):
            found[BACKEND] = str(keras.config.backend())
    return found


def place() -> str:
    """Returns a digest equal for processes that can share memory with each other.

    Host names alone would not do: two machines may both be called "localhost", and two containers on one machine
    share memory only if they see the same /dev/shm and the same process numbers.
    """
    parts = [socket.gethostname(), str(os.getuid())]
    boot = "/proc/sys/kernel/random/boot_id"
    if os.path.exists(boot):
        with open(boot, encoding="ascii") as file:
            parts.append(file.read().strip())
    if os.path.exists("/dev/shm"):
        parts.append(str(os.stat("/dev/shm").st_dev))
    if os.path.exists("/proc/self/ns/pid"):
        parts.append(os.readlink("/proc/self/ns/pid"))
    return hashlib.sha256("|".join(parts).encode()).hexdigest()[:16]
