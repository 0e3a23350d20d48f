"""The verbs of PMI-1, with which MPI processes find each other, as a function of state and line.

MPI writes lines such as `cmd=put kvsname=k key=a value=b` and expects one line back. A launcher such as mpiexec
usually answers them; here the coordinator does, so that MPI starts from plain processes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_MAX_KEY = 64
_MAX_VALUE = 1024
_MAX_NAME = 256
_MAX_KEYS_A_WORKER = 64


class PmiError(ValueError):
    """A line that is not a request of PMI-1, or asks for more than is allowed."""


@dataclass(frozen=True)
class Reply:
    """A line for one worker, without its newline."""

    rank: int
    line: str


class Space:
    """The key-value space of one job and the barrier of its workers.

    Args:
        size: Number of workers.
        name: Name of the space; MPI derives names in shared memory from it, so it must be unique.
        places: Of each rank, a text equal for workers that can share memory.
    """

    def __init__(self, size: int, name: str, places: Sequence[str]) -> None:
        self._size = size
        self._name = name
        self._values: dict[str, str] = {}
        self._in_barrier: set[int] = set()
        mapping = process_mapping(places)
        # Without the mapping MPI compares host names instead.
        if len(mapping) <= _MAX_VALUE:
            self._values["PMI_process_mapping"] = mapping

    def handle(self, rank: int, line: str) -> list[Reply]:
        """Answers one request.

        Args:
            rank: Who asks.
            line: What it wrote, without the newline.

        Returns:
            Lines to send; a barrier answers everyone once the last has arrived.

        Raises:
            PmiError: If the request is not understood.
        """
        fields = dict(part.split("=", 1) for part in line.split(" ") if "=" in part)
        match fields.get("cmd"):
            case "init":
                answer = "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1"
            case "get_maxes":
                answer = f"cmd=maxes rc=0 kvsname_max={_MAX_NAME} keylen_max={_MAX_KEY} vallen_max={_MAX_VALUE}"
            case "get_appnum":
                answer = "cmd=appnum rc=0 appnum=0"
            case "get_my_kvsname":
                answer = f"cmd=my_kvsname rc=0 kvsname={self._name}"
            case "get_universe_size":
                answer = f"cmd=universe_size rc=0 size={self._size}"
            case "put":
                answer = self._put(line, fields)
            case "get":
                value = self._values.get(fields.get("key", ""))
                found = f"rc=0 msg=success value={value}" if value is not None else "rc=-1 msg=key_not_found value="
                answer = f"cmd=get_result {found}"
            case "barrier_in":
                return self._barrier(rank)
            case "finalize":
                answer = "cmd=finalize_ack rc=0"
            case "abort":
                return []
            case _:
                raise PmiError(f"Not a request of PMI-1: {line[:80]!r}.")
        return [Reply(rank, answer)]

    def _put(self, line: str, fields: dict[str, str]) -> str:
        key = fields.get("key", "")
        # The value may hold blanks: it is the rest of the line.
        value = line.partition(" value=")[2]
        if not key or len(key) > _MAX_KEY or len(value) > _MAX_VALUE:
            raise PmiError(f"Key or value has a wrong length: {line[:80]!r}.")
        if len(self._values) >= _MAX_KEYS_A_WORKER * self._size + 1:
            raise PmiError("Too many keys.")
        self._values[key] = value
        return "cmd=put_result rc=0 msg=success"

    def _barrier(self, rank: int) -> list[Reply]:
        self._in_barrier.add(rank)
        if len(self._in_barrier) < self._size:
            return []
        self._in_barrier.clear()
        return [Reply(r, "cmd=barrier_out rc=0") for r in range(self._size)]


def process_mapping(places: Sequence[str]) -> str:
    """Tells MPI which ranks share a host.

    Args:
        places: Of each rank, a text equal for workers that can share memory.

    Returns:
        Blocks of (first node, number of nodes, ranks a node), e.g. "(vector,(0,2,4))" for two nodes of four.
    """
    numbers: dict[str, int] = {}
    runs: list[list[int]] = []
    for place in places:
        node = numbers.setdefault(place, len(numbers))
        if runs and runs[-1][0] == node:
            runs[-1][1] += 1
        else:
            runs.append([node, 1])
    blocks: list[list[int]] = []
    for node, ranks in runs:
        if blocks and blocks[-1][2] == ranks and blocks[-1][0] + blocks[-1][1] == node:
            blocks[-1][1] += 1
        else:
            blocks.append([node, 1, ranks])
    return "(vector," + ",".join(f"({node},{count},{ranks})" for node, count, ranks in blocks) + ")"
