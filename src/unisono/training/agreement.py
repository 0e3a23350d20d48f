"""What the workers agree on before each step: by one small all-reduce, or along with an exchange of the step before.

Each worker states what it has: data or none, how many examples, whether it wants logs or wants to stop, and marks
of what it is doing and reading. The sums tell every worker the same verdict. Marks are compared by the variance of
their digits: it is 0 exactly if all marks are equal, so that a difference is noticed by all at the same time.
"""

from __future__ import annotations

import functools
import logging
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from unisono import log
from unisono.collectives.base import Begun, Collectives
from unisono.collectives.objects import all_gather_object, broadcast_object
from unisono.data.base import Glance, Part
from unisono.errors import DivergenceError

_SHIFTS, _MASK = range(0, 24, 4), 15
"""A mark has 24 bits, in digits of 4: sums of their squares stay exact even in float32, for up to 74,565 workers."""

_LOW = 12
"""Bits of the lower part of a number of examples, whose two parts are summed apart for the same reason."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What holds for one step on all workers.

    Args:
        over: Whether nobody has data left.
        stop: Whether somebody asked to stop before this step.
        want_logs: Whether somebody reads logs after this step.
        local: Examples of this worker.
        total: Examples of the global batch.
    """

    over: bool
    stop: bool
    want_logs: bool
    local: int
    total: int

    @property
    def weights(self) -> np.ndarray:
        """What `Backend` wants to know of this worker's part: float64 of shape (4,)."""
        return _weights(self.local, self.total)


@functools.lru_cache(maxsize=64)
def _weights(local: int, total: int) -> np.ndarray:
    weights = [local / total, total / local, 1.0, local] if local else [0.0] * 4
    return np.array(weights, np.float64)


@dataclass(frozen=True, slots=True)
class Statement:
    """What one worker says before a step.

    Args:
        part: Its part of the global batch; None if its data has ended.
        activity: What it is doing, e.g. "fit step 5"; must be the same on all.
        want_logs: Whether it will read logs after this step.
        stop: Whether it wants to stop before this step.
        apart: Whether each worker reads data of its own, so that some may have none left; the same on all.
        details: What else must be the same on all, as text by name.
    """

    part: Part | None
    activity: str
    want_logs: bool = False
    stop: bool = False
    apart: bool = False
    details: Mapping[str, str] | None = None

    def vector(self) -> np.ndarray:
        """Returns the statement as numbers to be summed: whole ones, int64 of shape (29,)."""
        part = self.part
        local = part.local if part else 0
        activity = f"{self.activity} {sorted(self.details.items())}" if self.details else self.activity
        doing, reading = _mark(activity), _mark(f"{part.total}/{part.fingerprint}") if part else 0
        # Plain numbers: so few cost NumPy more than Python.
        digits = [mark >> shift & _MASK for mark in (doing, reading) for shift in _SHIFTS]
        head = (part is not None, local >> _LOW, local & ((1 << _LOW) - 1), self.want_logs, self.stop)
        return np.array([*head, *digits, *[digit * digit for digit in digits]], np.int64)


def decide(sums: np.ndarray, mine: Statement, size: int) -> Verdict | str:
    """Returns the verdict that follows from the sums of all statements, or what is wrong with them.

    Args:
        sums: Sum over all workers of `Statement.vector()`.
        mine: What this worker said.
        size: Number of workers.

    Returns:
        The verdict, or one of "activity", "ended" and "data" if workers do different things, if some have no data
        left where all should, or if they read different data.
    """
    have, high, low, want_logs, stop, *marks = sums.tolist()
    half = len(marks) // 2
    differ = [size * square != digit * digit for digit, square in zip(marks[:half], marks[half:], strict=True)]
    if any(differ[: len(_SHIFTS)]):
        return "activity"
    local = mine.part.local if mine.part else 0
    verdict = Verdict(have == 0, stop > 0, want_logs > 0, local, (high << _LOW) + low)
    if verdict.over or verdict.stop or mine.apart:
        return verdict
    if have != size:
        return "ended"
    if any(differ[len(_SHIFTS) :]):
        return "data"
    return verdict


class StepAgreement:
    """Agrees step by step with the other workers.

    Args:
        channel: A channel used for nothing else at the same time.
        names: Name of each worker, for messages.
    """

    def __init__(self, channel: Collectives, names: list[str]) -> None:
        self._channel = channel
        self.names = names
        self.memory: dict[str, Any] = {}
        """See `data.base.Agreement`."""

    @property
    def alone(self) -> bool:
        """Whether there is nobody to agree with."""
        return self._channel.size == 1

    def step(self, mine: Statement) -> Verdict:
        """States what this worker has and returns what holds for all.

        Raises:
            DivergenceError: On all workers, if they do or read different things.
        """
        vector = mine.vector()
        return self.heard(self._channel.all_reduce(vector) if self._channel.size > 1 else vector, mine)

    def together(self, activity: str, details: Mapping[str, str] | None = None) -> None:
        """Makes sure that all workers are about to do the same, before they agree on anything else about it.

        Args:
            activity: What it is, e.g. "fit".
            details: What belongs to it, as text by name, e.g. the arguments.

        Raises:
            DivergenceError: On all workers, if they are not.
        """
        self.step(Statement(None, activity, details=details))

    def same_data(self, what: str, glance: Glance) -> None:
        """Makes sure that all workers hold the same data, as far as a look at it can tell.

        Args:
            what: What it is for, e.g. "training data".
            glance: What this worker sees.

        Raises:
            DivergenceError: On all workers, if they surely do not; else they are warned.
        """
        if self.alone:
            return
        like = glance.is_like(cast(Glance, self.from_chief(glance)))
        if not self.any(not like):
            return
        said: Any = self.gather((like, glance.form))
        others = ", ".join(name for name, (same, _) in zip(self.names, said, strict=True) if not same)
        if not glance.certain and len({form for _, form in said}) == 1:
            log.once(
                f"look {what}",
                f"{what}: an example differs between {self.names[0]} and {others}. If that is random augmentation, all "
                "is well. If the script gives each worker a part of the data, examples are lost: give all workers the "
                "same data, or use strategy.distribute_datasets_from_function.",
                logging.WARNING,
            )
            return
        forms = [f"  {name}: {form}" for name, (_, form) in zip(self.names, said, strict=True)]
        raise DivergenceError(
            "\n".join([f"{what.capitalize()}: {others} and {self.names[0]} hold different data.", *forms]),
            remedy="give all workers the same data in the same order; Unisono takes each worker's part. Seed what is "
            "random, as in train_test_split(..., random_state=0), or make the strategy first: from then on random, "
            "numpy.random and torch draw the same on all workers.",
        )

    def ask(self, mine: Statement) -> Begun:
        """States what this worker has, without waiting for the others; other agreements may follow before the answer.

        Args:
            mine: What this worker says.

        Returns:
            The sums, on their way to `heard`.
        """
        return self._channel.begin_all_reduce(mine.vector())

    def heard(self, sums: np.ndarray, mine: Statement) -> Verdict:
        """Returns what holds for all, from sums that have come another way.

        Args:
            sums: Sum over all workers of `Statement.vector()`, int64.
            mine: What this worker said.

        Raises:
            DivergenceError: On all workers, if they do or read different things.
        """
        verdict = decide(sums, mine, self._channel.size)
        if isinstance(verdict, Verdict):
            return verdict
        raise self._explain(verdict, mine)

    def _explain(self, problem: str, mine: Statement) -> DivergenceError:
        part = mine.part
        said: object = {
            "activity": (mine.activity, dict(mine.details or {})),
            "ended": "has data left" if part else "has no data left",
            "data": f"{part.total} examples, content {part.fingerprint:08x}" if part else "no data",
        }[problem]
        everyone: Any = self.gather(said)
        texts = _differences(everyone) if problem == "activity" else everyone
        lines = [f"  {name}: {text}" for name, text in zip(self.names, texts, strict=True)]
        one_thing = problem == "activity" and len({activity for activity, _ in everyone}) == 1
        title = {
            "activity": f"The workers call {mine.activity} with different arguments or settings:"
            if one_thing
            else "The workers do different things at the same time:",
            "ended": f"The data of some workers ended before that of others ({mine.activity}):",
            "data": f"The workers read different data for the same global batch ({mine.activity}):",
        }[problem]
        remedy = {
            "activity": "call fit, evaluate, predict and compile alike on all workers, with the same arguments, not "
            "under `if is_chief`.",
            "ended": "give all workers the same data; Unisono takes each worker's part of it.",
            "data": "give all workers the same data in the same order: seed what is random in a generator.",
        }[problem]
        return DivergenceError("\n".join([title, *lines]), remedy=remedy)

    def any(self, wish: bool) -> bool:
        """Returns whether any worker wishes it."""
        return self.any_of([wish])[0]

    def any_of(self, wishes: Sequence[bool]) -> list[bool]:
        """Returns, for each of several wishes, whether any worker has it."""
        if self._channel.size == 1:
            return list(wishes)
        return [bool(count) for count in self._channel.all_reduce(np.array(wishes, np.float64))]

    def gather(self, value: object) -> list[object]:
        """Returns the values of all workers in the order of ranks."""
        return [value] if self._channel.size == 1 else all_gather_object(self._channel, value)

    def seed(self) -> int:
        """Returns a fresh seed, the chief's, from NumPy's global generator, which `set_random_seed` sets."""
        seed: Any = self.from_chief(int(np.random.randint(0, 2**31 - 1)))
        return int(seed)

    def from_chief(self, value: object) -> object:
        """Returns the chief's value on all workers."""
        return value if self._channel.size == 1 else broadcast_object(self._channel, value)


def _differences(said: Sequence[tuple[str, Mapping[str, str]]]) -> list[str]:
    """Returns what each worker does, with those details that are not the same everywhere.

    >>> _differences([("fit", {"epochs": "2", "shuffle": "True"}), ("fit", {"epochs": "3", "shuffle": "True"})])
    ['fit, epochs=2', 'fit, epochs=3']
    """
    if len({activity for activity, _ in said}) > 1:
        return [activity for activity, _ in said]
    names = sorted(set().union(*(details for _, details in said)))
    odd = [name for name in names if len({details.get(name) for _, details in said}) > 1]
    return [
        ", ".join([activity, *(f"{name}={details.get(name, 'not given')}" for name in odd)])
        for activity, details in said
    ]


def _mark(text: str) -> int:
    return zlib.crc32(text.encode())
