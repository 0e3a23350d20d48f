"""A `FileDataset` as a source of batches: who reads what, agreed on by all workers when the source is made.

FILES      whole files of its own                }
RECORDS    ranges of files, or every n-th row    } batches of the local size, whose end workers need not share
ALL        everything                            }
SLICES     everything, in one agreed order; a slice of each global batch
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from unisono.data import batches, blocks, class_weights, shard
from unisono.data.base import Agreement, Part, Source
from unisono.data.file_dataset import FileDataset
from unisono.data.file_list import agree
from unisono.data.pieces import Piece, whole_files
from unisono.data.policy import Decision, Way, decide
from unisono.data.report import Report, Share, count, ordinal, total
from unisono.data.stages import Lap, Shuffle, closing
from unisono.errors import ConfigurationError

_WHERE = "The file data set"

_Extent = tuple[int, Piece | None]
"""The index of a file, and the range of it to read; None for all."""


class FileSource(Source):
    """Batches of a data set that lies in files. Making one is collective, unless the policy is OFF.

    Args:
        dataset: The user's data set, batched.
        class_weight: Weight of each class, by label.
        rank: This worker.
        size: Number of workers.
        agreement: Brings the chief's list of files, and the seed of each epoch, to all.
        in_order: Whether batches must come in the order of the files.

    Raises:
        ConfigurationError: If the data set has no batches, or the policy cannot be followed.
        DivergenceError: If this worker finds other files than the chief.
    """

    num_batches: int | None = None

    def __init__(
        self,
        dataset: FileDataset,
        *,
        class_weight: dict[int, float] | None = None,
        rank: int,
        size: int,
        agreement: Agreement,
        in_order: bool = False,
    ) -> None:
        if dataset.batch_size is None:
            raise ConfigurationError(
                "The file data set has no batches.",
                remedy="call .batch(n) with the global batch size, e.g. 64 * strategy.num_replicas_in_sync.",
            )
        self._dataset = dataset
        self._class_weight = class_weight
        self._rank = rank
        self._size = size
        self._agreement = agreement
        self._decision = decide(dataset.policy, len(dataset.listed), size, in_order=in_order)
        self.apart = size > 1 and self._decision.way is not Way.SLICES
        self._epoch = 0
        self._example: tuple[Any, ...] | None = None
        self._uncuttable: str | None = None
        self._plan()

    def _plan(self) -> None:
        files, reader = self._dataset.listed, self._dataset.reader
        cut = self._decision.way is Way.RECORDS and self._size > 1
        if cut:
            self._uncuttable = reader.uncuttable(files)
            cut = self._uncuttable is None
        if self._size == 1 or self._decision.way is Way.ALL:
            self._facts = reader.facts(files)
        else:
            mine = (files, reader.facts(files), reader.counts(files) if cut else None) if self._rank == 0 else None
            chiefs, self._facts, counts = self._agreement.from_chief(mine)
            agree(files, chiefs, self._rank)
        everything: list[_Extent] = [(index, None) for index in range(len(files))]
        self._parts = [everything] * self._size
        if self._size > 1 and self._decision.way is Way.FILES:
            self._parts = [
                [(index, None) for index in some] for some in whole_files([f.size for f in files], self._size)
            ]
        elif cut:
            self._parts = [
                [(piece.file, piece) for piece in reader.cut(counts, rank, self._size)] for rank in range(self._size)
            ]

    def epoch(self) -> Iterator[Part]:
        """One full pass; see `Source.epoch`."""
        epoch, self._epoch = self._epoch, self._epoch + 1
        seed = 0
        if any(isinstance(stage, Shuffle) and stage.seed is None for stage in self._dataset.stages):
            # Collective, so it is made here and not in the threads that read.
            seed = self._agreement.seed()
        sliced = self._decision.way is Way.SLICES
        lap = Lap(seed, (0 if sliced else self._rank, epoch), self._local)
        stream = self._dataset.stream(self._parts[self._rank], self._read, lap)
        with closing(stream):
            for element in stream:
                part = self._part(element)
                if part.local or part.total:
                    yield part

    def _local(self, batch_size: int) -> int:
        if not self.apart:
            return batch_size
        mine = shard.slice_of(batch_size, self._rank, self._size)
        return max(1, int(mine.stop - mine.start))

    def _read_whole(self, part: _Extent) -> Iterator[Any]:
        index, piece = part
        return self._dataset.blocks(self._dataset.listed[index], piece, self._facts)

    def _read(self, part: _Extent) -> Iterator[Any]:
        if not self._uncuttable:
            return self._read_whole(part)
        return self._every_nth(part)

    def _every_nth(self, part: _Extent) -> Iterator[Any]:
        # Counted from the file's index on, so that of many small files not all first rows go to one worker.
        seen = part[0]
        for block in self._read_whole(part):
            first = (self._rank - seen) % self._size
            number = blocks.rows(block, _WHERE)
            seen += number
            if first < number:
                yield blocks.take(block, slice(first, None, self._size))

    def _data(self, element: Any) -> tuple[tuple[Any, ...], bool]:
        data, bare = batches.as_data(element)
        data = batches.to_host(data, _WHERE)
        if self._class_weight is not None:
            data = class_weights.weigh(data, self._class_weight)
        return data, bare

    def _part(self, element: Any) -> Part:
        data, bare = self._data(element)
        total = batches.rows(data, _WHERE)
        if self._example is None and total:
            self._example = batches.cut(data, slice(0, 1))
        if self.apart or self._size == 1:
            return Part(blocks.owned(data) if total else None, total, None if self.apart else total, 0, bare)
        mine = shard.slice_of(total, self._rank, self._size)
        local = mine.stop - mine.start
        # Targets alone: a function of map() may change inputs at random.
        mark = batches.fingerprint(data[1:] or data)
        return Part(batches.cut(data, mine) if local else None, local, total, mark, bare)

    def sample(self) -> tuple[Any, ...]:
        """Returns one example, of this worker's files if they have one; read without threads and without a shuffle."""
        if self._example is None:
            dataset = self._dataset.in_line()
            everything: list[_Extent] = [(index, None) for index in range(len(dataset.listed))]
            lap = Lap(0, (0, 0), self._local)
            for parts, read in ((self._parts[self._rank], self._read), (everything, self._read_whole)):
                with closing(dataset.stream(parts, read, lap)) as stream:
                    for element in stream:
                        data, _ = self._data(element)
                        if batches.rows(data, _WHERE):
                            self._example = batches.cut(data, slice(0, 1))
                            return self._example
            raise ConfigurationError(f"The files hold no examples: {', '.join(dataset.files[:5])}.")
        return self._example

    @property
    def decision(self) -> Decision:
        """How the workers share the files, and why."""
        return self._decision

    def shares(self) -> list[Share]:
        """Returns what each worker reads in an epoch."""
        return [self._share(worker) for worker in range(self._size)]

    def _share(self, worker: int) -> Share:
        parts = self._parts[worker]
        measures = [self._dataset.reader.measure(self._dataset.listed[index], piece) for index, piece in parts]
        return Share(
            worker,
            files=len({index for index, _ in parts}),
            bytes=total(size for size, _ in measures),
            examples=total(rows for _, rows in measures),
        )

    def report(self) -> Report:
        """Returns how the workers share the files, as values."""
        kind = count(len(self._dataset.listed), self._dataset.reader.noun)
        reason = self._decision.reason
        if self._uncuttable:
            reason += f"; {self._uncuttable}, so each worker reads all and keeps every {ordinal(self._size)} row"
        return Report(kind, self._decision.way, reason, self.shares())

    def describe(self) -> str:
        """Returns one line for the log."""
        return self.report().line()
