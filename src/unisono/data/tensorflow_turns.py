"""Has functions of a `tf.data` pipeline draw random values in the order of the examples, not as threads happen to run.

Works on `GraphDef` protocol buffers only. Workers that all run a whole pipeline must draw the same where these values
choose examples (`filter`, `flat_map`, ...) or are whole numbers, which fingerprints cover. Then what calls functions
in parallel calls them in turn. Floating-point values that only change what an example looks like may differ.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from unisono.data.tensorflow_edit import FUNCTIONS, MOVERS
from unisono.data.tensorflow_graph import add_constant
from unisono.data.tensorflow_seeds import draws_itself, varies
from unisono.data.tensorflow_stages import NEUTRAL, called, followers, is_batch, is_dataset, source_of

_BLIND = (
    MOVERS | FUNCTIONS | NEUTRAL | {"ConcatenateDataset", "DirectedInterleaveDataset", "ShardDataset", "ZipDataset"}
)
"""Ops that neither leave out nor add nor order examples by what is in them."""
_FUSED = "MapAndBatchDataset"
_EACH = FUNCTIONS | {_FUSED}
"""Ops whose function turns each example into one other."""
_IN_TURN = {
    **dict.fromkeys(("ParallelMapDataset", "ParallelMapDatasetV2"), ("MapDataset", 0)),
    **dict.fromkeys(
        (
            "LegacyParallelInterleaveDatasetV2",
            "ParallelInterleaveDataset",
            "ParallelInterleaveDatasetV2",
            "ParallelInterleaveDatasetV3",
            "ParallelInterleaveDatasetV4",
        ),
        ("InterleaveDataset", 2),
    ),
}
"""What does the same as a parallel op, but in turn, and how many inputs it has behind the arguments of its function."""
_FLOATS = {1, 2, 14, 19}
"""`DT_FLOAT`, `DT_DOUBLE`, `DT_BFLOAT16` and `DT_HALF` of TensorFlow's types.proto."""
_ALL = -1
"""How many elements `TakeDataset` takes where it takes all."""


def draw_in_turn(graph: Any) -> bool:
    """Has all functions draw in the order of the examples whose random values may choose or number examples.

    Args:
        graph: A `GraphDef`; changed in place.

    Returns:
        Whether functions yield data sets with such functions, which TensorFlow's own optimizations must not read ahead.
    """
    nested = False
    nodes = {node.name: node for node in graph.node}
    functions = {f.signature.name: f for f in graph.library.function}
    for node in list(nodes.values()):
        if not is_dataset(node) or not varies(node, functions) or not _matters(node, nodes, functions):
            continue
        _call_in_turn(graph, node, None)
        for function in called(node, functions):
            for inner in list(function.node_def):
                if is_dataset(inner) and varies(inner, functions):
                    nested = True
                    _call_in_turn(graph, inner, function.node_def)
                _read_in_turn(graph, inner, function.node_def)
    return nested


def _matters(node: Any, nodes: dict[str, Any], functions: dict[str, Any]) -> bool:
    """Returns whether all workers must draw the same in the functions of a data set node."""
    _, *behind = followers(node.name, nodes)
    if any(_looks(nodes[name]) for name in behind):
        return True
    own = list(_own_functions(node, functions))
    if node.op in _EACH:
        return any(_gives_whole_numbers(function, functions) for function in own)
    return any(_chooses(function, functions) for function in own)


def _looks(node: Any) -> bool:
    """Returns whether examples may come, go or change places behind a node for what is in them."""
    blind = node.op in _BLIND or is_batch(node) or node.op.startswith("CacheDataset")
    return is_dataset(node) and not blind


def _chooses(function: Any, functions: dict[str, Any]) -> bool:
    """Returns whether examples depend on what is drawn in a function that yields a data set, or a verdict."""
    nodes = {node.name: node for node in function.node_def}
    for node in function.node_def:
        drawn = draws_itself(node) or varies(node, functions)
        if drawn and (not is_dataset(node) or _matters(node, nodes, functions)):
            return True
    return False


def _gives_whole_numbers(function: Any, functions: dict[str, Any]) -> bool:
    """Returns whether anything but floating-point numbers that a function returns depends on what is drawn in it."""
    drawn = {n.name for n in function.node_def if draws_itself(n) or varies(n, functions)}
    known = 0
    while known != len(drawn):
        known = len(drawn)
        drawn |= {n.name for n in function.node_def if any(source_of(text) in drawn for text in n.input)}
    results = function.signature.output_arg
    return any(source_of(function.ret[r.name]) in drawn for r in results if r.type not in _FLOATS)


def _own_functions(node: Any, functions: dict[str, Any]) -> Iterator[Any]:
    for value in node.attr.values():
        for name in (value.func.name, *(f.name for f in value.list.func)):
            if name in functions:
                yield functions[name]


def _call_in_turn(graph: Any, node: Any, nodes: Any) -> None:
    """Takes the threads from a data set node that calls a function; `nodes` are those of the function it stands in."""
    given = 1 + len(node.attr["Targuments"].list.type) if "Targuments" in node.attr else 1
    if node.op in _IN_TURN:
        node.op, kept = _IN_TURN[node.op]
        del node.input[given + kept :]
        for name in ("deterministic", "sloppy", "use_unbounded_threadpool"):
            node.attr.pop(name, None)
    elif node.op == _FUSED:
        node.input[given + 1] = add_constant(graph, 1, nodes)


def _read_in_turn(graph: Any, node: Any, nodes: Any) -> None:
    """Keeps a data set of a function from reading ahead, while others are read that draw from the same op."""
    if node.op == "PrefetchDataset":
        node.op = "TakeDataset"
        node.input[1] = add_constant(graph, _ALL, nodes)
        for name in ("slack_period", "legacy_autotune", "buffer_size_min"):
            node.attr.pop(name, None)
    elif node.op == "ParallelBatchDataset":
        node.op = "BatchDatasetV2"
        del node.input[2]
        node.attr.pop("deterministic", None)
