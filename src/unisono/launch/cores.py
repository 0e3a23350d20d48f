"""The processor cores this process may use."""

from __future__ import annotations

import os
from pathlib import Path

_TOPOLOGY = Path("/sys/devices/system/cpu")


def available(topology: Path = _TOPOLOGY) -> tuple[int, ...]:
    """Returns the numbers of the logical cores this process may run on, neighbours side by side.

    The two hardware threads of one core come next to each other, and the cores of one socket before those of
    the next, so that a run of consecutive entries shares as little as possible with the other entries. What
    `taskset` or a container's cpuset allows is respected; a CPU quota, which is a share of time, is not seen.

    Args:
        topology: Folder where the kernel describes the cores.
    """
    return tuple(sorted(os.sched_getaffinity(0), key=lambda core: (*_place(core, topology), core)))


def _place(core: int, topology: Path) -> tuple[int, int]:
    """Returns the socket and the core within it; (0, number) where the kernel does not say."""
    folder = topology / f"cpu{core}" / "topology"
    try:
        return int((folder / "physical_package_id").read_text()), int((folder / "core_id").read_text())
    except (OSError, ValueError):
        return 0, core
