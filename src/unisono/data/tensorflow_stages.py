"""Where a serialized `tf.data` pipeline reads files, and what in it depends on the order of all examples.

Works on `GraphDef` protocol buffers only. `TFRecordDataset(names)`, `interleave(TextLineDataset)`, `make_csv_dataset`
and their kin all come down to one form: a data set of file names, and a node that opens each of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

READERS = {
    "CSVDataset",
    "CSVDatasetV2",
    "FixedLengthRecordDataset",
    "FixedLengthRecordDatasetV2",
    "LMDBDataset",
    "TFRecordDataset",
    "TFRecordDatasetV2",
    "TextLineDataset",
}
"""Ops that yield the records of the files named by their first input."""

SHUFFLES = {
    "ShuffleAndRepeatDataset",
    "ShuffleAndRepeatDatasetV2",
    "ShuffleDataset",
    "ShuffleDatasetV2",
    "ShuffleDatasetV3",
}
NEUTRAL = {"AssertCardinalityDataset", "ModelDataset", "OptionsDataset", "PrefetchDataset"}
"""Ops that yield what they are given."""

NO_FILES = "concatenate() with data that lies in no file"
"""What depends on the order of all examples where a pipeline reads files and other data too."""

INTERLEAVED = "DirectedInterleaveDataset"
"""Op that takes from one data set or another as a third says, its first input."""

AROUND_NAMES = SHUFFLES | NEUTRAL | {"RepeatDataset"}
"""What may stand between a list of files and their readers without changing which files there are."""

_IN_ORDER = {
    INTERLEAVED: "choose_from_datasets() or sample_from_datasets()",
    "GroupByReducerDataset": "group_by_reducer()",
    "ScanDataset": "scan()",
    "ShardDataset": "shard()",
    "SkipDataset": "skip()",
    "SlidingWindowDataset": "a sliding window",
    "TakeDataset": "take()",
    "TakeWhileDataset": "take_while()",
    "UniqueDataset": "unique()",
    "WindowDataset": "window()",
    "WindowOp": "window()",
    "ZipDataset": "zip() or enumerate()",
}
"""Ops whose result depends on the order of all examples or on which come together, and their names for the log."""

_PLAIN = {"Const", "FlatMapDataset", "Identity", "NoOp", "Reshape", "TensorSliceDataset"}
"""What a function may hold, beside its reader, that yields the records of one file and nothing else."""


@dataclass(frozen=True)
class Stage:
    """One place where a pipeline opens files.

    Args:
        node: Name of the node that yields what was read.
        reader: Op that reads, e.g. "TextLineDataset".
        names: Name of the data set node that yields file names; None if they are an input of the reader itself.
        tensor: Name of the node that holds the file names in that case.
        base: Name of the data set node in which each file name occurs once, if it is known.
        plain: Whether `node` yields the records of the files, unchanged.
        cycle: Name of the node that says how many files are read in turn; None for one.
    """

    node: str
    reader: str
    names: str | None
    tensor: str | None
    base: str | None
    plain: bool
    cycle: str | None


@dataclass(frozen=True)
class Layout:
    """What matters of a pipeline for its sharing.

    Args:
        stages: Where it opens files.
        order: What behind them depends on the order of all examples, in words; None if nothing does.
    """

    stages: tuple[Stage, ...]
    order: str | None


def layout(graph: Any, result: str) -> Layout:
    """Returns where a pipeline opens files, and what it does with the records.

    Args:
        graph: A `GraphDef`, as `PipelineGraph` holds it.
        result: Name of the node that yields the elements of the pipeline.
    """
    nodes = {node.name: node for node in graph.node}
    functions = {f.signature.name: f for f in graph.library.function}
    stages: dict[str, Stage] = {}
    behind: list[Any] = []
    waiting, seen = [result], set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        node = nodes[name]
        stage = _stage(node, nodes, functions)
        if stage is not None:
            stages[name] = stage
            continue
        behind.append(node)
        waiting += inputs(node, nodes)
    return Layout(tuple(stages.values()), _order(behind, nodes) if stages else None)


def inputs(node: Any, nodes: dict[str, Any]) -> list[str]:
    """Returns the names of the data set nodes whose elements a node takes."""
    names = (source_of(text) for text in node.input)
    return [name for name in names if name in nodes and is_dataset(nodes[name])]


def leading_to(name: str, nodes: dict[str, Any]) -> list[str]:
    """Returns the names of a data set node and of all whose elements it gets, directly or through others."""
    found: list[str] = []
    waiting = [name]
    while waiting:
        current = waiting.pop()
        if current not in found:
            found.append(current)
            waiting += inputs(nodes[current], nodes)
    return found


def followers(name: str, nodes: dict[str, Any]) -> list[str]:
    """Returns the names of a data set node, first, and of all that take its elements, directly or through others."""
    found, waiting = [], [name]
    while waiting:
        current = waiting.pop()
        found.append(current)
        waiting += [n.name for n in nodes.values() if current in inputs(n, nodes)]
    return found


def source_of(text: str) -> str:
    """Returns the name of the node behind an input such as "name:0"."""
    return text.lstrip("^").split(":")[0]


def is_dataset(node: Any) -> bool:
    """Returns whether a node yields a data set."""
    return "output_shapes" in node.attr and ("Dataset" in node.op or node.op == "WindowOp")


def is_batch(node: Any) -> bool:
    """Returns whether a node joins elements to batches."""
    return "Batch" in node.op and not any(word in node.op for word in ("Unbatch", "Rebatch"))


def called(node: Any, functions: dict[str, Any]) -> Iterator[Any]:
    """Yields the functions that a node calls, directly or through others."""
    waiting, seen = [node], set()
    while waiting:
        current = waiting.pop()
        names = [current.op] if current.op in functions else []
        for value in current.attr.values():
            names += [value.func.name, *(f.name for f in value.list.func)]
        for name in names:
            if name in functions and name not in seen:
                seen.add(name)
                yield functions[name]
                waiting += functions[name].node_def


def _stage(node: Any, nodes: dict[str, Any], functions: dict[str, Any]) -> Stage | None:
    if node.op in READERS:
        tensor = source_of(node.input[0])
        if tensor in nodes and nodes[tensor].op == "Identity":
            tensor = source_of(nodes[tensor].input[0])
        return Stage(node.name, node.op, None, tensor, None, False, None)
    if "Dataset" not in node.op:
        return None
    bodies = list(called(node, functions))
    readers = [n for f in bodies for n in f.node_def if n.op in READERS]
    names = inputs(node, nodes)
    if not readers or len(names) != 1:
        return None
    plain = len({n.op for n in readers}) == 1 and all(
        n.op in _PLAIN or n.op in READERS for f in bodies for n in f.node_def
    )
    cycle = source_of(node.input[_CYCLE[node.op]]) if node.op in _CYCLE else None
    return Stage(node.name, readers[0].op, names[0], None, _base(names[0], nodes), plain and _settled(bodies), cycle)


_CYCLE = {
    "InterleaveDataset": 1,
    "LegacyParallelInterleaveDatasetV2": 1,
    "ParallelInterleaveDatasetV3": 1,
    "ParallelInterleaveDatasetV4": 1,
}
"""Position of `cycle_length` among the inputs where no function arguments come before it."""


def _settled(bodies: list[Any]) -> bool:
    """Returns whether readers take files as they are: uncompressed, from the first byte to the last."""
    for function in bodies:
        constants = {n.name: n for n in function.node_def if n.op == "Const"}
        for node in function.node_def:
            if node.op not in READERS:
                continue
            for text in node.input[1:]:
                at = constants.get(source_of(text))
                if at is None:
                    return False
                if at.name.startswith("compression_type") and _text(at):
                    return False
    return True


def _text(node: Any) -> bytes:
    tensor = node.attr["value"].tensor
    # A serialized string holds its length before it, so an empty one is a zero byte.
    return b"".join(tensor.string_val) or tensor.tensor_content.strip(b"\0")


def _base(name: str, nodes: dict[str, Any]) -> str | None:
    while nodes[name].op in AROUND_NAMES:
        before = inputs(nodes[name], nodes)
        if len(before) != 1:
            return None
        name = before[0]
    return name


def _order(behind: list[Any], nodes: dict[str, Any]) -> str | None:
    for node in behind:
        if node.op in _IN_ORDER:
            return _IN_ORDER[node.op]
    if not all(inputs(node, nodes) for node in behind):
        return NO_FILES
    grouped = sum(is_batch(n) for n in behind) - sum("Unbatch" in n.op for n in behind)
    return "a batch() of batches" if grouped > 1 else None
