"""The state machine of the coordinator, without sockets and clocks: events in, instructions out."""

import dataclasses

import hypothesis.strategies as st
import pytest
from hypothesis import given

from unisono.control.instructions import Close, CloseDoor, Send, Stop
from unisono.control.membership import Membership, Plan, State
from unisono.control.messages import (
    Accepted,
    Beat,
    Broken,
    Bye,
    Ended,
    Failed,
    Hello,
    Leaving,
    NotMet,
    Pulse,
    Quiet,
    Ready,
    Refused,
    StillMissing,
    Wait,
)


def plan(size=2, **changes):
    values = {
        "addresses": tuple(f"host{i}:22" for i in range(size)),
        "fingerprint": "same",
        "source": "TF_CONFIG",
        "generation": 0,
        "job": "secret",
        "startup_seconds": 100.0,
        "silence_seconds": 60.0,
    }
    return Plan(**{**values, **changes})


def hello(rank, size=2, **changes):
    base = Hello(rank, size, f"host{rank}:22", f"machine{rank}", 1000 + rank, "here", "same", 0, {"unisono": "1"})
    return dataclasses.replace(base, **changes)


def running(size=2, **changes):
    """A job in which connection 10 + rank is that of each rank."""
    job = Membership(plan(size, **changes), 0.0)
    for rank in range(size):
        out = job.receive(10 + rank, hello(rank, size), 0.0)
    assert out[1:] == [Send(10 + rank, Ready("secret")) for rank in range(size)]
    return job


def sent(instructions, kind):
    return [(i.conn, i.message) for i in instructions if isinstance(i, Send) and isinstance(i.message, kind)]


def failed(kind="error", about=0, message="boom"):
    return Failed(kind, "ValueError", message, "trace", about, 5, "loading")


def test_all_get_one_answer_when_the_last_has_come():
    job = Membership(plan(3), 0.0)
    assert job.receive(1, hello(2, 3), 1.0) == [Send(1, Accepted())]
    assert job.receive(2, hello(0, 3), 2.0) == [Send(2, Accepted())]
    out = job.receive(3, hello(1, 3), 3.0)
    assert out == [Send(3, Accepted()), *(Send(conn, Ready("secret")) for conn in (1, 2, 3))]
    assert job.state is State.RUNNING


def test_who_is_missing_is_said_every_ten_seconds():
    job = Membership(plan(3), 0.0)
    job.receive(1, hello(0, 3), 0.0)
    lines = [(now, job.tick(float(now))) for now in range(1, 31)]
    told = [(now, out) for now, out in lines if out]
    assert [now for now, _ in told] == [10, 20, 30]
    assert told[0][1] == [Send(1, StillMissing(("worker 1 (host1:22)", "worker 2 (host2:22)"), 0, 10.0))]


def test_at_the_deadline_those_present_learn_who_is_missing_and_why():
    job = Membership(plan(4, startup_seconds=10.0), 0.0)
    job.receive(1, hello(0, 4), 0.0)
    job.receive(2, hello(1, 4), 0.0)
    job.dropped(2, 3.0)
    job.receive(3, hello(3, 4, fingerprint="other"), 4.0)
    for now in (4, 8, 9.5):
        job.tick(now)
    out = job.tick(10.0)
    assert out[0] == CloseDoor()
    ((conn, message),) = sent(out, NotMet)
    assert conn == 1 and message.seconds == 10.0
    causes = {missing.rank: missing.cause for missing in message.workers}
    assert "process 1001 on machine1" in causes[1] and "went away" in causes[1]
    assert causes[2] == "it has never connected"
    assert "turned away" in causes[3] and "TF_CONFIG" in causes[3]
    assert job.dropped(1, 11.0) == [Stop()]


def test_an_ended_meeting_does_not_outlive_those_who_hang_on():
    job = Membership(plan(2, startup_seconds=10.0), 0.0)
    job.receive(1, hello(0), 0.0)
    outs = [job.tick(float(now)) for now in range(4, 28, 4)]
    assert outs[-1] == [Stop()]


def test_a_long_list_is_cut():
    job = Membership(plan(300, startup_seconds=1.0), 0.0)
    job.receive(1, hello(0, 300), 0.0)
    ((_, message),) = sent(job.tick(1.0), NotMet)
    assert len(message.workers) == 8 and message.more == 291


def test_a_worker_may_come_back_while_they_meet():
    job = Membership(plan(), 0.0)
    job.receive(1, hello(1), 0.0)
    assert job.dropped(1, 1.0) == []
    job.receive(2, hello(1), 2.0)
    assert sent(job.receive(3, hello(0), 3.0), Ready) == [(2, Ready("secret")), (3, Ready("secret"))]


@pytest.mark.parametrize("end", [lambda job: job.dropped(1, 1.0), lambda job: job.orphaned()])
def test_without_its_chief_the_meeting_is_over(end):
    job = Membership(plan(3), 0.0)
    job.receive(1, hello(0, 3), 0.0)
    job.receive(2, hello(1, 3), 0.0)
    out = end(job)
    assert CloseDoor() in out and Close(2) in out and out[-1] == Stop()


def test_a_chief_that_has_met_is_not_missed_as_parent():
    assert running().orphaned() == []


@pytest.mark.parametrize(
    ("changes", "reason", "words"),
    [
        ({"size": 3}, "cluster", ["3 workers", "this job has 2"]),
        ({"rank": 7}, "cluster", ["no worker 7"]),
        ({"rank": -1}, "cluster", ["no worker -1"]),
        ({"fingerprint": "x"}, "cluster", ["TF_CONFIG", "other addresses"]),
        ({"fingerprint": "x", "address": "host9:22"}, "cluster", ["host9:22", "host1:22"]),
        ({"generation": 1}, "busy", ["start number 1", "this is 0"]),
    ],
)
def test_who_does_not_belong_is_turned_away_with_a_reason(changes, reason, words):
    job = Membership(plan(), 0.0)
    out = job.receive(1, dataclasses.replace(hello(1), **changes), 0.0)
    ((_, refused),) = sent(out, Refused)
    assert refused.reason == reason and all(word in refused.message for word in words), refused
    assert out[-1] == Close(1)
    assert job.roster.absent() == 2


def test_the_second_of_one_rank_is_turned_away_and_the_first_named():
    job = Membership(plan(), 0.0)
    job.receive(1, hello(1), 0.0)
    ((conn, refused),) = sent(job.receive(2, hello(1, pid=77, host="elsewhere"), 0.0), Refused)
    assert conn == 2 and refused.reason == "taken"
    assert "process 1001 on machine1" in refused.message and "process 77 on elsewhere" in refused.message
    assert job.dropped(2, 0.0) == []
    assert sent(job.receive(3, hello(0), 1.0), Ready)


def test_latecomers_of_a_running_job_may_try_again():
    ((_, refused),) = sent(running().receive(99, hello(1), 1.0), Refused)
    assert refused.reason == "busy"


def test_different_versions_are_told_to_all():
    job = Membership(plan(3), 0.0)
    job.receive(1, hello(0, 3, versions={"Keras": "3.15", "unisono": "1"}), 0.0)
    job.receive(2, hello(1, 3, versions={"unisono": "1"}), 0.0)
    out = job.receive(3, hello(2, 3, versions={"Keras": "3.12", "unisono": "1"}), 0.0)
    refusals = sent(out, Refused)
    assert [conn for conn, _ in refusals] == [1, 2, 3]
    assert "3.12 on worker 2 (host2:22); 3.15 on worker 0 (host0:22)" in refusals[0][1].message
    assert not sent(out, Ready) and CloseDoor() in out


@pytest.mark.parametrize(
    ("key", "hint"), [("Keras", "install the same versions"), ("Keras backend", "set KERAS_BACKEND alike")]
)
def test_the_hint_fits_what_differs(key, hint):
    job = Membership(plan(), 0.0)
    job.receive(1, hello(0, versions={key: "torch"}), 0.0)
    ((_, refused), _) = sent(job.receive(2, hello(1, versions={key: "jax"}), 0.0), Refused)
    assert key in refused.message and "jax on worker 1" in refused.message
    assert hint in refused.remedy


def test_an_unknown_version_is_no_difference():
    job = Membership(plan(), 0.0)
    job.receive(1, hello(0, versions={"Keras": "3.15"}), 0.0)
    assert sent(job.receive(2, hello(1, versions={}), 0.0), Ready)


def test_a_death_is_told_to_all_others_once():
    job = running(3)
    job.receive(11, Beat({}, 5, "gradient exchange"), 1.0)
    out = job.dropped(11, 2.0, "Its connection ended.")
    told = sent(out, Broken)
    assert [conn for conn, _ in told] == [10, 12]
    broken = told[0][1]
    assert (broken.kind, broken.rank, broken.step, broken.phase) == ("lost", 1, 5, "gradient exchange")
    assert (broken.name, broken.message) == ("worker 1 (host1:22)", "Its connection ended.")
    assert CloseDoor() in out and Stop() not in out
    assert sent(job.dropped(10, 2.5), Broken) == []
    assert job.dropped(12, 3.0) == [Stop()]


def test_when_all_die_at_once_the_coordinator_ends():
    job = running(1)
    assert job.dropped(10, 1.0)[-1] == Stop()


def test_what_a_worker_raised_is_repeated_and_its_end_is_no_second_news():
    job = running(3)
    told = sent(job.receive(12, failed(), 1.0), Broken)
    assert [conn for conn, _ in told] == [10, 11]
    broken = told[0][1]
    assert (broken.kind, broken.rank, broken.error_type, broken.message) == ("error", 2, "ValueError", "boom")
    assert (broken.step, broken.phase, broken.trace) == (5, "loading", "trace")
    assert job.receive(12, Bye(), 1.1) == [Close(12)]
    assert sent(job.dropped(12, 1.2), Broken) == []
    assert job.receive(10, failed(message="consequence"), 1.3) == []


@pytest.mark.parametrize("kind", ["timeout", "left"])
def test_who_gives_up_waiting_names_the_other(kind):
    told = sent(running(3).receive(10, failed(kind, about=2, message="text"), 1.0), Broken)
    assert {(conn, m.kind, m.rank, m.message) for conn, m in told} == {(c, kind, 2, "text") for c in (11, 12)}


def test_silence_is_noticed_then_fatal():
    job = running(3)
    for now in range(1, 60):
        job.receive(10, Beat({}, 1, ""), float(now))
        job.receive(12, Beat({}, 1, ""), float(now))
        out = job.tick(float(now))
        assert out == ([Send(10, Quiet("worker 1 (host1:22)", 10.0))] if now == 10 else [])
    job.receive(10, Beat({}, 1, ""), 60.0)
    job.receive(12, Beat({}, 1, ""), 60.0)
    out = job.tick(60.0)
    assert {conn for conn, message in sent(out, Broken) if message.kind == "silent" and message.rank == 1} >= {10, 12}
    assert Close(11) in out


def test_when_the_chief_is_silent_the_next_is_told():
    job = running(2)
    for now in range(1, 11):
        job.receive(11, Beat({}, 1, ""), float(now))
        out = job.tick(float(now))
    assert out == [Send(11, Quiet("worker 0 (host0:22)", 10.0))]


def test_a_voice_that_returns_is_told_too():
    job = running(2)
    for now in range(1, 13):
        job.receive(10, Beat({}, 1, ""), float(now))
        job.tick(float(now))
    job.receive(11, Beat({}, 1, ""), 13.0)
    assert job.tick(13.0) == [Send(10, Quiet("worker 1 (host1:22)", 0.0))]


def test_a_coordinator_that_slept_blames_nobody():
    job = running(2)
    job.tick(1.0)
    assert job.tick(500.0) == []
    assert job.tick(501.0) == []
    assert job.state is State.RUNNING


def test_a_pulse_says_who_is_late_where():
    job = running(3)
    job.receive(11, Beat({"main": 4}, 3, "callback", (Wait("agreement", 2, "barrier", 1.0),)), 1.0)
    job.receive(12, Beat({"main": 7}, 5, "exchange"), 2.0)
    out = job.receive(10, Beat({"main": 7}, 5, "exchange", (Wait("main", 7, "all_reduce", 3.0),)), 5.0)
    (late,) = out[0].message.late
    assert (late.channel, late.count, late.more) == ("main", 7, 0)
    (worker,) = late.workers
    assert (worker.rank, worker.step, worker.phase) == (1, 3, "callback")
    assert (worker.since, worker.silent, worker.left, worker.waits_in) == (4.0, 4.0, False, "barrier")


def test_a_worker_for_whom_others_wait_is_asked_where_it_is_and_they_are_told():
    job = running(3)
    at_work = Beat({"main": 6}, 5, "data")

    def ask(seconds, now):
        (sent,) = job.receive(10, Beat({"main": 7}, 5, "", (Wait("main", 7, "all_reduce", seconds),)), now)
        (late,) = sent.message.late
        return [(worker.rank, worker.stack) for worker in late.workers]

    assert ask(0.9, 1.0) == [(1, ""), (2, "")]
    assert job.receive(11, at_work, 1.1) == [Send(11, Pulse(()))]
    assert ask(1.9, 2.0) == [(1, ""), (2, "")]
    assert job.receive(11, at_work, 2.1) == [Send(11, Pulse((), show_stack=True))]
    assert job.receive(12, at_work, 2.2) == [Send(12, Pulse(()))]
    assert job.receive(11, dataclasses.replace(at_work, stack="asleep"), 2.3) == [Send(11, Pulse((), show_stack=True))]
    assert ask(2.9, 3.0) == [(1, "asleep"), (2, "")]
    # Nobody asks any more, so it need not tell any more.
    assert job.receive(11, dataclasses.replace(at_work, stack="asleep"), 7.0) == [Send(11, Pulse(()))]


def test_a_pulse_for_a_worker_that_waits_for_nobody_is_empty():
    job = running(2)
    job.receive(11, Beat({"main": 7}, 5, ""), 1.0)
    (late,) = job.receive(10, Beat({"main": 7}, 5, "", (Wait("main", 7, "x", 3.0),)), 2.0)[0].message.late
    assert late.workers == ()
    assert job.receive(10, Beat({"main": 8}, 5, ""), 3.0) == [Send(10, Pulse(()))]


def test_who_has_left_is_late_for_ever_but_not_for_what_it_did():
    job = running(2)
    assert job.receive(11, Leaving({"main": 7}), 1.0) == []

    def late(count):
        (answer,) = job.receive(10, Beat({"main": count}, 5, "", (Wait("main", count, "x", 1.0),)), 2.0)[0].message.late
        return [(w.rank, w.left) for w in answer.workers]

    assert late(7) == []
    assert late(8) == [(1, True)]


def test_all_leave_together_and_none_is_let_go_before_all_are_done():
    job = running(3)
    assert job.receive(10, Leaving({}), 1.0) == []
    assert job.receive(12, Leaving({}), 1.0) == []
    out = job.receive(11, Leaving({}), 11.0)
    assert out == [CloseDoor(), *(Send(conn, Ended(True)) for conn in (10, 11, 12))]
    assert job.receive(10, Bye(), 11.1) == []
    assert job.receive(11, Bye(), 11.1) == []
    assert job.receive(12, Bye(), 11.2) == [Close(10), Close(11), Close(12)]
    assert job.dropped(10, 11.3) == [Close(11), Close(12)]
    job.dropped(11, 11.3)
    assert job.dropped(12, 11.3) == [Stop()]


def test_who_does_not_wait_for_the_end_is_no_death_but_the_end_is_not_together():
    job = running(2)
    job.receive(11, Leaving({}), 1.0)
    assert job.receive(11, Bye(), 2.0) == [Close(11)]
    assert job.dropped(11, 2.0) == []
    assert job.state is State.RUNNING
    assert sent(job.receive(10, Leaving({}), 50.0), Ended) == [(10, Ended(False))]


def test_who_ends_after_a_failure_need_not_wait():
    job = running(3)
    job.dropped(12, 1.0)
    assert job.receive(10, Leaving({}), 2.0) == [Send(10, Ended(False))]


def test_who_fails_in_the_end_ends_the_wait_of_the_others():
    job = running(3)
    for conn in (10, 11, 12):
        job.receive(conn, Leaving({}), 1.0)
    out = job.receive(11, failed(about=1), 2.0)
    assert {conn for conn, message in sent(out, Broken)} == {10, 12}
    assert sent(out, Broken)[0][1].rank == 1
    assert sent(job.receive(12, failed(about=2), 2.1), Broken) == []


def test_strangers_are_cut_off():
    assert running().receive(77, Bye(), 1.0) == [Close(77)]
    assert running().dropped(77, 1.0) == []
    assert running().receive(10, Ready("x"), 1.0) == [Close(10)]


events = st.lists(
    st.tuples(st.sampled_from(["hello", "beat", "leave", "bye", "fail", "drop", "tick"]), st.integers(0, 2)),
    max_size=40,
)


@given(events)
def test_no_order_of_events_leaves_a_job_that_never_ends(script):
    """Whatever happens: no instruction goes to a connection that is gone, one cause is told, and an empty job ends."""
    job, now, alive, causes, stopped = Membership(plan(3), 0.0), 0.0, set(), set(), False

    def take(out):
        nonlocal stopped
        for each in out:
            if isinstance(each, Send):
                assert each.conn in alive
                if isinstance(each.message, Broken):
                    causes.add(each.message)
            elif isinstance(each, Close) and each.conn in alive:
                alive.discard(each.conn)
                take(job.dropped(each.conn, now))
            elif isinstance(each, Stop):
                stopped = True

    for what, rank in script:
        now += 0.5
        conn = 10 + rank
        if stopped:
            break
        if what == "tick":
            take(job.tick(now))
        elif what == "drop":
            alive.discard(conn)
            take(job.dropped(conn, now))
        elif what == "hello" and conn not in alive:
            alive.add(conn)
            take(job.receive(conn, hello(rank, 3), now))
        elif conn in alive:
            message = {"beat": Beat({}, 1, ""), "leave": Leaving({}), "bye": Bye(), "fail": failed()}
            take(job.receive(conn, message.get(what, Beat({}, 1, "")), now))
    assert len(causes) <= 1
    for conn in list(alive):
        alive.discard(conn)
        take(job.dropped(conn, now))
    for _ in range(500):
        now += 0.5
        take(job.tick(now))
    assert stopped
