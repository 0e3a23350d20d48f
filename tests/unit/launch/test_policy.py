"""When workers are stopped: lists of instructions for lists of events."""

from __future__ import annotations

import signal

from unisono.launch.policy import EARLY_SECONDS, Ending, Phase, Policy, Say, Send


def policy(size: int = 3) -> Policy:
    return Policy(size, linger=5.0, grace=3.0)


def test_all_end_well() -> None:
    job = policy()
    assert [job.ended(rank, 0, 1.0) for rank in (2, 0, 1)] == [[], [], []]
    assert job.over
    assert job.failures == []
    assert job.until is None


def test_who_ends_well_long_before_the_others_is_named_once() -> None:
    job = Policy(3, linger=5.0, grace=3.0, start=10.0)
    assert job.wake_at is None
    job.ended(1, 0, 10.1)
    assert job.wake_at == 10.1 + EARLY_SECONDS
    assert job.tick(15.0) == []
    said = Say("worker 1 ended with exit code 0 after 0.1 s; workers 0, 2 still run.")
    assert job.tick(15.2) == [said]
    assert job.wake_at is None
    assert job.tick(60.0) == []
    job.ended(0, 0, 70.0)
    assert job.tick(75.0) == [Say("worker 0 ended with exit code 0 after 60.0 s; worker 2 still runs.")]
    job.ended(2, 0, 80.0)
    assert job.tick(90.0) == []


def test_who_ends_well_is_not_named_when_others_fail_or_are_stopped() -> None:
    failing, stopped = policy(), policy()
    failing.ended(1, 0, 1.0)
    failing.ended(2, 7, 2.0)
    assert failing.wake_at == 7.0
    assert failing.tick(6.5) == []
    stopped.ended(1, 0, 1.0)
    stopped.interrupted(signal.SIGINT, 2.0)
    assert stopped.wake_at == 5.0


def test_a_failure_gives_the_others_time_then_stops_then_kills() -> None:
    job = policy()
    (said,) = job.ended(1, 7, 10.0)
    assert said == Say("worker 1 failed with exit code 7; workers 0, 2 have 5 s to end by themselves.")
    assert job.tick(14.9) == []
    assert job.tick(15.0) == [Say("stopping workers 0, 2."), Send(signal.SIGTERM, (0, 2))]
    assert job.ended(0, -signal.SIGTERM, 15.1) == []
    assert job.tick(17.9) == []
    assert job.tick(18.0) == [Say("worker 2 did not stop within 3 s: killed."), Send(signal.SIGKILL, (2,))]
    assert job.tick(100.0) == []
    assert job.ended(2, -signal.SIGKILL, 100.1) == []
    assert job.over
    assert job.failures == [Ending(1, 7, 10.0)]


def test_others_that_end_by_themselves_are_failures_too_but_later_ones() -> None:
    job = policy()
    job.ended(1, -signal.SIGSEGV, 1.0)
    assert job.ended(0, 1, 1.5) == []
    assert job.ended(2, 1, 1.6) == []
    assert [failure.rank for failure in job.failures] == [1, 0, 2]
    assert job.tick(50.0) == []


def test_the_last_worker_to_fail_leaves_nobody_to_wait_for() -> None:
    job = policy(2)
    job.ended(0, 0, 1.0)
    assert job.ended(1, 3, 2.0) == []
    assert job.until is None


def test_ctrl_c_is_passed_on_and_the_second_one_kills() -> None:
    job = policy()
    job.ended(0, 0, 0.5)
    assert job.interrupted(signal.SIGINT, 1.0) == [
        Say("signal 2 (SIGINT): stopping all workers."),
        Send(signal.SIGINT, (1, 2)),
    ]
    assert job.phase is Phase.STOPPING
    assert job.ended(1, 1, 1.2) == []
    assert job.interrupted(signal.SIGINT, 1.5) == [Send(signal.SIGKILL, (2,))]
    assert job.failures == []
    assert job.interrupt == signal.SIGINT


def test_other_signals_become_sigterm() -> None:
    for signum in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE):
        job = policy(1)
        assert job.interrupted(signum, 1.0)[1] == Send(signal.SIGTERM, (0,))
        assert job.tick(4.0)[1] == Send(signal.SIGKILL, (0,))


def test_what_is_meant_for_the_workers_is_passed_on_and_changes_nothing() -> None:
    job = policy()
    job.ended(0, 0, 1.0)
    assert job.passed_on(signal.SIGUSR1) == [Send(signal.SIGUSR1, (1, 2))]
    assert job.phase is Phase.RUNNING and job.interrupt is None
    job.ended(1, 0, 1.0)
    job.ended(2, 0, 1.0)
    assert job.passed_on(signal.SIGUSR1) == []


def test_ctrl_c_while_others_have_time_to_end() -> None:
    job = policy(2)
    job.ended(1, 1, 1.0)
    assert Send(signal.SIGINT, (0,)) in job.interrupted(signal.SIGINT, 2.0)
    assert [failure.rank for failure in job.failures] == [1]


def test_a_signal_after_the_end_changes_nothing() -> None:
    job = policy(1)
    job.ended(0, 0, 1.0)
    assert job.interrupted(signal.SIGTERM, 2.0) == []
    assert job.interrupt is None


def test_exit_codes() -> None:
    assert Ending(0, 3, 0.0).exit_code == 3
    assert Ending(0, -9, 0.0).exit_code == 137
    assert str(Ending(2, -9, 0.0)) == "worker 2 was killed by signal 9 (SIGKILL)"
    assert str(Ending(2, -63, 0.0)) == "worker 2 was killed by signal 63"
