"""Says which file and record it was when a `tf.data` pipeline cannot go on; TensorFlow's own message seldom does."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from unisono.data import tensorflow_edit
from unisono.data.tensorflow_files import Among, names_at
from unisono.data.tensorflow_graph import PipelineGraph
from unisono.data.tensorflow_stages import Layout, Stage
from unisono.errors import DataError

_SEARCH_SECONDS = 20.0
"""How long the others may wait for the name of the record; then they get the message without it."""

_INNER = r"\{\{function_node [^}]*\}\}\s*|\s*\[\[\{\{node [^}]*\}\}\]\]|\{\{node [^}]*\}\}\s*|\s*\[Op:\w+\] name:.*"
"""What names TensorFlow's inner parts in its messages."""

Find = Callable[[], str | None]
"""Returns where this worker's pipeline breaks off, e.g. "part-3.tfrecord, record 17"; None if that is not found."""


def watched(iterator: Iterator[Any], rank: int, find: Find | None) -> Iterator[Any]:
    """Iterates a data set that may read files, and explains what goes wrong.

    Args:
        iterator: Of the data set.
        rank: This worker.
        find: Looks for the place; None for pipelines that read no files, whose errors are passed on as they are.

    Raises:
        DataError: If a file or a record cannot be read.
    """
    while True:
        try:
            element = next(iterator)
        except StopIteration:
            return
        except tf.errors.OpError as error:
            if find is None:
                raise
            place = find()
            raise DataError(
                f"Worker {rank} cannot read its data{'' if place is None else f': {place}'}: {_cause(error)}",
                remedy="write the file again, or leave it out; "
                "dataset.ignore_errors() leaves out records that cannot be read.",
                rank=rank,
            ) from error
        yield element


def finder(graph: PipelineGraph, layout: Layout, names: Sequence[Sequence[str] | None]) -> Find:
    """Returns what looks for the first record that cannot be read, by reading files one by one.

    Args:
        graph: The pipeline.
        layout: Where it opens files.
        names: For each stage the files of this worker; None where they are not known.
    """

    def find() -> str | None:
        deadline = time.monotonic() + _SEARCH_SECONDS
        for stage, files in zip(layout.stages, names, strict=True):
            for name in files or ():
                record = _broken_record(graph, stage, name, deadline)
                if record is not None:
                    return f"{name}, record {record:,}" if record else name
                if time.monotonic() > deadline:
                    return None
        return None

    return find


def _broken_record(graph: PipelineGraph, stage: Stage, name: str, deadline: float) -> int | None:
    """Returns the number of the first record, from 1, that cannot be read; 0 if the file itself cannot."""
    changed = graph.copy()
    tensorflow_edit.one_by_one(changed, graph.result)
    if stage.names is None:
        replaced: dict[str, Any] = {str(stage.tensor): tf.constant([name])}
    else:
        listed = graph.at(changed, stage.names)
        at = names_at(graph, stage, listed.element_spec)
        if at is None:
            return None
        replaced = {stage.names: listed.filter(Among([name], at)).take(1)}
    count = 0
    try:
        for _ in graph.at(changed, graph.result, replaced):
            count += 1
            if time.monotonic() > deadline:
                return None
    except (tf.errors.NotFoundError, tf.errors.PermissionDeniedError):
        return 0
    except tf.errors.OpError:
        return count + 1
    return None


def _cause(error: tf.errors.OpError) -> str:
    """Returns TensorFlow's message without the names of its inner parts."""
    text = re.sub(_INNER, "", str(error.message), flags=re.DOTALL)
    return re.sub(
        r"^Error in user-defined function passed to \S+ transformation with iterator: \S+: ", "", text
    ).strip()
