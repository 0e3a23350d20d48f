"""How to wait for others: at once while they are near, ever more idly the longer they take.

A worker that waits must not take the core from its own threads (data pipelines, thread pools) nor, when workers
share cores, from the very worker it waits for. So it polls without a pause only as long as a context switch
would cost, then gives way, then sleeps for a small share of the time already waited: the end is noticed late by
that share at most, or by what the system adds to a sleep.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass

from unisono.clock import Clock

ASK_EVERY = 0.05
"""Seconds between two questions to the watch."""


@dataclass(frozen=True)
class Manner:
    """How a worker waits before it sleeps.

    Args:
        spins: Tests without a pause at the beginning.
        giving_way: Seconds for which it then lets others run between two tests.
    """

    spins: int
    giving_way: float


USUAL = Manner(spins=150, giving_way=400e-6)
"""Spins for about 50 us: what a context switch costs."""

CROWDED = Manner(spins=0, giving_way=10e-3)
"""Where workers outnumber the cores, the others need the core now, and a sleep ends when they let it."""

_SLEEP_SHARE = 1 / 16
_LONGEST_SLEEP = 1e-3
# A test that took this long has moved data: more is likely to be there.
_BUSY_SECONDS = 20e-6


def wait(
    test: Callable[[], bool],
    ask: Callable[[float], None],
    *,
    manner: Manner,
    clock: Clock = time.perf_counter,
    give_way: Callable[[float], None] | None = None,
) -> None:
    """Returns when `test` says so.

    Args:
        test: Moves things on and tells whether all is done; must not block.
        ask: Called about every 50 ms with the seconds waited; raises to leave the wait.
        manner: How to wait before sleeping.
        clock: Where the time comes from.
        give_way: Carries out what `pause` decides.
    """
    for _ in range(manner.spins):
        if test():
            return
    carry_out = rest if give_way is None else give_way
    start = before = clock()
    next_ask = start + ASK_EVERY
    while not test():
        now = clock()
        if now >= next_ask:
            ask(now - start)
            next_ask = clock() + ASK_EVERY
        carry_out(pause(now - start, manner, busy=now - before > _BUSY_SECONDS))
        before = clock()


def pause(elapsed: float, manner: Manner, *, busy: bool) -> float:
    """Decides how to pass the time until the next test.

    Args:
        elapsed: Seconds waited so far.
        manner: How to wait before sleeping.
        busy: Whether the last test moved data.

    Returns:
        0 to let another thread run, or seconds to sleep.
    """
    if busy or elapsed < manner.giving_way:
        return 0.0
    return min(elapsed * _SLEEP_SHARE, _LONGEST_SLEEP)


def rest(seconds: float) -> None:
    """Carries out what `pause` decided."""
    if seconds:
        time.sleep(seconds)
    else:
        os.sched_yield()


def is_crowded(hosts: list[tuple[str, frozenset[int]]], rank: int) -> bool:
    """Tells whether the workers of a host outnumber the cores that they may use.

    Args:
        hosts: Name of the host and usable cores of each rank.
        rank: The worker whose host is meant.

    Returns:
        Whether they do.
    """
    here = [cores for host, cores in hosts if host == hosts[rank][0]]
    return len(here) > len(frozenset().union(*here))
