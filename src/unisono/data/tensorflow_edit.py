"""Changes of a serialized `tf.data` pipeline: smaller batches, functions after the choice of examples, shards, caches.

Works on `GraphDef` protocol buffers only; all functions change the graph they are given.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from unisono.data.tensorflow_graph import add_constant, constant, output_types, value_of
from unisono.data.tensorflow_stages import NEUTRAL, SHUFFLES, followers, inputs, is_batch, source_of

MOVERS = SHUFFLES | {"RepeatDataset", "SkipDataset", "TakeDataset"}
"""Ops that choose and order examples without looking at them."""
FUNCTIONS = {"MapDataset", "ParallelMapDataset", "ParallelMapDatasetV2"}
"""Ops that turn each example into one other."""
_SIZED = {"BatchDataset", "BatchDatasetV2", "PaddedBatchDataset", "PaddedBatchDatasetV2", "ParallelBatchDataset"}
_DROPS = {"BatchDatasetV2": 2, "PaddedBatchDatasetV2": -1, "ParallelBatchDataset": 3}
"""Position of `drop_remainder` among the inputs."""
_ON_DISK = {"CacheDataset", "CacheDatasetV2", "SnapshotDataset", "SnapshotDatasetV2"}
"""Ops that keep elements under the path which is their second input."""
_VARIANT = 21
"""DT_VARIANT of TensorFlow's types.proto."""

_ALL = -1
"""How many elements `TakeDataset` takes where it takes all."""

SHARD_HINT = -1
"""`tf.data.experimental.SHARD_HINT`."""


@dataclass(frozen=True)
class Batching:
    """The one place where a pipeline makes its batches.

    Args:
        node: Name of the node.
        size: Examples of a global batch.
        drop: Whether a smaller last batch is left out.
        functions: Whether functions see the batches.
        moved: Whether batches are repeated, shuffled, cached or counted.
    """

    node: str
    size: int
    drop: bool
    functions: bool
    moved: bool


def batching(graph: Any, result: str) -> Batching | None:
    """Returns where a pipeline makes its batches; None if that is not one place of a size known beforehand."""
    nodes = {node.name: node for node in graph.node}
    name, functions, moved = result, False, False
    while not is_batch(nodes[name]):
        node = nodes[name]
        functions |= node.op in FUNCTIONS
        moved |= node.op in MOVERS or node.op.startswith("CacheDataset")
        before = inputs(node, nodes)
        if node.op not in FUNCTIONS | MOVERS | NEUTRAL and not node.op.startswith("CacheDataset"):
            return None
        if len(before) != 1:
            return None
        name = before[0]
    node = nodes[name]
    if node.op not in _SIZED:
        return None
    size = constant(graph, source_of(node.input[1]))
    drop = constant(graph, source_of(node.input[_DROPS[node.op]])) if node.op in _DROPS else False
    if size is None or drop is None or _depends_on_all(graph, node):
        return None
    return Batching(name, int(size), bool(drop), functions, moved)


def _depends_on_all(graph: Any, node: Any) -> bool:
    """Returns whether the shape of a batch depends on all of its examples: it is padded, or will be."""
    if _VARIANT in output_types(node).list.type:
        # Ragged, or sparse: made dense later, it gets the width of the longest row.
        return True
    if not node.op.startswith("Padded"):
        return False
    shapes = [constant(graph, source_of(node.input[2 + i])) for i in range(node.attr["N"].i)]
    return any(s is None or np.any(s < 0) for s in shapes)


def shrinks(batches: Batching | None) -> bool:
    """Returns whether batches can be made smaller: functions traced for batches of exactly one size forbid it."""
    return batches is not None and not (batches.drop and batches.functions)


def shrink(graph: Any, batches: Batching, rows: int) -> None:
    """Makes batches smaller that `shrinks` says can be.

    Args:
        graph: Changed in place.
        batches: Where batches are made.
        rows: Their new size.
    """
    nodes = {node.name: node for node in graph.node}
    nodes[batches.node].input[1] = add_constant(graph, rows)
    if batches.drop:
        for name in followers(batches.node, nodes):
            for shape in nodes[name].attr["output_shapes"].list.shape:
                if shape.dim and shape.dim[0].size == batches.size:
                    shape.dim[0].size = rows


@dataclass(frozen=True)
class Segment:
    """The stretch of a pipeline between a source and its batches in which functions and moves change places.

    Args:
        start: Name of the node before it.
        movers: Nodes that choose and order examples, first to last.
        functions: Nodes that turn each example into one other, first to last.
    """

    start: str
    movers: tuple[str, ...]
    functions: tuple[str, ...]


def segment(graph: Any, batches: Batching) -> Segment | None:
    """Returns the stretch before the batches; None if no function is in it."""
    nodes = {node.name: node for node in graph.node}
    movers: list[str] = []
    functions: list[str] = []
    (name,) = inputs(nodes[batches.node], nodes)
    while nodes[name].op in MOVERS | FUNCTIONS | NEUTRAL:
        before = inputs(nodes[name], nodes)
        if len(before) != 1:
            return None
        if nodes[name].op not in NEUTRAL:
            (movers if nodes[name].op in MOVERS else functions).append(name)
        name = before[0]
    if not functions:
        return None
    return Segment(name, tuple(reversed(movers)), tuple(reversed(functions)))


def elements_of(graph: Any, name: str) -> list[str]:
    """Returns the names of the data set nodes whose elements a node takes."""
    nodes = {node.name: node for node in graph.node}
    return inputs(nodes[name], nodes)


def functions_last(graph: Any, batches: Batching, part: Segment) -> str:
    """Lets a pipeline choose and order examples before it works on them: the result is the same.

    Returns:
        Name of the node after which the order of the examples is settled, and before which no function runs.
    """
    nodes = {node.name: node for node in graph.node}
    start = nodes[part.start]
    types = output_types(start)
    last = part.start
    for name in part.movers:
        nodes[name].input[0] = last
        nodes[name].attr["output_types"].CopyFrom(types)
        nodes[name].attr["output_shapes"].CopyFrom(start.attr["output_shapes"])
        last = name
    settled = last
    for name in part.functions:
        nodes[name].input[0] = last
        last = name
    nodes[batches.node].input[0] = last
    return settled


def one_by_one(graph: Any, result: str) -> None:
    """Has a pipeline yield its records once and in order, each in a batch of its own where that is possible."""
    batches = batching(graph, result)
    if batches is not None and shrinks(batches):
        shrink(graph, batches, 1)
    forget_counts(graph)
    for node in graph.node:
        if node.op in SHUFFLES or node.op == "RepeatDataset":
            node.input[1] = add_constant(graph, 1)


def resolve_hints(graph: Any, rank: int, size: int) -> int:
    """Replaces `shard(SHARD_HINT, ...)` by the shard of one worker.

    Returns:
        Number of places.
    """
    found = 0
    for nodes in [graph.node, *(f.node_def for f in graph.library.function)]:
        values = {n.name: n for n in nodes if n.op == "Const"}
        for node in [n for n in nodes if n.op == "ShardDataset"]:
            number = values.get(source_of(node.input[1]))
            if number is not None and value_of(number) == SHARD_HINT:
                nested = nodes is not graph.node
                node.input[1] = add_constant(graph, size, nodes if nested else None)
                node.input[2] = add_constant(graph, rank, nodes if nested else None)
                found += 1
    return found


def forget_counts(graph: Any) -> None:
    """Takes back what `assert_cardinality` says, which holds for all data together, not for a part of it."""
    for node in [n for n in graph.node if n.op == "AssertCardinalityDataset"]:
        node.op = "TakeDataset"
        node.input[1] = add_constant(graph, _ALL)


def own_caches(graph: Any, suffix: str) -> list[str]:
    """Gives each cache that lies in a file, and each snapshot, a name of its own, as workers may share a disk.

    Args:
        graph: Changed in place.
        suffix: What to append.

    Returns:
        The names as the user wrote them.
    """
    found = []
    for node in graph.node:
        if node.op in _ON_DISK:
            name = constant(graph, source_of(node.input[1]))
            if name:
                found.append(name.decode())
                node.input[1] = add_constant(graph, name + suffix.encode())
    return found
