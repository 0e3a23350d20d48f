"""Who reads what of a `tf.data` pipeline: the decision, and how the pipeline is rewritten for one worker.

TensorFlow's own rewriting (`AutoShardDataset`) deals out files by count, ends with an error where there are too few
of them, and shards behind a user's `take()` or `zip()` as if order did not matter; so the changes are made here.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import tensorflow as tf

from unisono import log
from unisono.data import pieces, shard, tensorflow_cut, tensorflow_edit, tensorflow_faults, tensorflow_seeds
from unisono.data.base import Agreement
from unisono.data.policy import AutoShardPolicy, Decision, Way, decide
from unisono.data.report import Report, Share, count, ordinal, total, unknown_shares
from unisono.data.tensorflow_edit import Batching, shrinks
from unisono.data.tensorflow_files import (
    Among,
    Files,
    check_sizes,
    check_whole,
    compare,
    files_of,
    names_at,
    number_of,
    owners_of,
    text_of,
)
from unisono.data.tensorflow_graph import PipelineGraph, constant
from unisono.data.tensorflow_pipeline import Sharing
from unisono.data.tensorflow_refusals import check_by_file
from unisono.data.tensorflow_slices import EarlySlices, smaller_spec
from unisono.data.tensorflow_stages import Layout, Stage, layout
from unisono.errors import ConfigurationError, DivergenceError

_CYCLE = 10
"""Files read in turn where the pipeline leaves that to TensorFlow."""


def share(
    dataset: Any, graph: PipelineGraph | None, *, rank: int, size: int, agreement: Agreement, in_order: bool
) -> Sharing:
    """Returns how the workers share a pipeline; collective.

    Args:
        dataset: The user's data set.
        graph: Its graph; None if it cannot be serialized.
        rank: This worker.
        size: Number of workers.
        agreement: Brings the chief's list of files to all.
        in_order: Whether results must come in the order of the input.

    Raises:
        ConfigurationError: If the policy asks for what cannot be had.
        DivergenceError: If this worker sees other files than the chief.
    """
    policy = AutoShardPolicy.of(dataset.options().experimental_distribute.auto_shard_policy)
    found = Layout((), None) if graph is None else layout(graph.graph, graph.result)
    if policy in (AutoShardPolicy.OFF, AutoShardPolicy.HINT):
        decision = decide(policy, 0, size, in_order=in_order)
        return _unshared(decision, policy, rank, size)
    if policy is AutoShardPolicy.FILE and graph is not None and not in_order:
        check_by_file(graph, found)
    early = EarlySlices(graph, rank, size, in_order)
    files = _agreed(graph, found.stages, early, rank, agreement)
    paired = policy is AutoShardPolicy.FILE and len(files) > 1 and found.order is not None
    number = number_of(files, paired)
    decision = decide(policy, number, size, order=found.order, in_order=in_order)
    kind = _kind(found.stages, number)
    if graph is None or decision.way is Way.SLICES:
        sharing = early.sharing(kind, decision)
        return replace(sharing, find=_finder(graph, found, files)) if found.stages else sharing
    if decision.way is Way.FILES:
        return _by_file(graph, found, files, paired, _Job(kind, decision, rank, size))
    if number is not None and number < size and policy is AutoShardPolicy.AUTO:
        log.once("few files", f"{kind}: fewer files than workers; {_REMEDY}", logging.WARNING)
    return _by_record(graph, found, files, _Job(kind, decision, rank, size))


def _agreed(
    graph: PipelineGraph | None, stages: Sequence[Stage], early: EarlySlices, rank: int, agreement: Agreement
) -> list[Files | None]:
    """Returns the files of each stage as the chief sees them, once it is known that this worker has its pipeline."""
    mine = [] if graph is None else files_of(graph, stages, sized=rank == 0)
    chief, mark = agreement.from_chief((mine, early.mark))
    compare(mine, chief)
    if mark != early.mark:
        raise DivergenceError(
            "This worker's tf.data pipeline is not the chief's: its functions, constants or arrays differ.",
            remedy="give a seed to what shuffles or splits lists and arrays of the pipeline: pass seed=... to "
            "keras.utils.image_dataset_from_directory and the like, which draw one of their own otherwise. If each "
            "worker brings data of its own, set the auto_shard_policy of its options to OFF.",
        )
    return chief  # type: ignore[no-any-return]


_REMEDY = "the records are shared. Data in at least as many files as workers is shared by file."


@dataclass(frozen=True)
class _Job:
    kind: str
    decision: Decision
    rank: int
    size: int

    def report(self, shares: Sequence[Share]) -> Report:
        return Report(self.kind, self.decision.way, self.decision.reason, shares)


def _unshared(decision: Decision, policy: AutoShardPolicy, rank: int, size: int) -> Sharing:
    hint = policy is AutoShardPolicy.HINT
    in_order = decision.way is Way.SLICES

    def rewrite(graph: PipelineGraph, changed: Any) -> tuple[dict[str, Any], Any]:
        # In the order of the data there is one shard, which all read.
        found = tensorflow_edit.resolve_hints(changed, *((0, 1) if in_order else (rank, size)))
        if not found:
            raise ConfigurationError(
                "auto_shard_policy=HINT, but nothing in the pipeline is sharded by "
                "shard(tf.data.experimental.SHARD_HINT, tf.data.experimental.SHARD_HINT).",
                remedy="add it where the examples shall be shared, or use AutoShardPolicy.AUTO.",
            )
        return {}, None

    report = Report("tf.data.Dataset", decision.way, decision.reason, unknown_shares(size))
    return Sharing(report, not in_order, rewrite=rewrite if hint else None, agreed=hint or in_order)


def _by_file(graph: PipelineGraph, found: Layout, files: list[Files | None], paired: bool, job: _Job) -> Sharing:
    shared = owners_of(files, paired, job.size)
    mine: list[list[str] | None] = []
    for listed, owners in zip(files, shared, strict=True):
        if listed is None or owners is None:
            mine.append(None)
            continue
        names = [listed.names[i] for i in owners[job.rank]]
        check_sizes(names, [listed.sizes[i] for i in owners[job.rank]])
        mine.append(names)
    batches = tensorflow_edit.batching(graph.graph, graph.result)
    if found.order is not None:
        log.once(
            "order by file",
            f"{job.kind}: the policy is FILE, so {found.order} sees the examples of each worker by itself.",
            logging.WARNING,
        )

    # A list of files that is drawn at random must be the same for all who take their part of it.
    drawn = any(tensorflow_seeds.varies_before(graph.graph, s.names) for s in found.stages if s.names is not None)

    def rewrite(graph: PipelineGraph, changed: Any) -> tuple[dict[str, Any], Any]:
        spec = _smaller(graph, changed, batches, job)
        replaced: dict[str, Any] = {}
        for stage, names in zip(found.stages, mine, strict=True):
            if stage.names is None:
                replaced[str(stage.tensor)] = _of_these(graph, stage, names or [])
                continue
            listed = graph.at(changed, stage.names)
            at = names_at(graph, stage, listed.element_spec)
            if names is None or at is None:
                replaced[stage.names] = listed.shard(job.size, job.rank)
            else:
                replaced[stage.names] = listed.filter(Among(names, at))
        return replaced, spec

    return Sharing(
        job.report(_file_shares(files, shared, job.size)),
        True,
        whole=not shrinks(batches),
        rewrite=rewrite,
        stream=0 if drawn else job.rank + 1,
        find=tensorflow_faults.finder(graph, found, mine),
    )


def _of_these(graph: PipelineGraph, stage: Stage, names: Sequence[str]) -> Any:
    """Returns what a reader is given, but some files only; one that is listed twice stays so."""
    given = graph.value(graph.copy(), str(stage.tensor)).numpy().reshape(-1)
    kept = set(names)
    return tf.constant([name for name in given if text_of(name) in kept], tf.string)


def _by_record(graph: PipelineGraph, found: Layout, files: list[Files | None], job: _Job) -> Sharing:
    batches = tensorflow_edit.batching(graph.graph, graph.result)
    cut = [_can_be_cut(graph, stage, listed) for stage, listed in zip(found.stages, files, strict=True)]

    def rewrite(graph: PipelineGraph, changed: Any) -> tuple[dict[str, Any], Any]:
        spec = _smaller(graph, changed, batches, job)
        replaced: dict[str, Any] = {}
        for stage, listed, ranged in zip(found.stages, files, cut, strict=True):
            if ranged is None or listed is None:
                replaced[stage.node] = graph.at(changed, stage.node).shard(job.size, job.rank)
                continue
            cycle = 1 if stage.cycle is None else int(constant(graph.graph, stage.cycle) or 1)
            replaced[stage.node] = tensorflow_cut.own_range(
                graph.at(changed, str(stage.names)),
                listed.names,
                ranged,
                stage.reader,
                cycle=cycle if cycle > 0 else min(len(ranged), _CYCLE),
                rank=job.rank,
                size=job.size,
            )
        return replaced, spec

    def check_end() -> None:
        for listed, ranged in zip(files, cut, strict=True):
            if listed is not None and ranged is not None:
                own = sorted({piece.file for piece in pieces.ranges(ranged, job.rank, job.size)})
                check_whole([listed.names[i] for i in own], [ranged[i] for i in own], job.rank)

    every = None not in cut
    for listed, ranged in zip(files, cut, strict=True):
        if listed is not None and ranged is not None:
            check_sizes(listed.names, listed.sizes)
    how = "ranges of the files" if every else f"every worker reads all records and keeps every {ordinal(job.size)}"
    decision = Decision(job.decision.way, f"{job.decision.reason}: {how}")
    shares = [
        Share(worker, None, sum(_bytes(ranged, worker, job.size) for ranged in cut) if every else None, None)
        for worker in range(job.size)
    ]
    return Sharing(
        replace(job, decision=decision).report(shares),
        True,
        whole=not shrinks(batches),
        rewrite=rewrite,
        stream=job.rank + 1 if every else 0,
        find=_finder(graph, found, files),
        check_end=check_end,
    )


def _finder(graph: PipelineGraph | None, found: Layout, files: Sequence[Files | None]) -> tensorflow_faults.Find | None:
    if graph is None:
        return None
    return tensorflow_faults.finder(graph, found, [None if listed is None else listed.names for listed in files])


def _can_be_cut(graph: PipelineGraph, stage: Stage, listed: Files | None) -> list[int] | None:
    """Returns the sizes of the files of a stage if each worker can read a range of them."""
    if listed is None or not stage.plain or stage.names is None:
        return None
    elements = graph.at(graph.copy(), stage.names).element_spec
    if isinstance(elements, tuple) or not tensorflow_cut.cuttable(stage.reader, listed.names):
        return None
    return listed.all_sizes


def _bytes(sizes: Sequence[int] | None, worker: int, size: int) -> int:
    return sum(p.stop - p.start for p in pieces.ranges(sizes or [], worker, size))


def _smaller(graph: PipelineGraph, changed: Any, batches: Batching | None, job: _Job) -> Any:
    """Makes batches as large as those of one worker, where that is possible; returns the new element spec."""
    if batches is None or not shrinks(batches):
        return None
    share = shard.slice_of(batches.size, job.rank, job.size)
    rows = max(1, share.stop - share.start)
    tensorflow_edit.shrink(changed, batches, rows)
    return smaller_spec(graph, batches, rows)


def _file_shares(files: Sequence[Files | None], shared: Sequence[list[list[int]] | None], size: int) -> list[Share]:
    shares = []
    for worker in range(size):
        mine = [
            listed.sizes[i]
            for listed, owners in zip(files, shared, strict=True)
            if listed is not None and owners is not None
            for i in owners[worker]
        ]
        unknown = any(owners is None for owners in shared)
        shares.append(Share(worker, None if unknown else len(mine), None if unknown else total(mine), None))
    return shares


def _kind(stages: Sequence[Stage], number: int | None) -> str:
    if not stages:
        return "tf.data.Dataset"
    readers = " and ".join(sorted({stage.reader.removesuffix("V2") for stage in stages}))
    many = "files" if number is None else count(number, "file")
    return f"tf.data.Dataset, {many} ({readers})"
