"""A `tf.data` pipeline as a graph that can be changed, cut at any node and turned into data sets again.

Large constants (the arrays of `from_tensor_slices`) are taken out of the graph once and handed to it as arguments,
so that loading a changed graph costs milliseconds, whatever the size of the data.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from unisono import log
from unisono.data import batches, tensorflow_seeds

_LARGE = 1 << 16
"""Bytes from which a constant is kept outside the graph."""
_IGNORE_STATE = 1
"""External state (tables, variables, Python functions) stays shared with the original pipeline."""


class PipelineGraph:
    """The graph of a data set.

    Args:
        graph: A `GraphDef`, as `DatasetToGraphV2` gives it; its large constants are removed.
        spec: Element spec of the data set.
    """

    def __init__(self, graph: Any, spec: Any) -> None:
        self.spec = spec
        """Element spec of the data set."""
        (end,) = (node for node in graph.node if node.op == "_Retval")
        self.result: str = end.input[0]
        """Name of the node that yields the elements."""
        self._large: dict[str, Any] = {}
        with tf.device("CPU"):
            for node in graph.node:
                if node.op == "Const" and len(node.attr["value"].tensor.tensor_content) >= _LARGE:
                    self._large[node.name] = _value(node)
        self.graph = tf.compat.v1.GraphDef(versions=graph.versions, library=graph.library)
        self.graph.node.extend(n for n in graph.node if n.name not in self._large and n.op != "_Retval")

    def content(self) -> int:
        """Returns a checksum of what the pipeline does and of the data in it, of arrays by samples."""
        arrays = [t.numpy() for t in self._large.values() if t.dtype not in (tf.resource, tf.variant)]
        return zlib.crc32(str((tensorflow_seeds.content(self.graph), batches.fingerprint(arrays))).encode())

    def copy(self) -> Any:
        """Returns a copy of the graph to be changed; its functions are renamed."""
        graph = tf.compat.v1.GraphDef()
        graph.CopyFrom(self.graph)
        _rename_functions(graph, f"_agreed{next(_LOADED)}")
        return graph

    def load(self, graph: Any, replaced: Mapping[str, Any] | None = None, spec: Any = None) -> Any:
        """Returns a data set that runs `graph`.

        Args:
            graph: A changed `copy()`.
            replaced: For names of nodes, the data sets (or tensors) that stand in for what the nodes yield.
            spec: Element spec, where it is no longer that of the original.
        """
        return self._dataset(graph, self.result, self.spec if spec is None else spec, replaced or {})

    def at(self, graph: Any, name: str, replaced: Mapping[str, Any] | None = None) -> Any:
        """Returns a data set of what one node yields; ragged and sparse components are opaque."""
        (node,) = (n for n in graph.node if n.name == name)
        return self._dataset(graph, name, element_spec(node), replaced or {})

    def value(self, graph: Any, name: str) -> Any:
        """Returns the tensor that a node computes."""
        return self._run(graph, name, {})

    def _dataset(self, graph: Any, name: str, spec: Any, replaced: Mapping[str, Any]) -> Any:
        tensors = {
            at: tf.data.experimental.to_variant(new) if isinstance(new, tf.data.Dataset) else new
            for at, new in replaced.items()
        }
        return tf.data.experimental.from_variant(self._run(graph, name, tensors), spec)

    def _run(self, graph: Any, name: str, replaced: Mapping[str, Any]) -> Any:
        given = {**self._large, **replaced}

        def compute(*tensors: Any) -> Any:
            inputs = {f"{at}:0": tensor for at, tensor in zip(given, tensors, strict=True)}
            return tf.graph_util.import_graph_def(graph, inputs, [f"{name}:0"], name="")[0]

        with tf.device("CPU"):
            specs = [tf.TensorSpec(t.shape, t.dtype) for t in given.values()]
            return tf.compat.v1.wrap_function(compute, specs)(*given.values())


_LOADED = itertools.count()


def output_types(node: Any) -> Any:
    """Returns the attribute that lists the dtypes of what a data set node yields, whose name depends on the op."""
    # Asking for one that is not there would add it.
    return node.attr["output_types" if "output_types" in node.attr else "Toutput_types"]


def element_spec(node: Any) -> Any:
    """Returns the element spec of a data set node as a tuple of flat components, or the only component itself."""
    types = output_types(node).list.type
    shapes = node.attr["output_shapes"].list.shape
    specs = tuple(tf.TensorSpec(tf.TensorShape(s), tf.as_dtype(t)) for s, t in zip(shapes, types, strict=True))
    return specs[0] if len(specs) == 1 else specs


def constant(graph: Any, name: str) -> Any:
    """Returns the value of a node, or None if it is no constant; see `value_of`."""
    for node in graph.node:
        if node.name == name and node.op == "Const":
            return value_of(node)
    return None


def value_of(node: Any) -> Any:
    """Returns the value of a constant node: a NumPy array, or a scalar."""
    return _value(node).numpy()


def _value(node: Any) -> Any:
    # `tf.make_ndarray` cannot read strings in the form in which a serialized data set holds them.
    return tf.io.parse_tensor(node.attr["value"].tensor.SerializeToString(), node.attr["dtype"].type)


def _rename_functions(graph: Any, suffix: str) -> None:
    """Appends to the name of every function: TensorFlow refuses two definitions under one name in a process."""
    names = {f.signature.name for f in graph.library.function}
    for function in graph.library.function:
        function.signature.name += suffix
    for gradient in graph.library.gradient:
        gradient.function_name += suffix
        gradient.gradient_func += suffix
    for nodes in [graph.node, *(f.node_def for f in graph.library.function)]:
        for node in nodes:
            if node.op in names:
                node.op += suffix
            for attribute in node.attr.values():
                called = [attribute.func] if attribute.HasField("func") else attribute.list.func
                for function in called:
                    if function.name in names:
                        function.name += suffix


def serialize(dataset: Any) -> PipelineGraph | None:
    """Returns the graph of a data set, or None if TensorFlow cannot serialize it (2 GB is its limit)."""
    try:
        text = tf.raw_ops.DatasetToGraphV2(
            input_dataset=tf.data.experimental.to_variant(dataset), external_state_policy=_IGNORE_STATE
        ).numpy()
    except tf.errors.OpError as error:
        log.logger.debug("DatasetToGraphV2: %s", error)
        return None
    graph = tf.compat.v1.GraphDef()
    graph.ParseFromString(text)
    return PipelineGraph(graph, dataset.element_spec)


def resource(node: Any) -> Any:
    """Returns the resource that a constant node holds."""
    graph = tf.compat.v1.GraphDef(node=[node])
    with tf.device("CPU:0"):
        return tf.compat.v1.wrap_function(
            lambda: tf.graph_util.import_graph_def(graph, {}, [f"{node.name}:0"], name="")[0], []
        )()


def untouched(dataset: Any) -> Any:
    """Returns a data set that yields the same as one does at first, and whose iteration leaves that one as it is."""
    pipeline = serialize(dataset)
    if pipeline is None or not tensorflow_seeds.generators(pipeline.graph):
        return dataset
    graph = pipeline.copy()
    tensorflow_seeds.begin_anew(graph)
    return pipeline.load(graph).with_options(dataset.options())


def add_constant(graph: Any, value: int | bytes, nodes: Any = None) -> str:
    """Adds a constant to a graph.

    Args:
        graph: Changed in place.
        value: An int64 or a string.
        nodes: Nodes of the function that gets it, if it is not for the graph itself.

    Returns:
        What to write as an input of the node that uses it.
    """
    node = (graph.node if nodes is None else nodes).add()
    node.op = "Const"
    node.name = f"agreed_constant_{next(_LOADED)}"
    tensor = tf.make_tensor_proto(value, tf.string if isinstance(value, bytes) else tf.int64)
    node.attr["dtype"].type = tensor.dtype
    node.attr["value"].tensor.CopyFrom(tensor)
    return str(node.name) if nodes is None else f"{node.name}:output:0"
