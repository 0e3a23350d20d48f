"""What Keras's loops get instead of the user's data."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from unisono.data.arrays import ArraySource
from unisono.data.base import Part, Source
from unisono.data.select import make_source
from unisono.errors import DivergenceError
from unisono.training.agreement import StepAgreement, Verdict
from unisono.training.batches import Feed, LocalBatch
from unisono.training.rider import Rider
from unit.training.workers import names, together

EXAMPLE = (np.full((1, 1), -1.0),)


class Listed(Source):
    """Yields parts from a list and notes what happens to it."""

    def __init__(self, parts: list[Part]) -> None:
        self.parts, self.done = parts, []
        self.num_batches = len(parts)

    def epoch(self) -> Iterator[Part]:
        self.done.append("opened")
        try:
            yield from self.parts
        finally:
            self.done.append("closed")

    def sample(self) -> tuple[Any, ...]:
        return EXAMPLE

    def describe(self) -> str:
        return "a list"

    def on_epoch_begin(self) -> None:
        self.done.append("begin")

    def on_epoch_end(self) -> None:
        self.done.append("end")


def part(local: int, total: int, **more: Any) -> Part:
    return Part((np.zeros((local, 1)),) if local else None, local, total, **more)


def feeds(parts: list[list[Part]], **options: Any) -> list[Any]:
    """Runs one epoch on as many workers as there are lists; returns (examples, total) of each batch, or the error."""

    def work(channel: Any) -> Any:
        source = Listed(parts[channel.rank])
        given = {name: make(channel.rank) for name, make in options.items()}
        feed = Feed(source, StepAgreement(channel, list(names(len(parts)))), "fit", **given)
        seen = [(b.data, b.verdict) for b in feed]
        assert source.done == ["opened", "closed"]
        return [(len(data[0]), verdict.local, verdict.total) for data, verdict in seen]

    return together(len(parts), work)


def test_a_worker_without_examples_gets_a_stand_in():
    full, last = [part(2, 4), part(2, 4)], [part(1, 1), part(0, 1)]
    assert feeds([list(p) for p in zip(full, last, strict=True)]) == [[(2, 2, 4), (1, 1, 1)], [(2, 2, 4), (1, 0, 1)]]


def test_all_stop_where_one_wants_to():
    asked = {0: 0, 1: 0}
    stopped: list[int] = []

    def wants(rank: int) -> Any:
        def ask() -> tuple[bool, bool]:
            asked[rank] += 1
            return False, rank == 1 and asked[rank] == 3

        return ask

    found = feeds([[part(1, 2)] * 5] * 2, wants=wants, stopped=lambda rank: lambda: stopped.append(rank))
    assert [len(f) for f in found] == [2, 2]
    assert sorted(stopped) == [0, 1]


def test_the_step_before_has_ended_when_the_next_is_agreed():
    order: list[str] = []

    class Says:
        size = 1

        def all_reduce(self, array: Any) -> Any:
            raise AssertionError

    agreement = StepAgreement(Says(), ["worker 0"])
    step = agreement.step
    agreement.step = lambda mine: order.append("agree") or step(mine)
    feed = Feed(Listed([part(1, 1)]), agreement, "fit", settle=lambda: order.append("settle"))
    assert len(list(feed)) == 1
    assert order == ["settle", "agree"] * 2


def ahead(parts: list[list[Part]], far: int) -> list[Any]:
    """Runs one epoch of sources that may be read ahead; returns what was read when each batch came, and what came."""

    def work(channel: Any) -> Any:
        read: list[int] = []
        source = Listed(parts[channel.rank])
        source.ahead = far
        source.apart = True
        epoch = source.epoch

        def counted() -> Iterator[Part]:
            for each in epoch():
                read.append(each.local)
                yield each

        source.epoch = counted
        feed = Feed(source, StepAgreement(channel, list(names(len(parts)))), "evaluate")
        return [(len(read), b.verdict.local, b.verdict.total) for b in feed]

    return together(len(parts), work)


def own(*rows: int) -> list[Part]:
    return [part(n, None) for n in rows]


def test_data_is_read_ahead_where_the_source_allows_it():
    one, two = ahead([own(2, 2, 2, 2), own(3, 3, 3, 3)], 2)
    assert one == [(1, 2, 5), (3, 2, 5), (4, 2, 5), (4, 2, 5)], "the first batch waits for no other"
    assert two == [(1, 3, 5), (3, 3, 5), (4, 3, 5), (4, 3, 5)]


def test_a_worker_whose_data_has_ended_takes_part_until_the_last_has():
    one, two, three = ahead([own(2), own(3, 3, 3, 1), own()], 2)
    assert [total for _, _, total in one] == [total for _, _, total in two] == [5, 3, 3, 1]
    assert [local for _, local, _ in one] == [2, 0, 0, 0]
    assert [local for _, local, _ in three] == [0] * 4


def test_loops_that_end_early_leave_nothing_that_disturbs_the_next():
    def work(channel: Any) -> Any:
        agreement = StepAgreement(channel, list(names(2)))
        totals = []
        for _ in range(30):
            source = Listed(own(1, 2, 3, 4, 5))
            source.ahead, source.apart = 2, True
            for batch in Feed(source, agreement, "own loop"):
                totals.append(batch.verdict.total)
                if batch.verdict.local == 2:
                    break
        return totals, agreement.any(channel.rank == 1)

    assert together(2, work) == [([2, 4] * 30, True)] * 2


def test_nothing_is_read_ahead_where_a_worker_may_stop_before_a_step():
    def work(channel: Any) -> Any:
        source = Listed(own(1, 1, 1, 1))
        source.ahead, source.apart = 2, True
        asked = iter([False, False, channel.rank == 1, False])
        feed = Feed(source, StepAgreement(channel, list(names(2))), "fit", wants=lambda: (False, next(asked)))
        feed.may_stop = True
        return len(list(feed))

    assert together(2, work) == [2, 2]


class Train:
    """Does the exchange of each step, with what rides along; some steps have none."""

    def __init__(self, channel: Any, without: Sequence[int] = ()) -> None:
        self.rider, self.channel, self.without = Rider(), channel, without
        self.carried: list[int] = []

    def epoch(self, feed: Feed, stop_after: int | None = None) -> list[int]:
        feed.rider = self.rider
        totals: list[int] = []
        for step, batch in enumerate(feed):
            totals.append(batch.verdict.total)
            ticket = None if step in self.without else self.rider.board(np.dtype("float32"))
            if ticket is not None:
                sums = self.channel.all_reduce(ticket.numbers.astype(np.float32))
                ticket.sums = sums.astype(np.int64)
                self.carried.append(step)
            if step == stop_after:
                break
        return totals


def trained(parts: list[list[Part]], without: Sequence[int] = (), **options: Any) -> list[Any]:
    """Runs two epochs as in training; returns the totals of each, and the steps that carried a statement."""

    def work(channel: Any) -> Any:
        agreement = StepAgreement(channel.channel("agreement"), list(names(channel.size)))
        train = Train(channel, without)
        given = {name: make(channel.rank) for name, make in options.items()}
        feed = Feed(Listed(parts[channel.rank]), agreement, "fit", **given)
        return [train.epoch(feed), train.epoch(feed), train.carried]

    return together(len(parts), work)


def test_what_rides_along_ends_an_epoch_at_the_same_step():
    uneven = [[part(2, 3), part(2, 3), part(1, 1)], [part(1, 3), part(1, 3), part(0, 1)]]
    assert trained(uneven) == [[[3, 3, 1], [3, 3, 1], [0, 1, 2] * 2]] * 2
    assert trained([[], []]) == [[[], [], []]] * 2


def test_a_step_without_an_exchange_leaves_the_next_to_be_agreed_on_by_itself():
    assert trained([[part(1, 2)] * 4] * 2, without=[0, 2]) == [[[2] * 4, [2] * 4, [1, 3] * 2]] * 2


def test_alone_nothing_rides_and_nothing_is_read_ahead():
    source = Listed([part(1, 1)] * 2)
    read = iter(source.epoch())
    source.epoch = lambda: (part for part in read)  # type: ignore[method-assign]

    def work(channel: Any) -> Any:
        feed = Feed(source, StepAgreement(channel, ["worker 0"]), "fit")
        train = Train(channel)
        return train.epoch(feed, stop_after=0), len(list(read))

    assert together(1, work) == [([1], 1)]


@pytest.mark.parametrize(("stop_at", "left"), [(2, 2), (0, 4), (None, 0)])
def test_nothing_is_read_once_all_have_ended_or_stopped(stop_at: int | None, left: int):
    def work(channel: Any) -> Any:
        source = Listed([part(1, 2)] * 5)
        read = iter(source.epoch())
        source.epoch = lambda: (part for part in read)  # type: ignore[method-assign]
        asked = itertools.count()
        agreement = StepAgreement(channel.channel("agreement"), list(names(2)))
        feed = Feed(source, agreement, "fit", wants=lambda: (False, next(asked) == stop_at))
        Train(channel).epoch(feed)
        return len(list(read)), next(asked)

    # One is asked before each step, and once more at the end of the data.
    assert together(2, work) == [(left, 6 if stop_at is None else stop_at + 1)] * 2


def test_a_wish_to_stop_rides_along():
    asked = {0: 0, 1: 0}

    def wants(rank: int) -> Any:
        def ask() -> tuple[bool, bool]:
            asked[rank] += 1
            return asked[rank] == 2 and rank == 0, rank == 1 and asked[rank] == 3

        return ask

    first = trained([[part(1, 2)] * 5] * 2, wants=wants)
    assert [f[0] for f in first] == [[2, 2]] * 2


def test_different_data_is_noticed_where_it_rides_along():
    mine, others = part(1, 2, fingerprint=7), part(1, 2, fingerprint=8)
    errors = trained([[mine, mine], [mine, others]])
    assert all(isinstance(e, DivergenceError) and "different data" in str(e) for e in errors), errors


def test_data_that_ends_early_somewhere_is_an_error_on_all():
    errors = feeds([[part(1, 2)] * 2, [part(1, 2)]])
    assert all(isinstance(e, DivergenceError) for e in errors)
    assert "fit step 1" in str(errors[0])


def test_a_loop_that_leaves_closes_the_source():
    source = Listed([part(1, 1)] * 3)
    (result,) = together(1, lambda c: next(iter(Feed(source, StepAgreement(c, ["worker 0"]), "fit"))).verdict.total)
    assert result == 1 and source.done == ["opened", "closed"]


def test_what_a_batch_is_to_keras():
    verdict = Verdict(False, False, False, 1, 1)
    pair = (np.zeros(1), np.ones(1))
    batch = LocalBatch.of(pair, verdict)
    assert isinstance(batch, tuple) and batch[1] is pair[1] and batch.data is pair and batch.verdict is verdict
    bare = LocalBatch.of({"a": pair[0]}, verdict)
    assert bare.data == {"a": pair[0]} and bare[0] is bare.data and len(bare) == 1


def test_epochs_are_told_to_the_source():
    source = Listed([])
    feed = Feed(source, StepAgreement(None, []), "fit")
    feed.on_epoch_begin()
    feed.on_epoch_end()
    assert source.done == ["begin", "end"] and feed.num_batches == 0
    assert (
        feed.get_tf_dataset()
        is feed.get_jax_iterator()
        is feed.get_torch_dataloader()
        is feed.get_numpy_iterator()
        is feed
    )
    assert feed.batch_size is feed.has_partial_batch is feed.partial_batch_size is None


@pytest.mark.parametrize("size", [1, 2, 3])
def test_arrays_through_a_feed_are_each_seen_once(size: int):
    x = np.arange(7.0)[:, None]

    def work(channel: Any) -> Any:
        agreement = StepAgreement(channel, list(names(size)))
        source = make_source(x, batch_size=4, shuffle=True, rank=channel.rank, size=size, agreement=agreement)
        assert isinstance(source, ArraySource)
        feed = Feed(source, agreement, "fit")
        return [[r for b in feed if b.verdict.local for r in b[0][:, 0].tolist()] for _ in range(2)]

    results = together(size, work)
    for epoch in range(2):
        assert sorted(r for found in results for r in found[epoch]) == x[:, 0].tolist()
