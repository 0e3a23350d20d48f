"""A `tf.data` pipeline as a graph that can be changed and turned into a data set again.

Large constants (the arrays of `from_tensor_slices`) are taken out of the graph once and handed to it as arguments,
so that loading a changed graph costs milliseconds, whatever the size of the data.
"""

from __future__ import annotations

import itertools
from typing import Any

import tensorflow as tf

from unisono import log

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
        self._spec = spec
        (end,) = (node for node in graph.node if node.op == "_Retval")
        self._result = end.input[0]
        self._large: dict[str, Any] = {}
        with tf.device("CPU"):
            for node in graph.node:
                if node.op == "Const" and len(node.attr["value"].tensor.tensor_content) >= _LARGE:
                    self._large[node.name] = tf.constant(tf.make_ndarray(node.attr["value"].tensor))
        self.graph = tf.compat.v1.GraphDef(versions=graph.versions, library=graph.library)
        self.graph.node.extend(n for n in graph.node if n.name not in self._large and n.op != "_Retval")

    def load(self, graph: Any) -> Any:
        """Returns a data set that runs `graph`, a changed copy of `self.graph`; its functions are renamed."""
        _rename_functions(graph, f"_agreed{next(_LOADED)}")

        def variant(*constants: Any) -> Any:
            inputs = {f"{name}:0": value for name, value in zip(self._large, constants, strict=True)}
            return tf.graph_util.import_graph_def(graph, inputs, [f"{self._result}:0"], name="")[0]

        with tf.device("CPU"):
            specs = [tf.TensorSpec(t.shape, t.dtype) for t in self._large.values()]
            made = tf.compat.v1.wrap_function(variant, specs)(*self._large.values())
        return tf.data.experimental.from_variant(made, self._spec)


_LOADED = itertools.count()


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
