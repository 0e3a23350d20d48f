"""Where a serialized `tf.data` pipeline draws random numbers, and with which seeds.

Works on `GraphDef` protocol buffers only. Two kinds of draws exist: dataset ops (`shuffle`, `random`,
`sample_from_datasets`) take their seeds as inputs; random ops inside functions (`map`, `filter`, ...) have them as
attributes. Both mean "draw afresh" by the pair (0, 0).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unisono.data.tensorflow_scopes import scopes
from unisono.data.tensorflow_stages import called, inputs, leading_to, source_of

PYTHON_OPS = {"EagerPyFunc", "PyFunc", "PyFuncStateless"}
"""Ops that call Python."""
_STATE_OPS = {"AssignAddVariableOp", "AssignSubVariableOp", "AssignVariableOp", "RngReadAndSkip", "RngSkip"}
"""Ops of layers and generators that keep count of what they have drawn."""
_SEED_INPUTS: dict[str, tuple[int, int, int | None]] = {
    "RandomDataset": (0, 1, None),
    "RandomDatasetV2": (0, 1, 2),
    "SamplingDataset": (2, 3, None),
    "ShuffleDataset": (2, 3, None),
    "ShuffleDatasetV3": (2, 3, 4),
    "ShuffleAndRepeatDataset": (2, 3, None),
    "ShuffleAndRepeatDatasetV2": (2, 3, 5),
}
"""Positions among the inputs of the seed, the second seed, and the resource that draws a new seed per iteration."""


@dataclass(frozen=True)
class Draw:
    """One place where a pipeline draws random numbers, as it can be sent to other workers.

    Args:
        op: Name of the op.
        seeds: Its two seeds; (0, 0) if it is not seeded, None if they are computed and cannot be read.
        nested: Whether it is inside a function, so that it starts anew with every iterator.
        reshuffles: Whether each iteration of the pipeline should bring another order.
    """

    op: str
    seeds: tuple[int, int] | None
    nested: bool
    reshuffles: bool

    @property
    def starts_anew(self) -> bool:
        """Whether an unseeded draw would repeat itself in every epoch once it is given a seed."""
        return self.seeds == (0, 0) and (self.nested or self.op in ("RandomDataset", "RandomDatasetV2"))

    @property
    def moves_on(self) -> bool:
        """Whether each iteration brings the next one of the orders that its seed stands for."""
        return self.seeds not in (None, (0, 0)) and self.reshuffles and not self.nested


def draws(graph: Any) -> list[Draw]:
    """Returns the places where a pipeline draws random numbers, in an order that depends on its structure only.

    Args:
        graph: A `GraphDef`, as `DatasetToGraphV2` gives it.
    """
    return [_draw(node, nodes, nested) for node, nodes, nested in _random_nodes(graph)]


def generators(graph: Any) -> dict[int, Any]:
    """Returns the nodes that hold the resources by which shuffles with a seed find their next order.

    Args:
        graph: A `GraphDef`, as `DatasetToGraphV2` gives it.

    Returns:
        Nodes by the place of the shuffle among `draws`.
    """
    named = {node.name: node for node in graph.node}
    found = {}
    for at, (node, nodes, nested) in enumerate(_random_nodes(graph)):
        generator = _generator(node, nested)
        if generator is not None and _draw(node, nodes, nested).moves_on:
            holder = named.get(node.input[generator].split(":")[0])
            if holder is not None and holder.op == "Const":
                found[at] = holder
    return found


def passes(graph: Any, at: int) -> int | None:
    """Returns how many orders of a shuffle one iteration of the pipeline takes; None if that is not known.

    Args:
        graph: A `GraphDef`, as `DatasetToGraphV2` gives it.
        at: Place of the shuffle among `draws`.
    """
    nodes = {node.name: node for node in graph.node}
    node = [node for node, _, _ in _random_nodes(graph)][at]
    count = 1
    while True:
        if node.op == "RepeatDataset" or "AndRepeat" in node.op:
            times = _value(node.input[1 if node.op == "RepeatDataset" else 4], graph.node)
            if times is None or times < 0:
                return None
            count *= times
        behind = [n for n in nodes.values() if node.name in inputs(n, nodes)]
        if not behind:
            return count
        if len(behind) > 1 or inputs(behind[0], nodes) != [node.name] or source_of(behind[0].input[0]) != node.name:
            return None
        (node,) = behind


def begin_anew(graph: Any) -> None:
    """Has shuffles begin with their first order, and leave the data set as it is of which this is the graph."""
    for node, nodes, nested in list(_random_nodes(graph)):
        generator = _generator(node, nested)
        if generator is not None:
            node.input[generator] = _add(nodes, "DummySeedGenerator").name


def write_seeds(
    graph: Any, agreed: Sequence[Draw], seed: int, epoch: int, stream: int = 0, own: Mapping[int, Any] | None = None
) -> None:
    """Gives every draw of a pipeline the seeds all workers agree on.

    Args:
        graph: A `GraphDef`; changed in place.
        agreed: The chief's draws, for the same structure.
        seed: Agreed seed for the draws that have none.
        epoch: 0 keeps the seeds a user has set; other values derive new ones from them, for draws that
            should differ between epochs.
        stream: Where it is not 0, values drawn in functions depend on it; orders do not.
        own: Nodes that hold resources for `generators`: shuffles that have one keep their seeds.
    """
    given = own or {}
    for at, ((node, nodes, nested), draw) in enumerate(zip(list(_random_nodes(graph)), agreed, strict=True)):
        if draw.seeds is None:
            continue
        if draw.seeds == (0, 0):
            pair = _derived(seed, at, epoch if draw.reshuffles else 0)
        elif epoch and draw.reshuffles and not nested and at not in given:
            pair = _derived(*draw.seeds, epoch)
        else:
            pair = draw.seeds
        if node.op not in _SEED_INPUTS:
            if stream:
                pair = _derived(*pair, stream)
            node.attr["seed"].i, node.attr["seed2"].i = pair
            continue
        first, second, _ = _SEED_INPUTS[node.op]
        node.input[first] = _constant(nodes, pair[0], nested)
        node.input[second] = _constant(nodes, pair[1], nested)
        generator = _generator(node, nested)
        if generator is not None:
            # The resource of the original pipeline has drawn its seeds already, other ones on each worker.
            holder = _add(nodes, "DummySeedGenerator")
            if at in given:
                name = holder.name
                holder.CopyFrom(given[at])
                holder.name = name
            node.input[generator] = holder.name


def draws_itself(node: Any) -> bool:
    """Returns whether a node of a function draws random values."""
    return _is_random(node) or node.op in _STATE_OPS


def varies(node: Any, functions: dict[str, Any]) -> bool:
    """Returns whether the functions of a data set node draw random values, so that calls of them are no equals.

    Args:
        node: The node.
        functions: Functions of its graph, by name.
    """
    return any(draws_itself(n) for f in called(node, functions) for n in f.node_def)


def varies_before(graph: Any, name: str, *, python: bool = False) -> bool:
    """Returns whether what a data set node yields depends on random values that functions draw.

    Args:
        graph: A `GraphDef`.
        name: Name of the node.
        python: Whether to count calls of Python, whose results nobody knows beforehand, too.
    """
    nodes = {node.name: node for node in graph.node}
    functions = {f.signature.name: f for f in graph.library.function}
    before = [nodes[each] for each in leading_to(name, nodes)]
    return any(
        varies(node, functions)
        or (python and any(n.op in PYTHON_OPS for f in called(node, functions) for n in f.node_def))
        for node in before
    )


def content(graph: Any) -> int:
    """Returns a checksum of what a pipeline does: its ops and constants, but not names and seeds."""
    crc = 0
    for _, nodes in scopes(graph):
        seeds = {
            node.input[at].split(":")[0]
            for node in nodes
            if node.op in _SEED_INPUTS
            for at in _SEED_INPUTS[node.op]
            if at is not None
        }
        for node in nodes:
            crc = zlib.crc32(node.op.encode(), crc)
            if node.op == "Const" and node.name not in seeds and node.attr["dtype"].type not in _HANDLES:
                crc = zlib.crc32(node.attr["value"].tensor.SerializeToString(deterministic=True), crc)
    return crc


def _random_nodes(graph: Any) -> Iterator[tuple[Any, Any, bool]]:
    for nested, nodes in scopes(graph):
        for node in list(nodes):
            if node.op in _SEED_INPUTS or _is_random(node):
                yield node, nodes, nested


def _is_random(node: Any) -> bool:
    return node.op not in _SEED_INPUTS and "seed" in node.attr and "seed2" in node.attr


def _generator(node: Any, nested: bool) -> int | None:
    """Returns which input of a node is the resource that draws a new seed per iteration."""
    return None if nested or node.op not in _SEED_INPUTS else _SEED_INPUTS[node.op][2]


def _draw(node: Any, nodes: Any, nested: bool) -> Draw:
    if node.op not in _SEED_INPUTS:
        return Draw(node.op, (node.attr["seed"].i, node.attr["seed2"].i), nested, True)
    first, second, _ = _SEED_INPUTS[node.op]
    reshuffles = True
    for name in ("reshuffle_each_iteration", "rerandomize_each_iteration"):
        if name in node.attr:
            reshuffles = node.attr[name].b
    seed, seed2 = _value(node.input[first], nodes), _value(node.input[second], nodes)
    seeds = None if seed is None or seed2 is None else (seed, seed2)
    return Draw(node.op, seeds, nested, reshuffles)


def _value(name: str, nodes: Any) -> int | None:
    """Returns the integer a node's input holds, or None if it is not a constant."""
    name = name.split(":")[0]
    for node in nodes:
        if node.name == name and node.op == "Const":
            tensor = node.attr["value"].tensor
            if tensor.int64_val:
                return int(tensor.int64_val[0])
            content = np.frombuffer(tensor.tensor_content, np.int64)
            return int(content[0]) if len(content) else 0
    return None


def _derived(*numbers: int) -> tuple[int, int]:
    """Returns two positive seeds that depend on all numbers."""
    words = np.random.SeedSequence([n % 2**64 for n in numbers]).generate_state(2, np.uint32)
    return int(words[0] >> 1) + 1, int(words[1] >> 1) + 1


def _add(nodes: Any, op: str) -> Any:
    node = nodes.add()
    node.op = op
    node.name = f"agreed_{op}_{len(nodes)}"
    return node


def _constant(nodes: Any, value: int, nested: bool) -> str:
    node = _add(nodes, "Const")
    node.attr["dtype"].type = _INT64
    node.attr["value"].tensor.dtype = _INT64
    node.attr["value"].tensor.tensor_shape.SetInParent()
    node.attr["value"].tensor.int64_val.append(value)
    return f"{node.name}:output:0" if nested else str(node.name)


_HANDLES = (20, 21)
"""`DT_RESOURCE` and `DT_VARIANT`."""
_INT64 = 9
"""`DT_INT64` of TensorFlow's types.proto."""
