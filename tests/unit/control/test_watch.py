"""What a waiting worker is told, and when it stops waiting."""

import logging
import threading

import pytest

from unisono.control.messages import Broken, Late, LateWorker, Wait
from unisono.control.progress import Progress
from unisono.control.watch import ControlWatch
from unisono.errors import CollectiveTimeoutError, StartupError, WorkerFailedError, WorkerLostError


class Told:
    """Stands in for the client: what the coordinator has said."""

    def __init__(self, late=None, broken=None, ended=False):
        self.said, self.broken, self.ended = late, broken, ended

    def late(self, channel, count):
        return self.said if self.said and (self.said.channel, self.said.count) == (channel, count) else None

    def wait_for_news(self, seconds, enough):
        return enough()


def late(*workers, count=3):
    return Late("main", count, workers, 0)


def worker(rank=1, **changes):
    fields = {"step": 5, "phase": "callback", "since": 9.0, "silent": 0.0, "left": False, "waits_in": ""}
    return LateWorker(rank, f"worker {rank} (host{rank}:22)", **{**fields, **changes})


def watch(told=None, timeout=30.0):
    made = ControlWatch(0, Progress(step=5, phase="gradient exchange"), timeout)
    made.client = told
    made.arrived("main", 3)
    return made


def test_a_short_wait_goes_on(caplog):
    with caplog.at_level(logging.INFO, "unisono"):
        watch(Told(late(worker()))).waiting("all_reduce", 5.0)
    assert not caplog.records


def test_after_ten_seconds_one_line_names_the_late(caplog):
    patient = watch(Told(late(worker())))
    with caplog.at_level(logging.INFO, "unisono"):
        for tenth in range(90, 250):
            patient.waiting("all_reduce on channel 'main'", tenth / 10)
    (line,) = [record.getMessage() for record in caplog.records]
    assert "waiting in all_reduce on channel 'main' since 10 s" in line
    assert "worker 1 (host1:22) has not arrived" in line and "step 5, callback, 9 s ago" in line


def test_line_and_error_show_where_the_first_of_the_late_is(caplog):
    told = Told(late(worker(1, stack='  File "train.py", line 7, in load\n    open(pipe)'), worker(2)))
    with caplog.at_level(logging.INFO, "unisono"):
        watch(told).waiting("x", 10.0)
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.endswith('\nWhere worker 1 (host1:22) is:\n  File "train.py", line 7, in load\n    open(pipe)')
    with pytest.raises(CollectiveTimeoutError, match=r"(?s)has not arrived.*in load\n    open\(pipe\)\nHint:"):
        watch(told).waiting("x", 30.0)


def test_others_that_become_late_are_named_too_but_seldom(caplog):
    told = Told(late(worker(1), worker(2)))
    patient = watch(told, timeout=100.0)
    with caplog.at_level(logging.INFO, "unisono"):
        patient.waiting("x", 10.0)
        told.said = late(worker(2))
        patient.waiting("x", 11.0)
        assert len(caplog.records) == 1
        patient.waiting("x", 21.0)
    assert len(caplog.records) == 2


def test_at_the_timeout_the_error_names_worker_host_step_and_phase():
    with pytest.raises(CollectiveTimeoutError) as caught:
        watch(Told(late(worker(silent=20.0, waits_in="barrier")))).waiting("all_reduce", 30.0)
    error = caught.value
    assert (error.rank, error.host, error.step, error.phase) == (1, "host1:22", 5, "callback")
    text = str(error)
    assert "Waited 30 s in all_reduce in step 5, gradient exchange" in text
    assert "it waits in barrier itself" in text and "nothing was heard of it for 20 s" in text
    assert "UNISONO_TIMEOUT" in text


def test_without_an_answer_the_error_says_so():
    for told in (None, Told()):
        with pytest.raises(CollectiveTimeoutError, match="did not say who is late"):
            watch(told).waiting("all_reduce", 30.0)


def test_when_all_have_arrived_the_network_is_suspected():
    with pytest.raises(CollectiveTimeoutError, match="all workers have arrived"):
        watch(Told(late())).waiting("all_reduce", 30.0)


def test_an_answer_about_another_operation_does_not_count(caplog):
    with caplog.at_level(logging.INFO, "unisono"):
        watch(Told(late(worker(left=True), count=2))).waiting("all_reduce", 12.0)
    assert not caplog.records


def test_who_waits_for_a_worker_whose_script_has_ended_stops_at_once():
    with pytest.raises(WorkerLostError, match="ended its script in step 5, callback, while worker 0 waits") as caught:
        watch(Told(late(worker(left=True)))).waiting("all_reduce", 1.5)
    assert caught.value.rank == 1


def test_at_the_common_end_nobody_is_late():
    watch(Told(late(worker(left=True)), ended=True)).waiting("close", 1.5)


@pytest.mark.parametrize(
    ("kind", "error", "words"),
    [
        ("lost", WorkerLostError, ["Worker 1 (host1:22) is lost; its last report was step 5, loading", "ended"]),
        ("silent", WorkerLostError, ["Worker 1 (host1:22) is lost"]),
        ("left", WorkerLostError, ["said"]),
        ("coordinator", WorkerLostError, ["said"]),
        ("timeout", CollectiveTimeoutError, ["said"]),
        ("error", WorkerFailedError, ["failed in step 5, loading with ValueError: said", "File x"]),
    ],
)
def test_the_first_failure_of_the_job_ends_every_wait(kind, error, words):
    message = "said: its connection ended"
    told = Told(broken=Broken(kind, 1, "worker 1 (host1:22)", 5, "loading", "ValueError", message, "File x"))
    with pytest.raises(error) as caught:
        watch(told).waiting("all_reduce", 0.05)
    text = str(caught.value)
    assert all(word in text for word in words), text
    assert "This worker was waiting in all_reduce in step 5, gradient exchange." in text
    assert (caught.value.rank, caught.value.host, caught.value.step) == (1, "host1:22", 5)


class Time:
    now = 0.0

    def __call__(self):
        return self.now


def test_heartbeats_tell_of_waits_that_last_and_are_not_over():
    time = Time()
    progress = Progress(time)
    progress.arrived("main", 1)
    progress.waiting("all_reduce", 0.1)
    assert progress.waits() == ()
    progress.waiting("all_reduce", 0.6)
    assert progress.waits() == (Wait("main", 1, "all_reduce", 0.6),)
    time.now = 2.0
    assert progress.waits() == (), "nobody has asked for two seconds: the wait is over"
    progress.waiting("all_reduce", 2.6)
    progress.arrived("main", 2)
    assert progress.waits() == (), "the next operation has begun"
    progress.returned("main", 1)
    assert progress.waiting("all_reduce", 0.7) == Wait("main", 1, "all_reduce", 0.7)
    assert progress.waits() == (Wait("main", 1, "all_reduce", 0.7),), "it was begun before the second"
    assert progress.counts == {"main": 2}


def test_each_thread_waits_in_its_own_channel():
    progress = Progress()
    progress.arrived("agreement", 7)

    def other():
        progress.arrived("main", 3)
        progress.waiting("all_reduce", 1.0)

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert progress.waiting("barrier", 1.0) == Wait("agreement", 7, "barrier", 1.0)
    assert {wait.channel for wait in progress.waits()} == {"agreement", "main"}


def test_an_engine_that_does_not_connect_is_a_matter_of_networks():
    starting = ControlWatch(0, Progress(), 30.0)
    starting.client = Told()
    starting.waiting("the start of MPI", 29.0)
    with pytest.raises(StartupError, match=r"the start of MPI did not connect them within 30 s.\n.*FI_TCP_IFACE"):
        starting.waiting("the start of MPI", 30.0)
