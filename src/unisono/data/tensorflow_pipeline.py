"""A `tf.data` pipeline whose random choices all workers agree on, rewritten for this worker's part of the data.

The pipeline is serialized, every seed in it is replaced by one all agree on (the chief's, or a fresh one where there
is none), permissions to yield out of order are taken back, and it is loaded again:

- A shuffle brings another order in each epoch, unless `reshuffle_each_iteration=False`; with a seed, the one that it
  would bring in one process (`tensorflow_orders`).
- Random ops in functions (`map`, `filter`, ...) draw afresh in each epoch. For these the pipeline is loaded again at
  each epoch; caches in memory are kept.
- Random ops in a parallel map, and layers or generators with a state of their own, may draw differently on each
  worker. That changes values, not which examples a batch holds: where all workers must draw the same, as what follows
  chooses examples by it (`filter`, ...), functions work in turn (`tensorflow_turns`).
- A pipeline that cannot be serialized (arrays of more than 2 GB in it) runs as it is, and so does Python code in
  it (`from_generator`, `py_function`): it must be the same everywhere by itself.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from unisono import log
from unisono.data import tensorflow_edit, tensorflow_scopes, tensorflow_seeds, tensorflow_turns
from unisono.data.base import Agreement
from unisono.data.report import Report
from unisono.data.tensorflow_faults import Find
from unisono.data.tensorflow_graph import PipelineGraph
from unisono.data.tensorflow_iterate import elements
from unisono.data.tensorflow_orders import Orders, Turns
from unisono.errors import DivergenceError

_STATE_OPS = {"ReadVariableOp", "AssignAddVariableOp", "RngReadAndSkip"}


def for_these_cores(dataset: Any) -> Any:
    """Returns the data set without autotuning where there is one core, on which it has nothing to tune.

    Its thread sleeps ever longer, and with one core TensorFlow's iterator waits for that thread at the end of each
    epoch (measured with TensorFlow 2.21): an epoch of 0.7 s took 1.28.
    """
    if len(os.sched_getaffinity(0)) > 1 or dataset.options().autotune.enabled is not None:
        return dataset
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)


def begun(data: Any) -> Callable[[], Iterator[Any]]:
    """Begins an iteration, as `iter` does in one process; all else happens when what it returns is called.

    Args:
        data: A `Pipeline`, which is collective only then, or a data set to be iterated as it is.
    """
    if isinstance(data, Pipeline):
        return functools.partial(data.iterate, data.begin())
    iterator = elements(for_these_cores(data))
    return lambda: iterator


Rewrite = Callable[[PipelineGraph, Any], tuple[Mapping[str, Any], Any]]
"""Changes a copy of the graph; returns what stands in for nodes, and the element spec if it is another one."""


@dataclass(frozen=True)
class Sharing:
    """How one worker gets its part.

    Args:
        report: The decision, in words and numbers.
        apart: Whether this worker's pipeline yields its own examples only, or all of them to be trained on here.
        whole: Whether batches still have the global size, to be cut into those of one worker.
        rewrite: Makes the pipeline yield this worker's part; None leaves it as it is.
        agreed: Whether random choices in it must be the same on all workers.
        stream: See `Pipeline`.
        in_step: Whether there are as many steps as global batches.
        find: Says which file and record cannot be read; None for pipelines that read no files.
        check_end: Called when this worker has read its part of an epoch; raises if some of it was not there.
    """

    report: Report
    apart: bool
    whole: bool = True
    rewrite: Rewrite | None = None
    agreed: bool = True
    stream: int = 0
    in_step: bool = False
    find: Find | None = None
    check_end: Callable[[], None] = lambda: None


class Pipeline:
    """A data set to be iterated once per epoch.

    Args:
        dataset: The user's.
        graph: Its graph; None if it cannot be serialized.
        agreement: Brings the chief's seeds to all and gives fresh ones.
        rewrite: Makes it yield this worker's part.
        stream: Number that tells this worker's random values from those of others, where each works on examples of
            its own; 0 where all compute the same.
        worker: What the names of cache files and snapshots get as a suffix, as workers may share a disk.
    """

    def __init__(
        self,
        dataset: Any,
        graph: PipelineGraph | None,
        agreement: Agreement,
        rewrite: Rewrite | None = None,
        stream: int = 0,
        worker: str = "",
    ) -> None:
        options = tf.data.Options()
        options.deterministic = True
        self._ordered = options
        self._dataset = dataset
        self._graph = graph
        self._agreement = agreement
        self._rewrite = rewrite
        self._stream = stream
        self._worker = worker
        self._draws: list[tensorflow_seeds.Draw] | None = []
        self._orders: Orders | None = None
        self._epoch = -1
        self._seed = 0
        self._loaded: Any = None
        self.values_may_differ = False
        """Whether workers may rightly see other values in the same examples."""
        self.generated = False
        """Whether a Python generator yields the examples."""
        self.is_closed = False
        """Whether it neither calls Python nor looks at variables, so that it yields the same at any time."""
        self._agree()

    def begin(self) -> Turns:
        """Returns the orders of an epoch that begins now."""
        return {} if self._orders is None else self._orders.take()

    def iterate(self, turns: Turns) -> Iterator[Any]:
        """Yields the elements of the next epoch; collective.

        Args:
            turns: What `begin` has returned.
        """
        yield from elements(self._next(turns))
        if self._orders is not None:
            self._orders.end()

    def _next(self, turns: Turns) -> Any:
        self._epoch += 1
        anew = self._loaded is None or any(d.starts_anew for d in self._draws or [])
        if anew:
            self._seed = self._agreement.seed()
        there = self._orders is None or self._orders.reach(turns)
        if anew or not there:
            self._loaded = self._load(self._seed)
        return for_these_cores(self._loaded)

    def _agree(self) -> None:
        """Takes over the chief's seeds and orders; collective."""
        mine, turns = None, None
        if self._graph is not None:
            mine = tensorflow_seeds.draws(self._graph.graph)
            self._orders = Orders(self._graph, mine, self._agreement.memory)
            turns = self._orders.look()
        chief: list[tensorflow_seeds.Draw] | None
        chief, turns = self._agreement.from_chief((mine, turns))
        here, there = ([d.op for d in draws or []] for draws in (mine, chief))
        if mine is not None and chief is not None and here != there:
            raise DivergenceError(
                f"This worker's tf.data pipeline is not the chief's: it draws random numbers in {here}, the chief's "
                f"in {there}.",
                remedy="build the same pipeline on all workers.",
            )
        self._draws = chief
        if self._graph is not None:
            outer, inner = tensorflow_scopes.ops(self._graph.graph)
            self.generated = "GeneratorDataset" in outer | inner
            python = bool(inner & tensorflow_seeds.PYTHON_OPS) and not self.generated
            random = any("Dataset" not in d.op for d in mine or [])
            state = bool(inner & _STATE_OPS)
            self.values_may_differ = python or random or state
            self.is_closed = not (python or self.generated or state)
        if chief is None:
            self._graph = self._orders = None
        elif self._orders is not None:
            self._orders.agree(chief, turns or {})

    def _load(self, seed: int) -> Any:
        if self._graph is None:
            log.once(
                "tf.data cannot be rewritten",
                "This tf.data pipeline cannot be serialized, so unseeded shuffles in it cannot be made to agree: "
                "give each shuffle a seed.",
                logging.WARNING,
            )
            return self._dataset.with_options(self._ordered)
        graph = self._graph.copy()
        own = {} if self._orders is None else self._orders.nodes()
        tensorflow_seeds.write_seeds(graph, self._draws or [], seed, self._epoch, self._stream, own)
        tensorflow_scopes.make_ordered(graph)
        options = self._dataset.options().merge(self._ordered)
        if not self._stream and tensorflow_turns.draw_in_turn(graph):
            # They would have `batch()` and its kin read ahead of their turn (measured with TensorFlow 2.21).
            options.experimental_optimization.apply_default_optimizations = False
        for cache in tensorflow_edit.own_caches(graph, self._worker):
            log.once(f"cache {cache}", f"tf.data cache or snapshot: this worker's is {cache}{self._worker}")
        replaced: Mapping[str, Any] = {}
        spec = None
        if self._rewrite is not None:
            tensorflow_edit.forget_counts(graph)
            replaced, spec = self._rewrite(self._graph, graph)
        loaded = self._graph.load(graph, replaced, spec)
        return loaded.with_options(options)
