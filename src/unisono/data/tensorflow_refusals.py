"""Pipelines that read files and cannot be shared by file, though the policy says so."""

from __future__ import annotations

import tensorflow as tf

from unisono.data import tensorflow_scopes
from unisono.data.tensorflow_graph import PipelineGraph
from unisono.data.tensorflow_stages import INTERLEAVED, NO_FILES, Layout, inputs
from unisono.errors import ConfigurationError


def check_by_file(graph: PipelineGraph, found: Layout) -> None:
    """Refuses to share by file what whole files do not share.

    Args:
        graph: The pipeline.
        found: Where it opens files.

    Raises:
        ConfigurationError: If the policy FILE cannot be had for such a pipeline.
    """
    if not found.stages and "LoadDataset" in set.union(*tensorflow_scopes.ops(graph.graph)):
        raise ConfigurationError(
            "auto_shard_policy=FILE, but the pipeline reads what tf.data.Dataset.save() has written, which is one data "
            "set, however many files it lies in.",
            remedy="use AutoShardPolicy.AUTO or DATA, or write the data as TFRecord files.",
        )
    if found.order == NO_FILES:
        raise ConfigurationError(
            f"auto_shard_policy=FILE, but the pipeline has a {NO_FILES}.",
            remedy="use AutoShardPolicy.AUTO or DATA.",
        )
    nodes = {node.name: node for node in graph.graph.node}
    for node in nodes.values():
        if found.stages and node.op == INTERLEAVED:
            choices = graph.at(graph.copy(), inputs(node, nodes)[0]).cardinality()
            if node.attr["stop_on_empty_dataset"].b or choices != tf.data.INFINITE_CARDINALITY:
                raise ConfigurationError(
                    "auto_shard_policy=FILE, but choose_from_datasets() or sample_from_datasets() ends with its "
                    "choices or with the first data set that is empty, and a worker with files of its own gets there "
                    "elsewhere.",
                    remedy="use AutoShardPolicy.AUTO or DATA, or "
                    "sample_from_datasets(..., stop_on_empty_dataset=False).",
                )
