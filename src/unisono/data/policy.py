"""How the workers of a job share data that lies in files, under TensorFlow's names; pure decisions.

FILE    whole files          worker 0: a c     worker 1: b d e
DATA    records of all       worker 0: the first half of the bytes, worker 1: the second; or every second record
OFF     everything           each worker reads all
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

from unisono.errors import ConfigurationError


class AutoShardPolicy(enum.IntEnum):
    """Who reads what; names and values are those of `tf.data.experimental.AutoShardPolicy`."""

    OFF = -1
    """Every worker reads everything, in batches of the per-worker size; sharding is the script's own affair."""
    AUTO = 0
    """FILE if there are at least as many files as workers and the order of examples does not matter, else DATA."""
    FILE = 1
    """Every worker reads whole files, shared out by size."""
    DATA = 2
    """Every example goes to one worker; a file is cut where that is possible."""
    HINT = 3
    """`shard(tf.data.experimental.SHARD_HINT, ...)` in the pipeline is replaced by this worker's shard."""

    @classmethod
    def of(cls, value: Any) -> AutoShardPolicy:
        """Returns the policy that a user means.

        Args:
            value: A policy of this class or of TensorFlow's, its number or its name.

        Raises:
            ConfigurationError: If there is no such policy.
        """
        try:
            return cls[value.upper()] if isinstance(value, str) else cls(int(value))
        except (KeyError, ValueError, TypeError):
            raise ConfigurationError(
                f"There is no sharding policy {value!r}.",
                remedy=f"use one of unisono.data.AutoShardPolicy: {', '.join(p.name for p in cls)}.",
            ) from None


class Way(enum.Enum):
    """What a worker does to get its part."""

    FILES = "by file"
    """Reads whole files of its own."""
    RECORDS = "by record"
    """Reads, or keeps, records of its own."""
    SLICES = "by example of each batch"
    """Keeps its slice of each global batch."""
    ALL = "not shared"
    """Keeps everything."""


@dataclass(frozen=True, slots=True)
class Decision:
    """A way, and the reason for it in words.

    Args:
        way: What each worker does.
        reason: Why, as the end of a sentence.
    """

    way: Way
    reason: str


def decide(
    asked: AutoShardPolicy, files: int | None, workers: int, *, order: str | None = None, in_order: bool = False
) -> Decision:
    """Returns how workers share a pipeline.

    Args:
        asked: The user's policy; HINT is the pipeline's own affair and counts as OFF.
        files: Number of files it reads; 0 if it reads none, None if that cannot be known.
        workers: How many.
        order: What in the pipeline depends on the order of all examples, e.g. "take()"; None if nothing does.
        in_order: Whether results must come in the order of the input (`predict`).

    Raises:
        ConfigurationError: If FILE is asked for and cannot be had.
    """
    if asked in (AutoShardPolicy.OFF, AutoShardPolicy.HINT) and not in_order:
        return Decision(Way.ALL, f"the policy is {asked.name}")
    if in_order:
        return Decision(Way.SLICES, "predictions come in the order of the data")
    if asked is AutoShardPolicy.FILE:
        return _by_file(files, workers)
    if files == 0:
        return Decision(Way.SLICES, "the data is not read from files")
    if order is not None:
        return Decision(Way.SLICES, f"{order} depends on the order of all examples")
    if asked is AutoShardPolicy.DATA:
        return Decision(Way.RECORDS, "the policy is DATA")
    if files is None:
        return Decision(Way.RECORDS, "the number of files is not known beforehand")
    if files < workers:
        return Decision(Way.RECORDS, f"{_count(files, 'file')} cannot be shared by {workers} workers")
    return Decision(Way.FILES, f"there are {_count(files, 'file')} for {workers} workers")


def _by_file(files: int | None, workers: int) -> Decision:
    if files == 0:
        raise ConfigurationError(
            "auto_shard_policy=FILE, but the pipeline reads no files.",
            remedy="use AutoShardPolicy.AUTO or DATA.",
        )
    if files is not None and files < workers:
        raise ConfigurationError(
            f"auto_shard_policy=FILE, but there are fewer files than workers: {_count(files, 'file')}, "
            f"{workers} workers.",
            remedy="use AutoShardPolicy.AUTO or DATA, or write the data in more files.",
        )
    return Decision(Way.FILES, "the policy is FILE")


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"
