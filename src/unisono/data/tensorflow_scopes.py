"""All nodes of a serialized `tf.data` pipeline: its own, and those of the functions it calls.

Works on `GraphDef` protocol buffers only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def scopes(graph: Any) -> Iterator[tuple[bool, Any]]:
    """Yields the nodes of the graph, then those of its functions in the order of first use: names carry counters."""
    functions = {f.signature.name: f for f in graph.library.function}
    seen: set[str] = set()

    def used(nodes: Any) -> Iterator[tuple[bool, Any]]:
        for node in nodes:
            for key in sorted(node.attr):
                value = node.attr[key]
                for name in [value.func.name, *(f.name for f in value.list.func)]:
                    if name in functions and name not in seen:
                        seen.add(name)
                        yield True, functions[name].node_def
                        yield from used(functions[name].node_def)
            if node.op in functions and node.op not in seen:
                seen.add(node.op)
                yield True, functions[node.op].node_def
                yield from used(functions[node.op].node_def)

    yield False, graph.node
    yield from used(graph.node)


def make_ordered(graph: Any) -> None:
    """Takes back every permission to yield elements out of order."""
    for _, nodes in scopes(graph):
        for node in nodes:
            if "deterministic" in node.attr and node.attr["deterministic"].s == b"false":
                node.attr["deterministic"].s = b"true"
            if "sloppy" in node.attr and node.attr["sloppy"].b:
                node.attr["sloppy"].b = False


def ops(graph: Any) -> tuple[set[str], set[str]]:
    """Returns the ops of the pipeline itself and those of all functions it calls."""
    outer: set[str] = set()
    inner: set[str] = set()
    for nested, nodes in scopes(graph):
        (inner if nested else outer).update(n.op for n in nodes)
    return outer, inner
