"""The orders that shuffles with a seed bring, one after the other, counted as one process counts them.

A shuffle with a seed moves on to its next order whenever something begins to iterate a data set it belongs to: an
epoch of `fit`, `evaluate`, or a look of the script's own. In one process a resource of the data set keeps count, which
cannot be read. Workers load pipelines anew, and what only one of them has looked at must not shift its orders against
the others'. So they count for themselves, by the name of that resource; how often the script itself has iterated shows
in which order comes next; the chief's count holds; and generators of their own are brought to where the count is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from unisono.data import tensorflow_seeds
from unisono.data.tensorflow_graph import PipelineGraph, resource, serialize
from unisono.data.tensorflow_iterate import elements

Turns = Mapping[int, int]
"""For each seeded shuffle of a pipeline (by its place among `tensorflow_seeds.draws`), which order comes, from 0."""

_ROWS = 32
"""Examples whose order tells one state of a generator from all others."""
_FEW = 4
_MOST = 1 << 14
"""Orders that are compared, before a state counts as not known."""


class Generator:
    """Draws the seeds of one order after the other.

    Args:
        seeds: What they are drawn from.
        handle: The resource of a data set whose generator it is; None for a new one.
    """

    def __init__(self, seeds: tuple[int, int], handle: Any = None) -> None:
        self.drawn = 0
        """Orders drawn here."""
        with tf.device("CPU:0"):
            shuffled = tf.raw_ops.ShuffleDatasetV3(
                input_dataset=tf.data.experimental.to_variant(tf.data.Dataset.range(_ROWS)),
                buffer_size=_ROWS,
                seed=seeds[0],
                seed2=seeds[1],
                seed_generator=tf.raw_ops.DummySeedGenerator() if handle is None else handle,
                reshuffle_each_iteration=True,
                output_types=[tf.int64],
                output_shapes=[[]],
            )
        options = tf.data.Options()
        # Its thread complains on stderr when an iterator is given up.
        options.autotune.enabled = False
        rows = tf.data.experimental.from_variant(shuffled, tf.TensorSpec([], tf.int64))
        self._dataset = rows.batch(_ROWS).with_options(options)

    def draw(self, count: int = 1) -> list[bytes]:
        """Moves on by some orders; returns what tells each from all others."""
        self.drawn += count
        if count <= _FEW:
            return [next(elements(self._dataset)).numpy().tobytes() for _ in range(count)]
        repeated = tf.data.Dataset.range(count).flat_map(self._again)
        return [order.numpy().tobytes() for order in elements(repeated)]

    def node(self) -> Any:
        """Returns a node of a graph that holds the resource."""
        graph = serialize(self._dataset)
        assert graph is not None
        (node,) = tensorflow_seeds.generators(graph.graph).values()
        return node

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def _again(self, _: Any) -> Any:
        return self._dataset


@dataclass
class _Count:
    """What is known of the resource of one shuffle.

    Args:
        like: A generator with the same seeds.
        next: The order that comes next, if all that has iterated had used the resource itself.
        used: How many the resource has drawn as far as is known.
        known: Which order is which.
    """

    like: Generator
    next: int = 0
    used: int = 0
    known: dict[bytes, int] = field(default_factory=dict)

    def look(self, order: bytes) -> None:
        """Takes account of the order that the resource has just drawn."""
        while order not in self.known and len(self.known) < _MOST:
            for new in self.like.draw(max(_FEW, len(self.known))):
                self.known.setdefault(new, len(self.known))
        found = self.known.get(order)
        if found is not None:
            self.next += max(0, found - self.used)
            self.used = found + 1


class Orders:
    """The shuffles with a seed of one pipeline.

    Args:
        graph: The pipeline.
        draws: Where it draws.
        counts: What is known of resources by their names, which no others ever get.
    """

    def __init__(self, graph: PipelineGraph, draws: list[tensorflow_seeds.Draw], counts: dict[str, Any]) -> None:
        self._draws = draws
        self._counts: dict[int, _Count] = {}
        self._originals: dict[int, Generator] = {}
        self._own: dict[int, Generator] = {}
        self._ended = False
        for at, node in tensorflow_seeds.generators(graph.graph).items():
            seeds = self._seeds(at)
            name = node.attr["value"].tensor.resource_handle_val[0].name
            if name not in counts:
                counts[name] = _Count(Generator(seeds))
            self._counts[at] = counts[name]
            self._originals[at] = Generator(seeds, resource(node))
        self._passes = {at: tensorflow_seeds.passes(graph.graph, at) for at in self._counts}

    def look(self) -> Turns:
        """Returns which orders come next, of all that this process has iterated."""
        for at, count in self._counts.items():
            count.look(*self._originals[at].draw())
        return {at: count.next for at, count in self._counts.items()}

    def agree(self, chief: list[tensorflow_seeds.Draw], turns: Turns) -> None:
        """Takes over the chief's seeds and counts."""
        self._draws = chief
        for at in list(self._counts):
            if at in turns:
                self._counts[at].next = turns[at]
            else:
                del self._counts[at]

    def take(self) -> Turns:
        """Returns the orders of an iteration that begins now; the user's data set moves on as well."""
        turns = {}
        for at, count in self._counts.items():
            turns[at] = count.next
            self._skip(at, 1)
        return turns

    def reach(self, turns: Turns) -> bool:
        """Moves the generators in use on to some orders; returns False if they had to be replaced by new ones."""
        there = True
        for at, turn in turns.items():
            self._skip(at, (self._passes[at] or 1) - 1)
            there &= at in self._own and self._own[at].drawn <= turn and (self._passes[at] == 1 or self._ended)
        if not there:
            self._own = {at: Generator(self._seeds(at)) for at in turns}
        for at, turn in turns.items():
            self._own[at].draw(turn - self._own[at].drawn)
            self._own[at].drawn += self._passes[at] or 1
        self._ended = False
        return there

    def end(self) -> None:
        """Notes that the iteration of the orders reached has come to its end: it has taken as many as it takes."""
        self._ended = True

    def nodes(self) -> dict[int, Any]:
        """Returns nodes that hold the resources of the generators in use."""
        return {at: own.node() for at, own in self._own.items()}

    def _seeds(self, at: int) -> tuple[int, int]:
        seeds = self._draws[at].seeds
        assert seeds is not None
        return seeds

    def _skip(self, at: int, orders: int) -> None:
        count = self._counts[at]
        count.next += orders
        if count.used < count.next:
            self._originals[at].draw(count.next - count.used)
            count.used = count.next
