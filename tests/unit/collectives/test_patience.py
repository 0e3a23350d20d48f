"""A waiting worker polls, gives way, then sleeps; and asks the watch in time."""

import pytest

from unisono.collectives import patience


def test_a_near_worker_is_waited_for_without_sleep():
    assert patience.pause(1e-6, patience.USUAL, busy=False) == 0.0


def test_a_worker_that_moves_data_does_not_sleep():
    assert patience.pause(1.0, patience.USUAL, busy=True) == 0.0


def test_sleeps_grow_with_the_wait_and_stay_short():
    naps = [patience.pause(elapsed, patience.USUAL, busy=False) for elapsed in (0.001, 0.004, 0.1, 60.0)]
    assert naps == sorted(naps)
    assert 0 < naps[0] < 0.001 / 10
    assert naps[-1] == 0.001


@pytest.mark.parametrize("spins", [0, 1, 100])
def test_only_the_first_tests_come_without_a_pause(spins):
    tests, rests = 0, []

    def test():
        nonlocal tests
        tests += 1
        return tests == spins + 3

    patience.wait(
        test, lambda seconds: None, manner=patience.Manner(spins, 1.0), clock=lambda: 0.0, give_way=rests.append
    )
    assert rests == [0.0, 0.0]


class Time:
    """A clock that moves only when the waiter rests, and a peer that comes at a given moment."""

    def __init__(self, arrival):
        self.now = 0.0
        self.arrival = arrival
        self.manner = patience.Manner(0, 400e-6)
        self.tests = 0
        self.asked = []

    def clock(self):
        return self.now

    def give_way(self, seconds):
        self.now += seconds or 1e-6

    def test(self):
        self.tests += 1
        return self.now >= self.arrival

    def wait(self, ask=None):
        patience.wait(self.test, ask or self.asked.append, manner=self.manner, clock=self.clock, give_way=self.give_way)


def test_what_is_ready_is_not_waited_for():
    time = Time(arrival=0.0)
    time.wait()
    assert time.tests == 1
    assert time.asked == []


def test_the_watch_is_asked_every_50_ms_after_the_first():
    time = Time(arrival=0.99)
    time.wait()
    assert time.asked[0] == pytest.approx(0.05, abs=0.002)
    gaps = [after - before for before, after in zip(time.asked, time.asked[1:], strict=False)]
    assert gaps == pytest.approx([0.05] * len(gaps), abs=0.002)
    assert len(time.asked) in (18, 19)


@pytest.mark.parametrize("arrival", [0.0001, 0.001, 0.01, 1.0])
def test_the_end_is_noticed_late_by_a_small_share(arrival):
    time = Time(arrival)
    time.wait()
    assert time.now <= arrival * (1 + 1 / 16) + 1e-5


def test_where_workers_share_cores_they_give_way_for_longer_and_sleep_in_the_end():
    assert (
        patience.pause(0.005, patience.CROWDED, busy=False) == 0.0 < patience.pause(0.005, patience.USUAL, busy=False)
    )
    assert patience.pause(1.0, patience.CROWDED, busy=False) == 0.001


def test_a_long_wait_costs_little():
    time = Time(arrival=10.0)
    time.wait()
    assert time.tests < 12_000


def test_the_watch_ends_the_wait_by_raising():
    time = Time(arrival=1e9)

    def ask(seconds):
        raise TimeoutError(f"{seconds:.2f}")

    with pytest.raises(TimeoutError, match=r"0\.05"):
        time.wait(ask)


def cores(*numbers):
    return frozenset(numbers)


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        ([("a", cores(0, 1)), ("a", cores(0, 1))], False),
        ([("a", cores(0)), ("a", cores(1))], False),
        ([("a", cores(0, 1))] * 3, True),
        ([("a", cores(0)), ("a", cores(0))], True),
        ([("a", cores(0)), ("b", cores(0)), ("b", cores(0))], False),
    ],
)
def test_a_host_is_crowded_when_its_workers_outnumber_their_cores(hosts, expected):
    assert patience.is_crowded(hosts, rank=0) is expected


def test_another_host_may_be_crowded():
    assert patience.is_crowded([("a", cores(0)), ("b", cores(0)), ("b", cores(0))], rank=2) is True
