"""Whether functions behind `batch()` treat each example of a batch by itself.

Works on `GraphDef` protocol buffers only. A function is followed op by op: what it computes either has one row for each
example, made of that example alone, or is the same whatever the examples are. Ops that are not known here may join
examples, so whoever asks must then hand them whole batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unisono.data.tensorflow_graph import constant
from unisono.data.tensorflow_row_ops import OPS, Fixed, MayJoinError, Rows, Value
from unisono.data.tensorflow_seeds import varies
from unisono.data.tensorflow_stages import inputs, source_of

_CALLS = {"PartitionedCall", "StatefulPartitionedCall"}


def row_by_row(graph: Any, batched: str, result: str) -> bool:
    """Returns whether all functions behind a batch surely treat each example by itself.

    Functions that draw random values count as such: on a part of a batch they draw other values anyway.

    Args:
        graph: A `GraphDef`, as `PipelineGraph` holds it.
        batched: Name of the node that makes the batches; each node behind it has one input.
        result: Name of the node that yields the elements of the pipeline.
    """
    nodes = {node.name: node for node in graph.node}
    functions = {f.signature.name: f for f in graph.library.function}
    behind = []
    name = result
    while name != batched:
        behind.append(nodes[name])
        (name,) = inputs(nodes[name], nodes)
    element: list[Value] = _rows_of(nodes[batched])
    for node in reversed(behind):
        if "f" not in node.attr:
            continue
        if varies(node, functions):
            element = _rows_of(node)
            continue
        captured = [Fixed.of(constant(graph, source_of(text))) for text in _captured(node)]
        try:
            element = _call(functions[node.attr["f"].func.name], [*element, *captured], functions)
        except MayJoinError:
            return False
        if not all(isinstance(value, Rows) for value in element):
            return False
    return True


def _rows_of(node: Any) -> list[Value]:
    shapes = node.attr["output_shapes"].list.shape
    return [Rows(None if s.unknown_rank else tuple(_dim(d.size) for d in s.dim[1:])) for s in shapes]


def _dim(size: int) -> int | None:
    return None if size < 0 else size


def _captured(node: Any) -> Sequence[str]:
    return node.input[1 : 1 + len(node.attr["Targuments"].list.type)]  # type: ignore[no-any-return]


def _call(function: Any, given: Sequence[Value], functions: dict[str, Any]) -> list[Value]:
    """Returns what a function returns; what nothing of that needs may be anything."""
    nodes = {node.name: node for node in function.node_def}
    known: dict[str, list[Value]] = {
        argument.name: [value] for argument, value in zip(function.signature.input_arg, given, strict=True)
    }

    def value(text: str) -> Value:
        name, *_, at = text.split(":") if ":" in text else (text, "0")
        outputs = compute(name)
        if int(at) >= len(outputs):
            raise MayJoinError(text)
        return outputs[int(at)]

    def compute(name: str) -> list[Value]:
        if name not in known:
            node = nodes[name]
            arguments = [value(text) for text in node.input if not text.startswith("^")]
            if node.op in _CALLS:
                known[name] = _call(functions[node.attr["f"].func.name], arguments, functions)
            elif node.op in OPS:
                known[name] = OPS[node.op](node, arguments)
            else:
                raise MayJoinError(node.op)
        return known[name]

    return [value(function.ret[out.name]) for out in function.signature.output_arg]
