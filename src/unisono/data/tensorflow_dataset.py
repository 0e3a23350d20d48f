"""`tf.data.Dataset`, batched globally, on any Keras backend.

Every worker runs the whole pipeline and takes its slice of each global batch, so the pipelines must yield the same
elements in the same order. For that, with more than one worker, the pipeline is serialized, every seed in it is
replaced by one all agree on (the chief's, or a fresh one where there is none), permissions to yield out of order
are taken back, and it is loaded again:

- A shuffle brings another order in each epoch, unless `reshuffle_each_iteration=False`.
- Random ops in functions (`map`, `filter`, ...) draw afresh in each epoch. For these the pipeline is loaded again at
  each epoch; caches in memory are kept.
- Random ops in a parallel map, and layers or generators with a state of their own, may draw differently on each
  worker. That changes values, not which examples a batch holds.
- A pipeline that cannot be serialized (arrays of more than 2 GB in it) runs as it is, and so does Python code in
  it (`from_generator`, `py_function`): it must be the same everywhere by itself.

Fingerprints show where this fails. They cover the whole batch; where values may differ rightly (random functions,
variables, Python functions) they leave floating-point inputs out.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from unisono import log
from unisono.data import batches, class_weights, tensorflow_graph, tensorflow_seeds
from unisono.data.base import Agreement, Part
from unisono.data.whole import WholeSource
from unisono.errors import ConfigurationError, DivergenceError

_WHERE = "The tf.data.Dataset"
_PYTHON_OPS = {"PyFunc", "EagerPyFunc", "PyFuncStateless"}
_STATE_OPS = {"ReadVariableOp", "AssignAddVariableOp", "RngReadAndSkip"}


class TensorflowSource(WholeSource):
    """Global batches from a `tf.data.Dataset`.

    Args:
        dataset: Yields `x`, `(x, y)` or `(x, y, sample_weight)`, batched.
        class_weight: Weight of each class, by label.
        rank: This worker.
        size: Number of workers.
        agreement: Brings the chief's seeds to all and gives fresh ones.
    """

    def __init__(
        self,
        dataset: Any,
        *,
        class_weight: dict[int, float] | None = None,
        rank: int,
        size: int,
        agreement: Agreement,
    ) -> None:
        super().__init__(_WHERE, rank, size)
        self._dataset = dataset
        self._class_weight = class_weight
        self._pipeline = _Pipeline(dataset, agreement) if size > 1 else None

    @property
    def num_batches(self) -> int | None:  # type: ignore[override]
        """Global batches per epoch; None if TensorFlow does not know or it is infinite."""
        count = int(self._dataset.cardinality())
        return None if count < 0 else count

    def epoch(self) -> Iterator[Part]:
        """One full pass; see `Source.epoch`."""
        dataset = self._dataset if self._pipeline is None else self._pipeline.next_epoch()
        for element in dataset:
            yield self._part(self._weighed(element))

    def _weighed(self, element: Any) -> Any:
        if self._class_weight is None:
            return element
        data, _ = batches.as_data(element)
        return class_weights.weigh(batches.to_host(data, _WHERE), self._class_weight)

    def _mark(self, data: tuple[Any, ...]) -> int:
        return 0 if self._pipeline is None else self._pipeline.fingerprint(data)

    def _first(self) -> Any:
        """Returns zeros where all shapes are known, else what an iterator of its own reads."""
        specs = keras.tree.flatten(self._dataset.element_spec)
        if all(type(s) is tf.TensorSpec and s.shape.rank and s.shape[1:].is_fully_defined() for s in specs):
            element = tf.nest.map_structure(_blank, self._dataset.element_spec)
        else:
            element = next(iter(self._dataset.take(1)), None)
            if element is None:
                raise ConfigurationError(f"{_WHERE} yields no batch at all.")
        return self._weighed(element)

    def describe(self) -> str:
        """Returns one line for the log."""
        count = "an unknown number of" if self.num_batches is None else f"{self.num_batches:,}"
        shared = "" if self._size == 1 else "; every worker runs the pipeline and takes its slice of each batch"
        return f"tf.data.Dataset: {count} global batches{shared}"


class _Pipeline:
    """A data set whose random choices all workers agree on."""

    def __init__(self, dataset: Any, agreement: Agreement) -> None:
        options = tf.data.Options()
        options.deterministic = True
        self._ordered = options
        self._dataset = dataset
        self._agreement = agreement
        self._graph: tensorflow_graph.PipelineGraph | None = None
        self._draws: list[tensorflow_seeds.Draw] = []
        self._epoch = -1
        self._loaded: Any = None
        self._values_may_differ = False
        self._generated = False

    def next_epoch(self) -> Any:
        """Returns the data set to iterate in the next epoch; collective."""
        self._epoch += 1
        if self._epoch == 0:
            self._agree()
        once = not any(d.starts_anew for d in self._draws)
        if self._loaded is None or not once:
            seed = self._agreement.seed()
            self._loaded = self._load(seed)
        if once:
            self._graph = None
        return self._loaded

    def fingerprint(self, data: tuple[Any, ...]) -> int:
        """Returns the fingerprint of a global batch, of what must be equal on all workers."""
        if not self._values_may_differ:
            return batches.fingerprint(data)
        if self._generated and len(data) > 1:
            return batches.fingerprint(_without_floats(data[0]), data[1:])
        return batches.fingerprint(_without_floats(data))

    def _agree(self) -> None:
        """Serializes the pipeline and takes over the chief's seeds."""
        serialized = tensorflow_graph.serialize(self._dataset)
        mine = None if serialized is None else tensorflow_seeds.draws(serialized.graph)
        chief: list[tensorflow_seeds.Draw] | None = self._agreement.from_chief(mine)
        here, there = ([d.op for d in draws or []] for draws in (mine, chief))
        if mine is not None and chief is not None and here != there:
            raise DivergenceError(
                f"This worker's tf.data pipeline is not the chief's: it draws random numbers in {here}, the chief's "
                f"in {there}.",
                remedy="build the same pipeline on all workers.",
            )
        self._draws = chief or []
        if serialized is not None:
            outer, inner = tensorflow_seeds.ops(serialized.graph)
            self._generated = "GeneratorDataset" in outer | inner
            python = bool(inner & _PYTHON_OPS) and not self._generated
            random = any("Dataset" not in d.op for d in mine or [])
            self._values_may_differ = python or random or bool(inner & _STATE_OPS)
            if chief is not None:
                self._graph = serialized

    def _load(self, seed: int) -> Any:
        if self._graph is None:
            log.once(
                "tf.data cannot be rewritten",
                "This tf.data pipeline cannot be serialized, so unseeded shuffles in it cannot be made to agree: "
                "give each shuffle a seed.",
                logging.WARNING,
            )
            return self._dataset.with_options(self._ordered)
        graph = tf.compat.v1.GraphDef()
        graph.CopyFrom(self._graph.graph)
        tensorflow_seeds.write_seeds(graph, self._draws, seed, self._epoch)
        tensorflow_seeds.make_ordered(graph)
        return self._graph.load(graph).with_options(self._dataset.options().merge(self._ordered))


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
