"""What every engine must do, as programs that each worker runs on its channel; a program asserts for itself.

A program may return a value; the values of all workers must then be equal to the last bit.
"""

from __future__ import annotations

import hashlib
import threading
import time

import numpy as np
import pytest

from unisono.collectives import objects
from unisono.collectives.base import Collectives, ReduceOp
from unisono.errors import ConfigurationError, DivergenceError, UnisonoError

SIZES = (0, 1, 2, 3, 5, 17, 1_000, 10_007, 100_003, 1_000_003)
# More than one piece of 16 MiB.
HUGE = 4_200_001


def random_part(rank: int, size: int, dtype: str = "float32") -> np.ndarray:
    """Values of very different magnitude, so that another order of summation shows."""
    generator = np.random.default_rng([rank, size])
    values = generator.standard_normal(size, dtype=np.float32)
    return np.ldexp(values, generator.integers(-20, 20, size, dtype=np.int32)).astype(dtype)


def digest(array: np.ndarray) -> str:
    return hashlib.sha256(array.tobytes()).hexdigest()


def sums_of_floats(channel: Collectives) -> dict[int, str]:
    digests = {}
    for size in SIZES:
        array = random_part(channel.rank, size)
        assert channel.all_reduce(array) is array
        parts = np.stack([random_part(rank, size) for rank in range(channel.size)]).astype(np.float64)
        # Each of the additions may be off by half a unit in the last place of what it adds.
        bound = channel.size * 2.0**-24 * np.abs(parts).sum(axis=0)
        assert (np.abs(array - parts.sum(axis=0)) <= bound).all()
        digests[size] = digest(array)
    return digests


def sums_of_huge_arrays(channel: Collectives) -> None:
    array = np.arange(HUGE, dtype=np.int32)
    channel.all_reduce(array)
    np.testing.assert_array_equal(array, np.arange(HUGE, dtype=np.int32) * channel.size)


def sums_are_repeatable(channel: Collectives) -> None:
    for size in (17, 10_007, 200_003):
        first = channel.all_reduce(random_part(channel.rank, size)).copy()
        for late in range(channel.size):
            if channel.rank == late:
                time.sleep(0.005)
            np.testing.assert_array_equal(channel.all_reduce(random_part(channel.rank, size)), first)


def every_dtype(channel: Collectives) -> dict[str, str]:
    digests = {}
    for dtype in ("float32", "float64", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"):
        for op, expected in ((ReduceOp.SUM, sum), (ReduceOp.MAX, max), (ReduceOp.MIN, min)):
            array = np.full((2, 3), channel.rank + 1, dtype)
            channel.all_reduce(array, op)
            np.testing.assert_array_equal(array, expected(range(1, channel.size + 1)))
            assert array.dtype == dtype
            digests[f"{dtype} {op.value}"] = digest(array)
    return digests


def bools(channel: Collectives) -> None:
    mine = np.array([False, True, channel.rank == 0])
    some = channel.size == 1
    for op, expected in ((ReduceOp.SUM, True), (ReduceOp.MAX, True), (ReduceOp.MIN, some)):
        np.testing.assert_array_equal(channel.all_reduce(mine.copy(), op), [False, True, expected])


def large_integers_keep_every_bit(channel: Collectives) -> None:
    array = np.array([2**53 + 1 + channel.rank], np.int64)
    expected = sum(2**53 + 1 + rank for rank in range(channel.size))
    assert int(channel.all_reduce(array)[0]) == expected


def shapes_survive(channel: Collectives) -> None:
    for shape in ((), (0,), (3, 0, 2), (2, 3, 4), (1,) * 12):
        array = channel.all_reduce(np.ones(shape, np.float32))
        assert array.shape == shape
        np.testing.assert_array_equal(array, np.full(shape, channel.size))
        assert channel.broadcast(np.ones(shape, np.float32)).shape == shape
        assert [part.shape for part in channel.all_gather(np.ones(shape))] == [shape] * channel.size


def infinities_and_nans(channel: Collectives) -> None:
    array = np.array([np.inf, np.nan if channel.rank == channel.size - 1 else 1.0, -np.inf], np.float32)
    channel.all_reduce(array)
    assert np.isposinf(array[0]) and np.isnan(array[1]) and np.isneginf(array[2])


def gathers_of_different_shapes(channel: Collectives) -> None:
    for dtype in ("float32", "float16", "bool", "int64"):
        parts = channel.all_gather(np.full((channel.rank, 2), channel.rank, dtype))
        assert [part.shape for part in parts] == [(rank, 2) for rank in range(channel.size)]
        for rank, part in enumerate(parts):
            assert part.dtype == dtype
            np.testing.assert_array_equal(part, np.full((rank, 2), rank, dtype))


def gathers_of_views(channel: Collectives) -> None:
    table = np.arange(12).reshape(3, 4) + 100 * channel.rank
    for rank, part in enumerate(channel.all_gather(table[:, ::2])):
        np.testing.assert_array_equal(part, (np.arange(12).reshape(3, 4) + 100 * rank)[:, ::2])


def gathered_parts_are_the_callers_own(channel: Collectives) -> None:
    mine = np.zeros(4)
    parts = channel.all_gather(mine)
    for part in parts:
        part += 1 + channel.rank
    channel.barrier()
    assert mine.sum() == 0
    assert all((part == 1 + channel.rank).all() for part in parts)


def large_gathers(channel: Collectives) -> None:
    size = 300_000
    for rank, part in enumerate(channel.all_gather(np.full(size + channel.rank, channel.rank, np.float32))):
        assert part.size == size + rank
        assert (part == rank).all()


def broadcasts_from_every_root(channel: Collectives) -> str:
    seen = hashlib.sha256()
    for root in range(channel.size):
        for size in (0, 1, 1_001, 300_007):
            array = random_part(channel.rank, size)
            assert channel.broadcast(array, root) is array
            np.testing.assert_array_equal(array, random_part(root, size))
            seen.update(array)
    return seen.hexdigest()


def broadcasts_of_huge_arrays(channel: Collectives) -> None:
    array = np.full(HUGE, channel.rank, np.int32)
    array[-1] += 7
    channel.broadcast(array, channel.size - 1)
    assert (array[:-1] == channel.size - 1).all()
    assert array[-1] == channel.size + 6


def broadcasts_of_any_dtype(channel: Collectives) -> None:
    import ml_dtypes

    for dtype in (np.float16, ml_dtypes.bfloat16, np.bool_, np.complex64, np.dtype("S3")):
        array = np.array([1, 0, 1]).astype(dtype) if channel.rank == 0 else np.zeros(3, dtype)
        channel.broadcast(array)
        np.testing.assert_array_equal(array, np.array([1, 0, 1]).astype(dtype))


def barriers_hold(channel: Collectives) -> None:
    """Nobody leaves before the last has come; all workers of the suite share one clock."""
    for slow in range(channel.size):
        time.sleep(0.05 if channel.rank == slow else 0)
        came = time.monotonic()
        channel.barrier()
        left = time.monotonic()
        times = [part.tolist() for part in channel.all_gather(np.array([came, left]))]
        assert max(came for came, _ in times) <= min(left for _, left in times)


def arrays_that_cannot_be_reduced_are_refused(channel: Collectives) -> None:
    read_only = np.ones(3)
    read_only.flags.writeable = False
    for array, words in (
        (np.ones(3, np.float16), "float16"),
        (np.ones(3, np.complex64), "complex64"),
        (np.ones(3, ">f4"), "float32"),
        (np.array([None]), "object"),
        (np.ones((4, 4))[:, 1], "not contiguous"),
        (read_only, "read-only"),
    ):
        with pytest.raises(ConfigurationError, match=words):
            channel.all_reduce(array)
    for array, words in ((read_only, "read-only"), (np.array([None]), "object")):
        with pytest.raises(ConfigurationError, match=words):
            channel.broadcast(array)
    with pytest.raises(ConfigurationError, match="object"):
        channel.all_gather(np.array([None]))
    with pytest.raises(ConfigurationError, match=r"root=7 is no rank.* 0 to"):
        channel.broadcast(np.ones(1), root=7)
    # A refusal is local: the channel goes on.
    channel.barrier()


def channels_are_independent(channel: Collectives) -> None:
    """Threads on channels of their own, in an order that differs between the workers."""
    count = 3
    channels = [channel.channel(f"c{index}") for index in range(count)]
    errors: list[BaseException] = []

    def work(index: int) -> None:
        try:
            # The threads of worker 0 start in another order than those of the others.
            time.sleep(0.01 * (index if channel.rank else count - index))
            for step in range(30):
                array = np.full(10 ** (index + 2), 10 * index + step, np.float32)
                channels[index].all_reduce(array)
                assert (array == channel.size * (10 * index + step)).all()
                parts = channels[index].all_gather(np.full(channel.rank + 1, step))
                assert [part.size for part in parts] == list(range(1, channel.size + 1))
        except BaseException as error:  # noqa: BLE001 - handed to the main thread below
            errors.append(error)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not errors, errors
    assert not any(thread.is_alive() for thread in threads)
    for each in channels:
        each.close()
    channel.barrier()


def other_threads_run_while_one_waits(channel: Collectives) -> None:
    turns = 0
    done = threading.Event()

    def count() -> None:
        nonlocal turns
        while not done.is_set():
            turns += 1
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    try:
        channel.barrier()
        if channel.rank == 0:
            time.sleep(0.5)
        before = turns
        channel.barrier()
        if channel.rank != 0 and channel.size > 1:
            # 400 on an idle machine; none if the waiter kept Python's lock.
            assert turns - before >= 10
    finally:
        done.set()
        thread.join()


def sums_begun_before_others(channel: Collectives) -> None:
    size, rank = channel.size, channel.rank
    first = np.array([rank, 1], np.int64)
    begun = [channel.begin_all_reduce(first), channel.begin_all_reduce(np.full(3, rank, np.float64))]
    np.testing.assert_array_equal(channel.all_reduce(np.array([2.0])), [2.0 * size])
    left = channel.begin_all_reduce(np.array([rank], np.int64))
    channel.barrier()
    np.testing.assert_array_equal(begun[1].result(), np.full(3, sum(range(size))))
    assert begun[0].result() is first
    np.testing.assert_array_equal(first, [sum(range(size)), size])
    np.testing.assert_array_equal(begun[0].result(), first)
    del left
    for turn in range(40):
        # Nobody takes these results.
        channel.begin_all_reduce(np.array([turn], np.int64))
    assert channel.all_reduce(np.array([1], np.int64)) == [size]


def values(channel: Collectives) -> object:
    mine = {"rank": channel.rank, "text": "ä" * channel.rank}
    assert objects.all_gather_object(channel, mine) == [
        {"rank": rank, "text": "ä" * rank} for rank in range(channel.size)
    ]
    got = [
        objects.broadcast_object(channel, mine if root == channel.rank else None, root) for root in range(channel.size)
    ]
    assert [value["rank"] for value in got] == list(range(channel.size))
    assert objects.broadcast_object(channel, None) is None
    return got


def lists_of_arrays(channel: Collectives) -> None:
    def model(rank: int) -> list[np.ndarray]:
        shapes = [(3, 4), (), (0,), (2,), (5,), (2_000_000,), (7,), (1_500_000,), (4,)]
        dtypes = ["float32", "int64", "float32", "float16", "bool", "float64", "uint32", "float64", "float32"]
        return [
            np.full(shape, rank + index, dtype) for index, (shape, dtype) in enumerate(zip(shapes, dtypes, strict=True))
        ]

    root = channel.size - 1
    arrays = model(channel.rank)
    objects.broadcast_arrays(channel, arrays, root)
    for array, expected in zip(arrays, model(root), strict=True):
        np.testing.assert_array_equal(array, expected)
    objects.broadcast_arrays(channel, [])


PROGRAMS = [
    sums_of_floats,
    sums_of_huge_arrays,
    sums_are_repeatable,
    every_dtype,
    bools,
    large_integers_keep_every_bit,
    shapes_survive,
    infinities_and_nans,
    gathers_of_different_shapes,
    gathers_of_views,
    gathered_parts_are_the_callers_own,
    large_gathers,
    broadcasts_from_every_root,
    broadcasts_of_huge_arrays,
    broadcasts_of_any_dtype,
    barriers_hold,
    arrays_that_cannot_be_reduced_are_refused,
    channels_are_independent,
    other_threads_run_while_one_waits,
    sums_begun_before_others,
    values,
    lists_of_arrays,
]


def differing_gathers(channel: Collectives) -> None:
    """For two workers or more: all learn of it, and nothing works afterwards."""
    with pytest.raises(DivergenceError, match="all_gather"):
        channel.all_gather(np.zeros((2,) * (1 + channel.rank)))
    _is_over(channel, DivergenceError)


def differing_channels(channel: Collectives) -> None:
    """For two workers or more."""
    with pytest.raises(DivergenceError, match="c1"):
        channel.channel(f"c{channel.rank}")
    _is_over(channel, DivergenceError)


def abandoned(channel: Collectives) -> None:
    """For any number of workers: no operation waits after it."""
    other = channel.channel("other")
    channel.abandon(UnisonoError("enough"))
    _is_over(channel, UnisonoError)
    _is_over(other, UnisonoError)


def _is_over(channel: Collectives, error: type[UnisonoError]) -> None:
    began = time.monotonic()
    for call in (
        lambda: channel.all_reduce(np.ones(1)),
        lambda: channel.all_gather(np.ones(1)),
        lambda: channel.broadcast(np.ones(1)),
        channel.barrier,
        lambda: channel.channel("more"),
    ):
        with pytest.raises(error):
            call()
    channel.close()
    assert time.monotonic() - began < 1


ENDINGS = [differing_gathers, differing_channels, abandoned]
