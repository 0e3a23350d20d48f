"""Slices of global batches, chosen before the functions of a `tf.data` pipeline run.

A pipeline such as `source.map(decode).shuffle(n).batch(b)` yields the same batches when the examples are shuffled and
chosen first and decoded then; so a worker decodes its own examples only, and global batch k stays what it was.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from unisono.data import shard, tensorflow_edit, tensorflow_scopes, tensorflow_seeds
from unisono.data.policy import Decision
from unisono.data.report import Report, unknown_shares
from unisono.data.tensorflow_edit import Batching, Segment, shrinks
from unisono.data.tensorflow_graph import PipelineGraph
from unisono.data.tensorflow_pipeline import Sharing
from unisono.data.tensorflow_rows import row_by_row

_JOINED = "; a function behind batch() may join examples: put it before batch() if it does not"


class EarlySlices:
    """Slices of global batches, chosen before functions run where that changes nothing.

    Args:
        graph: The pipeline; None if it cannot be serialized.
        rank: This worker.
        size: Number of workers.
        in_order: Whether a slice must be contiguous.
    """

    def __init__(self, graph: PipelineGraph | None, rank: int, size: int, in_order: bool) -> None:
        self._graph = graph
        self._rank = rank
        self._size = size
        self._in_order = in_order
        self._joined = False
        self._found = None if graph is None else self._find(graph)

    @property
    def mark(self) -> int | None:
        """A checksum of the pipeline, as its batches are not seen whole by anyone; None where they are."""
        return None if self._graph is None or self._found is None else self._graph.content()

    def sharing(self, kind: str, decision: Decision) -> Sharing:
        """Returns how this worker gets its slices."""
        shares = unknown_shares(self._size)
        if self._found is None:
            reason = f"{decision.reason}{_JOINED}" if self._joined else decision.reason
            return Sharing(Report(kind, decision.way, reason, shares), False)
        batches, part = self._found
        reason = f"{decision.reason}: functions run on a worker's own examples only"

        def rewrite(graph: PipelineGraph, changed: Any) -> tuple[dict[str, Any], Any]:
            settled = tensorflow_edit.functions_last(changed, batches, part)
            picked = self._pick(graph.at(changed, settled), batches)
            rows = shard.slice_of(batches.size, self._rank, self._size)
            tensorflow_edit.shrink(changed, batches, rows.stop - rows.start)
            return {settled: picked}, smaller_spec(graph, batches, rows.stop - rows.start)

        report = Report(kind, decision.way, reason, shares)
        return Sharing(report, True, whole=False, rewrite=rewrite, stream=self._rank + 1, in_step=True)

    def _find(self, graph: PipelineGraph) -> tuple[Batching, Segment] | None:
        batches = tensorflow_edit.batching(graph.graph, graph.result)
        if batches is None or not shrinks(batches) or batches.size < self._size:
            return None
        part = tensorflow_edit.segment(graph.graph, batches)
        # What Python yields may differ between workers: then the batches are compared whole.
        if part is None or "GeneratorDataset" in set.union(*tensorflow_scopes.ops(graph.graph)):
            return None
        # Which examples there are must not depend on what each worker draws or computes by itself: nobody compares.
        if tensorflow_seeds.varies_before(graph.graph, part.start, python=True):
            return None
        if batches.moved and not self._all_have_part(graph, batches):
            return None
        self._joined = batches.functions and not row_by_row(graph.graph, batches.node, graph.result)
        return None if self._joined else (batches, part)

    def _all_have_part(self, graph: PipelineGraph, batches: Batching) -> bool:
        """Returns whether each worker has an example in every batch, so that batches stay in step when moved."""
        (before,) = tensorflow_edit.elements_of(graph.graph, batches.node)
        examples = int(graph.at(graph.copy(), before).cardinality())
        rest = examples % batches.size if examples >= 0 else 0
        known = examples >= 0 or examples == tf.data.INFINITE_CARDINALITY
        return known and (batches.drop or rest == 0 or rest >= self._size)

    def _pick(self, examples: Any, batches: Batching) -> Any:
        if not (batches.drop or self._in_order or batches.size % self._size):
            return examples.shard(self._size, self._rank)
        rank, size = self._rank, self._size

        @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
        def mine(*window: Any) -> Any:
            whole = window[0] if len(window) == 1 else tf.data.Dataset.zip(window)
            total = whole.cardinality()
            share, larger = total // size, total % size
            start = rank * share + tf.minimum(tf.constant(rank, tf.int64), larger)
            return whole.skip(start).take(share + tf.cast(rank < larger, tf.int64))

        return examples.window(batches.size, drop_remainder=batches.drop).flat_map(mine)


def smaller_spec(graph: PipelineGraph, batches: Batching, rows: int) -> Any:
    """Returns the element spec of a pipeline whose batches have been made smaller; None if it has not changed."""
    if not batches.drop:
        return None

    def smaller(spec: Any) -> Any:
        if isinstance(spec, tf.TensorSpec) and spec.shape.rank and spec.shape[0] == batches.size:
            return tf.TensorSpec([rows, *spec.shape[1:]], spec.dtype)
        return spec

    return tf.nest.map_structure(smaller, graph.spec)
