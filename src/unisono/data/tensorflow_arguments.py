"""Which part of the elements of a list of files is the name that a reader gets, as in pairs of a label and a file.

Works on `GraphDef` protocol buffers only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from unisono.data.tensorflow_stages import AROUND_NAMES, READERS, source_of

_TENSORS = {"TensorDataset", "TensorSliceDataset"}
"""Data sets whose components are their inputs."""
_BRANCHES = {"Case", "If", "StatelessCase", "StatelessIf"}
"""Ops that pass all inputs but the first to their functions."""


def components_read(graph: Any, name: str) -> set[int]:
    """Returns which components of the elements that a data set node takes its readers get as names of files.

    Args:
        graph: A `GraphDef`.
        name: Name of a node whose functions open files.

    Returns:
        Positions; none if the names come from elsewhere, several if they are put together.
    """
    functions = {f.signature.name: f for f in graph.library.function}
    (node,) = (n for n in graph.node if n.name == name)
    found = set()
    for function, argument in _wanted(node, functions):
        elements = len(function.signature.input_arg) - len(node.attr["Targuments"].list.type)
        if argument < elements:
            found.add(argument)
    return found


def _wanted(node: Any, functions: dict[str, Any]) -> Iterator[tuple[Any, int]]:
    """Yields the functions that a node calls, and the arguments of each that become names of files."""
    names = [node.op]
    for value in node.attr.values():
        names += [value.func.name, *(f.name for f in value.list.func)]
    for name in names:
        if name in functions:
            for argument in _arguments_read(functions[name], functions):
                yield functions[name], argument


def _arguments_read(function: Any, functions: dict[str, Any]) -> set[int]:
    """Returns which arguments of a function become names of files."""
    arguments = [a.name for a in function.signature.input_arg]
    nodes = {n.name: n for n in function.node_def}
    waiting: list[tuple[str, int | None]] = []
    for node in function.node_def:
        if node.op in READERS:
            waiting.append((node.input[0], None))
        waiting += [_given(node, called, argument) for called, argument in _wanted(node, functions)]
    found, seen = set(), set()
    while waiting:
        text, component = waiting.pop()
        source = source_of(text)
        if (source, component) in seen or text.startswith("^"):
            continue
        seen.add((source, component))
        if source in arguments:
            found.add(arguments.index(source))
        elif source in nodes:
            waiting += _behind(nodes[source], component)
    return found


def _given(node: Any, function: Any, argument: int) -> tuple[str, int | None]:
    """Returns which input of a node, and which component if it is a data set, its function gets as an argument."""
    if "Targuments" not in node.attr:
        return node.input[argument + (node.op in _BRANCHES)], None
    elements = len(function.signature.input_arg) - len(node.attr["Targuments"].list.type)
    return (node.input[0], argument) if argument < elements else (node.input[1 + argument - elements], None)


def _behind(node: Any, component: int | None) -> list[tuple[str, int | None]]:
    """Returns what a component of what a node yields is made of."""
    if component is not None and node.op in _TENSORS:
        return [(node.input[component], None)]
    if component is not None and node.op in AROUND_NAMES:
        return [(node.input[0], component)]
    return [(text, None) for text in node.input]
