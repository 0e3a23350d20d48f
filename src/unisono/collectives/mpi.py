"""The engine over MPI: mpi4py and MPICH.

Blocking MPI calls cannot be left, so every operation is started, then polled (see `patience`), and the watch is
asked while it lasts. MPI reports few errors of such operations: a lost peer shows as one that never ends, and
arrays of different sizes not at all (see `ledger`).

Once an operation has failed, MPI's state is unknown: all channels refuse further calls, what was under way is
abandoned but kept in memory (MPI may still write there), and MPI is not ended in good order.
"""

from __future__ import annotations

import functools
import os
import socket
import zlib
from typing import Any

import numpy as np

from unisono.collectives import ledger, mpi_start, patience
from unisono.collectives.base import Collectives, ReduceOp, Watch
from unisono.collectives.checks import check_in_place, check_plain, check_reducible, check_root
from unisono.collectives.mpi_process import MpiProcess
from unisono.collectives.objects import all_gather_object
from unisono.collectives.packing import pieces
from unisono.errors import DivergenceError, StartupError, UnisonoError

# MPI's working memory is as large as the piece; larger pieces are not faster.
_PIECE_BYTES = 16 << 20
_MAX_DIMS = 64
# Enough to take the way of large messages: 128 KiB.
_TRIED_ELEMENTS = 1 << 15
_BEGUN_AT_MOST = 16

# Numbers of the operations in the ledger; a broadcast adds its root, a reduction what `MpiProcess` says.
_GATHER, _BARRIER, _CLOSE = range(3)
_BROADCAST = 1 << 18
_SUM, _MAX = ReduceOp.SUM, ReduceOp.MAX


def connect(watch: Watch, *, pmi: tuple[int, int, int] | None = None) -> MpiCollectives:
    """Starts MPI and opens the first channel; a collective call.

    Args:
        watch: Told while operations wait; ends a wait by raising.
        pmi: (file descriptor, rank, size): an open connection to a PMI-1 server; None under an MPI launcher.

    Returns:
        The channel "main".

    Raises:
        ConfigurationError: If MPI cannot be used in this process any more.
        StartupError: If MPI starts but moves wrong data.
    """
    mpi, owned = mpi_start.start(pmi, functools.partial(watch.waiting, "the start of MPI"))
    world = mpi.COMM_WORLD
    world.Set_errhandler(mpi.ERRORS_RETURN)
    shared = MpiProcess(mpi, watch, owned)
    # The first channel is a communicator of its own, so that a user's mpi4py code cannot meet ours.
    first = MpiCollectives(shared, world, "start-up")
    try:
        main = first.channel("main")
        hosts = all_gather_object(main, (socket.gethostname(), frozenset(os.sched_getaffinity(0))))
        shared.manner = patience.CROWDED if patience.is_crowded(hosts, main.rank) else patience.USUAL
        _try_out(main)
    finally:
        mpi_start.remove_shared_names()
    return main


class MpiCollectives(Collectives):
    """One channel: an MPI communicator of its own; made by `connect` and `channel`."""

    def __init__(self, shared: MpiProcess, comm: Any, name: str) -> None:
        self.rank: int = comm.Get_rank()
        self.size: int = comm.Get_size()
        self._shared = shared
        self._comm = comm
        self._name = name
        self._count = 0
        self._ledger = ledger.Ledger()
        self._begun: dict[int, _Begun] = {}
        self._closed = False

    def all_reduce(self, array: np.ndarray, op: ReduceOp = ReduceOp.SUM) -> np.ndarray:
        """Combines the arrays of all workers in place."""
        # The shortest way for small arrays, whose cost is that of these lines.
        operation = self._enter_reduction(array, op)
        in_place = self._shared.mpi.IN_PLACE
        if array.nbytes <= _PIECE_BYTES:
            self._complete(self._comm.Iallreduce(in_place, array, operation), array, "all_reduce")
            return array
        flat = array.reshape(-1)
        for start, stop in pieces(flat.size, flat.itemsize, _PIECE_BYTES):
            part = flat[start:stop]
            self._complete(self._comm.Iallreduce(in_place, part, operation), part, "all_reduce")
        return array

    def begin_all_reduce(self, array: np.ndarray) -> _Begun:
        """Begins to add up the arrays of all workers in place."""
        operation = self._enter_reduction(array, _SUM)
        if len(self._begun) >= _BEGUN_AT_MOST:
            # One whose result nobody has taken; all have begun it, so there is hardly anything to wait for.
            self.finish(next(iter(self._begun.values())))
        begun = _Begun(self, self._comm.Iallreduce(self._shared.mpi.IN_PLACE, array, operation), array, self._count)
        # Kept until it is over, as MPI may write into the array even if nobody takes the result.
        self._begun[begun.count] = begun
        return begun

    def finish(self, begun: _Begun) -> None:
        """Waits for an operation that was begun on this channel."""
        self._shared.fate.raise_if_over()
        if self._begun.pop(begun.count, None) is not None:
            self._shared.watch.returned(self._name, begun.count)
            self._complete(begun.request, begun.array, "all_reduce")

    def all_gather(self, array: np.ndarray) -> list[np.ndarray]:
        """Brings every worker's array to every worker."""
        check_plain(array, "all_gather")
        self._enter("all_gather", ledger.number(_GATHER))
        mpi = self._shared.mpi
        mine = np.zeros(_MAX_DIMS + 2, np.int64)
        mine[:2] = array.ndim, _dtype_code(array.dtype)
        mine[2 : 2 + array.ndim] = array.shape
        all_mine = np.empty((self.size, mine.size), np.int64)
        self._complete(self._comm.Iallgather(mine, all_mine), (mine, all_mine), "all_gather")
        self._require_same(all_mine[:, :2], "all_gather", "numbers of dimensions or dtypes", array)
        shapes = [tuple(int(n) for n in row[2 : 2 + array.ndim]) for row in all_mine]
        sizes = [int(np.prod(shape, dtype=np.int64)) for shape in shapes]
        starts = np.concatenate([[0], np.cumsum(sizes)]).tolist()
        send = np.ascontiguousarray(array).reshape(-1)
        received = np.empty(starts[-1], array.dtype)
        # Bytes, for MPI knows no name for some dtypes; counts beyond 2 GiB are fine with MPI 4.
        counts = [size * array.itemsize for size in sizes]
        offsets = [start * array.itemsize for start in starts[:-1]]
        target = [received.view(np.uint8), counts, offsets, mpi.BYTE]
        request = self._comm.Iallgatherv([send.view(np.uint8), mpi.BYTE], target)
        self._complete(request, (send, received), "all_gather")
        return [received[starts[i] : starts[i + 1]].reshape(shapes[i]) for i in range(self.size)]

    def broadcast(self, array: np.ndarray, root: int = 0) -> np.ndarray:
        """Overwrites the array with that of the root."""
        check_in_place(array, "broadcast")
        check_root(root, self.size)
        self._enter("broadcast", ledger.number(_BROADCAST + root, array.nbytes))
        flat = array.reshape(-1).view(np.uint8)
        for start, stop in pieces(flat.size, 1, _PIECE_BYTES):
            part = flat[start:stop]
            self._complete(self._comm.Ibcast([part, self._shared.mpi.BYTE], root), part, "broadcast")
        return array

    def barrier(self) -> None:
        """Waits for all."""
        self._enter("barrier", ledger.number(_BARRIER))
        self._complete(self._comm.Ibarrier(), None, "barrier")

    def channel(self, name: str) -> MpiCollectives:
        """Opens a channel over a communicator of its own."""
        names = all_gather_object(self, name)
        if len(set(names)) > 1:
            raise self._shared.fate.end(DivergenceError(f"The workers open different channels: {names}."))
        comm, request = self._comm.Idup()
        self._complete(request, comm, f"opening channel {name!r}")
        return MpiCollectives(self._shared, comm, name)

    def abandon(self, error: UnisonoError) -> None:
        """Gives up all channels of this worker."""
        self._shared.fate.end(error)

    def close(self) -> None:
        """Ends the channel; ends MPI too if it is the first one, after all workers have come to do so."""
        if self._closed or self._shared.fate.is_over:
            return
        if self._name == "main":
            self._enter("close", ledger.number(_CLOSE))
            self._complete(self._comm.Ibarrier(), None, "close")
            self._shared.finish()
        else:
            for begun in list(self._begun.values()):
                self.finish(begun)
            self._comm.Free()
        self._closed = True

    def _enter_reduction(self, array: np.ndarray, op: ReduceOp) -> Any:
        """Begins a reduction; returns MPI's operator."""
        shared = self._shared
        table = shared.sums if op is _SUM else shared.maxima if op is _MAX else shared.minima
        known = table.get(array.dtype) if array.flags.carray else None
        if known is None:
            # Raises, save for an array that is only not aligned.
            check_reducible(array)
            known = table[array.dtype]
        number, operation = known
        self._enter("all_reduce", ledger.number(number, array.size))
        return operation

    def _enter(self, operation: str, call: int) -> None:
        """Begins an operation; its number `call` must be the same on all workers."""
        if self._closed or self._shared.fate.is_over:
            self._shared.fate.raise_if_over()
            raise UnisonoError(f"Channel {self._name!r} is closed.")
        self._count += 1
        self._shared.watch.arrived(self._name, self._count)
        if self._ledger.note(call):
            self._compare(operation)

    def _compare(self, operation: str) -> None:
        """Makes sure that all workers have called the same so far."""
        mpi = self._shared.mpi
        ends = np.array([self._ledger.digest, -self._ledger.digest], np.int64)
        self._complete(self._comm.Iallreduce(mpi.IN_PLACE, ends, mpi.MAX), ends, operation)
        if ends[0] != -ends[1]:
            raise self._shared.fate.end(
                DivergenceError(
                    f"The workers called different operations on channel {self._name!r}, or brought arrays of "
                    f"different sizes, dtypes or roots, in operation {self._count} ({operation}) or shortly before.",
                    remedy="every worker must call the same operations in the same order.",
                )
            )

    def _complete(self, request: Any, memory: Any, operation: str) -> None:
        self._shared.complete(request, memory, operation, self._name)

    def _require_same(self, rows: np.ndarray, operation: str, what: str, array: np.ndarray) -> None:
        if (rows != rows[0]).any():
            different = [rank for rank in range(self.size) if (rows[rank] != rows[0]).any()]
            raise self._shared.fate.end(
                DivergenceError(
                    f"{operation} on channel {self._name!r}: the arrays of workers 0 and {different[0]} have different "
                    f"{what}; here: shape {array.shape}, dtype {array.dtype.name}.",
                    rank=different[0],
                )
            )


class _Begun:
    """An all-reduce under way on one channel: the `count`-th operation there."""

    def __init__(self, channel: MpiCollectives, request: Any, array: np.ndarray, count: int) -> None:
        self._channel = channel
        self.request = request
        self.array = array
        self.count = count

    def result(self) -> np.ndarray:
        """Waits for the sums."""
        self._channel.finish(self)
        return self.array


def _try_out(channel: Collectives) -> None:
    """Adds up numbers whose sum is known, for MPI reports success when it was not allowed to read a peer's memory."""
    total = channel.all_reduce(np.full(_TRIED_ELEMENTS, channel.rank + 1.0, np.float32))
    expected = channel.size * (channel.size + 1) / 2
    if not (total == expected).all():
        raise StartupError(
            f"MPI adds up wrongly between the workers: {total.min():g} to {total.max():g} instead of {expected:g}. "
            "The system probably forbids it to read the memory of other workers.",
            remedy="set MPIR_CVAR_CH4_CMA_ENABLE=0 on all workers.",
            rank=channel.rank,
            phase="start-up",
        )


def _dtype_code(dtype: np.dtype) -> int:
    """Returns a number that is the same for the same dtype on all workers."""
    return zlib.crc32(f"{dtype.str} {dtype.name}".encode())
