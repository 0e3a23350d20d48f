"""`tf.data.Dataset`, batched globally, on any Keras backend.

`tensorflow_shards` decides how the workers share it. Either each runs a pipeline that yields its own examples only
(whole files, records, or slices chosen before functions run), whose end the others need not share; or every worker
runs the whole pipeline and takes its slice of each global batch. In the second case the pipelines must yield the same
elements in the same order, and fingerprints show where they do not. Fingerprints cover the whole batch; where values
may differ rightly (random functions, variables, Python functions) they leave floating-point inputs out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from unisono.data import batches, class_weights, shard, tensorflow_graph, tensorflow_shards
from unisono.data.base import Agreement, Part, Source
from unisono.data.report import Report
from unisono.data.tensorflow_bursts import in_bursts, share_a_core
from unisono.data.tensorflow_faults import watched
from unisono.data.tensorflow_pipeline import Pipeline, Sharing, begun
from unisono.data.whole import WholeSource
from unisono.errors import ConfigurationError

_WHERE = "The tf.data.Dataset"
_AHEAD = 2
"""Enough for a worker that waits for its own next batch to hear meanwhile what the others have."""


def tensorflow_source(
    dataset: Any,
    *,
    class_weight: dict[int, float] | None = None,
    rank: int,
    size: int,
    agreement: Agreement,
    in_order: bool = False,
) -> Source:
    """Returns the source for a data set; collective.

    Args:
        dataset: Yields `x`, `(x, y)` or `(x, y, sample_weight)`, batched.
        class_weight: Weight of each class, by label.
        rank: This worker.
        size: Number of workers.
        agreement: Brings the chief's seeds and files to all and gives fresh seeds.
        in_order: Whether results must come in the order of the input.
    """
    examples = _Examples(dataset, class_weight)
    if size == 1:
        return SlicedSource(examples, dataset, None, None, rank, size)
    graph = tensorflow_graph.serialize(dataset)
    sharing = tensorflow_shards.share(dataset, graph, rank=rank, size=size, agreement=agreement, in_order=in_order)
    pipeline = None
    if sharing.agreed:
        pipeline = Pipeline(dataset, graph, agreement, sharing.rewrite, sharing.stream, f".worker-{rank}-of-{size}")
    if sharing.apart:
        return StreamSource(examples, pipeline or dataset, sharing, rank, size)
    return SlicedSource(examples, dataset, pipeline, sharing, rank, size)


class _Examples:
    """What a data set holds, without a pass over it."""

    def __init__(self, dataset: Any, class_weight: dict[int, float] | None) -> None:
        self._dataset = dataset
        self._class_weight = class_weight

    @property
    def num_batches(self) -> int | None:
        """Global batches; None if TensorFlow does not know or there is no end of them."""
        count = int(self._dataset.cardinality())
        return None if count < 0 else count

    def weighed(self, element: Any) -> Any:
        """Adds the weights of classes to a batch."""
        if self._class_weight is None:
            return element
        data, _ = batches.as_data(element)
        return class_weights.weigh(batches.to_host(data, _WHERE), self._class_weight)

    def first(self) -> Any:
        """Returns zeros where all shapes are known, else what an iterator of its own reads."""
        specs = keras.tree.flatten(self._dataset.element_spec)
        if all(type(s) is tf.TensorSpec and s.shape.rank and s.shape[1:].is_fully_defined() for s in specs):
            element = tf.nest.map_structure(_blank, self._dataset.element_spec)
        else:
            element = next(iter(tensorflow_graph.untouched(self._dataset).take(1)), None)
            if element is None:
                raise ConfigurationError(f"{_WHERE} yields no batch at all.")
        return self.weighed(element)


class SlicedSource(WholeSource):
    """Global batches that every worker makes whole, to take its slice of each.

    Args:
        examples: The data set.
        dataset: The data set itself.
        pipeline: The data set with agreed random choices; None for one worker.
        sharing: How workers share it; None for one worker.
        rank: This worker.
        size: Number of workers.
    """

    def __init__(
        self,
        examples: _Examples,
        dataset: Any,
        pipeline: Pipeline | None,
        sharing: Sharing | None,
        rank: int,
        size: int,
    ) -> None:
        super().__init__(_WHERE, rank, size)
        self._examples = examples
        self._dataset = dataset
        self._pipeline = pipeline
        self._report = None if sharing is None else sharing.report
        self._find = None if sharing is None else sharing.find

    @property
    def num_batches(self) -> int | None:  # type: ignore[override]
        """Global batches per epoch."""
        return self._examples.num_batches

    def epoch(self) -> Iterator[Part]:
        """One full pass; see `Source.epoch`."""
        return self._parts(begun(self._pipeline or self._dataset))

    def _parts(self, iterate: Callable[[], Iterator[Any]]) -> Iterator[Part]:
        for element in _taken(watched(iterate(), self._rank, self._find), self._pipeline):
            yield self._part(self._examples.weighed(element))

    def _mark(self, data: tuple[Any, ...]) -> int:
        if self._pipeline is None:
            return 0
        if not self._pipeline.values_may_differ:
            return batches.fingerprint(data)
        if self._pipeline.generated and len(data) > 1:
            return batches.fingerprint(_without_floats(data[0]), data[1:])
        return batches.fingerprint(_without_floats(data))

    def _first(self) -> Any:
        return self._examples.first()

    def report(self) -> Report | None:
        """Returns how the workers share the data."""
        return self._report

    def describe(self) -> str:
        """Returns one line for the log."""
        many = "an unknown number of" if self.num_batches is None else f"{self.num_batches:,}"
        if self._report is None:
            return f"tf.data.Dataset: {many} global batches"
        return (
            f"{self._report.kind}: {many} global batches; every worker runs the pipeline and takes its slice of each "
            f"batch ({self._report.reason})"
        )


class StreamSource(Source):
    """Batches of one worker, from a pipeline that yields what this worker trains on and nothing else.

    Args:
        examples: The data set.
        pipeline: What yields this worker's batches: a pipeline, or the data set as it is.
        sharing: How workers share it.
        rank: This worker.
        size: Number of workers.
    """

    apart = True

    def __init__(self, examples: _Examples, pipeline: Any, sharing: Sharing, rank: int, size: int) -> None:
        self._examples = examples
        self._pipeline = pipeline
        self._whole = sharing.whole
        self._in_step = sharing.in_step
        self._find = sharing.find
        self._check_end = sharing.check_end
        # Files are there, whoever reads them; Python code that yields examples may wait for what the loop does.
        self.ahead = _AHEAD if sharing.find is not None else 0
        self._report = sharing.report
        self._rank = rank
        self._size = size
        self._example: tuple[Any, ...] | None = None
        self._global_rows = 0

    @property
    def num_batches(self) -> int | None:  # type: ignore[override]
        """Global batches per epoch; None where workers may have different numbers of batches."""
        return self._examples.num_batches if self._in_step else None

    def epoch(self) -> Iterator[Part]:
        """This worker's examples; see `Source.epoch`."""
        return self._parts(begun(self._pipeline))

    def _parts(self, iterate: Callable[[], Iterator[Any]]) -> Iterator[Part]:
        for element in _taken(watched(iterate(), self._rank, self._find), self._pipeline):
            yield from self._parts_of(self._examples.weighed(element))
        self._check_end()

    def _parts_of(self, element: Any) -> Iterator[Part]:
        data, bare = batches.as_data(element)
        ready = not self._whole and batches.is_ready(data)
        if not ready:
            data = batches.to_host(data, _WHERE)
        rows = batches.rows(data, _WHERE)
        if not rows:
            return
        if self._example is None:
            self._example = batches.first_row(data, _WHERE)
        if ready:
            yield Part(data, rows, None, 0, bare)
            return
        step = rows
        if self._whole:
            self._global_rows = max(self._global_rows, rows)
            mine = shard.slice_of(self._global_rows, self._rank, self._size)
            step = max(1, mine.stop - mine.start)
        for start in range(0, rows, step):
            stop = min(start + step, rows)
            yield Part(batches.cut(data, slice(start, stop)), stop - start, None, 0, bare)

    def report(self) -> Report:
        """Returns how the workers share the data."""
        return self._report

    def sample(self) -> tuple[Any, ...]:
        """Returns one example: of the first batch seen, or, before any epoch, of the whole data set."""
        if self._example is None:
            data, _ = batches.as_data(self._examples.first())
            self._example = batches.first_row(data, _WHERE)
        return self._example

    def describe(self) -> str:
        """Returns one line for the log."""
        return self._report.line()


def _taken(elements: Iterator[Any], pipeline: Any) -> Iterator[Any]:
    """Yields elements in bursts where nobody notices when they are taken."""
    unnoticed = isinstance(pipeline, Pipeline) and pipeline.is_closed and share_a_core()
    return in_bursts(elements) if unnoticed else elements


def _without_floats(data: Any) -> Any:
    """Drops floating-point arrays, and replaces them by their shapes."""

    def keep(a: Any) -> Any:
        floating = a is not None and keras.backend.is_float_dtype(getattr(a.dtype, "name", str(a.dtype)))
        return np.asarray(tuple(a.shape)) if floating else a

    return keras.tree.map_structure(keep, data)


def _blank(spec: Any) -> np.ndarray:
    shape = (1, *spec.shape[1:].as_list())
    if spec.dtype == tf.string:
        return np.full(shape, b"", dtype=object)
    return np.zeros(shape, spec.dtype.as_numpy_dtype)
