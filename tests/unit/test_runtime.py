"""What the runtime decides without meeting anyone."""

import dataclasses

import numpy as np
import pytest

from unisono import runtime
from unisono.cluster.spec import ALONE, Address, Cluster, Task
from unisono.collectives.loopback import Alone
from unisono.collectives.options import CommunicationImplementation, CommunicationOptions
from unisono.control import verdicts
from unisono.control.progress import Progress
from unisono.control.wire import decode, encode
from unisono.errors import CollectiveTimeoutError, ConfigurationError, WorkerLostError

OPTIONS = CommunicationOptions()
TWO = Cluster((Task("worker", 0), Task("worker", 1)), (Address("a", 22), Address("b", 22)), 0, "TF_CONFIG")


@pytest.mark.parametrize("cluster", [ALONE, dataclasses.replace(TWO, is_evaluator=True, bootstrap="none")])
def test_alone(cluster):
    job = runtime.connect(cluster, OPTIONS)
    assert (job.rank, job.size, job.failure, job.closed) == (0, 1, None, False)
    assert job.data.all_reduce(np.ones(3)).tolist() == [1, 1, 1]
    job.report(3, "anything")
    job.fail(ValueError("nobody to tell"))
    assert not job.closed
    job.close()
    job.close()
    assert job.closed


def test_an_engine_that_is_not_there_is_refused():
    with pytest.raises(ConfigurationError, match="NCCL"):
        runtime.connect(ALONE, CommunicationOptions(implementation=CommunicationImplementation.NCCL))


@pytest.mark.parametrize("name", ["UNISONO_TIMEOUT", "UNISONO_STARTUP_TIMEOUT", "UNISONO_SILENCE_TIMEOUT"])
@pytest.mark.parametrize("text", ["inf", "nan", "0", "-1", "1e9", "5 minutes"])
def test_seconds_that_nobody_can_wait_are_refused_before_anyone_is_met(monkeypatch, name, text):
    monkeypatch.setenv(name, text)
    monkeypatch.setattr(runtime, "_Start", None)
    with pytest.raises(ConfigurationError, match=rf"{name}='{text}' is not a number of seconds above 0"):
        runtime.connect(TWO, OPTIONS)


@pytest.mark.parametrize("text", ["1.5", "-1", "nan", "one"])
def test_a_generation_is_a_whole_number(monkeypatch, text):
    monkeypatch.setenv("UNISONO_GENERATION", text)
    monkeypatch.setattr(runtime.coordinator, "start", None)
    with pytest.raises(ConfigurationError, match=f"UNISONO_GENERATION='{text}' is not a whole number"):
        runtime.connect(TWO, OPTIONS)


@pytest.fixture
def live(monkeypatch):
    """A job of this process, as if workers had met."""
    job = runtime.connect(ALONE, OPTIONS)
    job.cluster = TWO
    monkeypatch.setattr(runtime, "_live", [job])
    return job


def test_a_second_strategy_gets_the_same_job(live):
    assert runtime.connect(TWO, OPTIONS) is live


def test_another_cluster_in_one_process_is_refused(live):
    other = dataclasses.replace(TWO, addresses=(Address("a", 23), Address("b", 22)))
    with pytest.raises(ConfigurationError, match=r"worker 0 \(a:22\) of 2 already, as TF_CONFIG said"):
        runtime.connect(other, OPTIONS)


def test_a_job_that_is_over_does_not_begin_again(live):
    live.close()
    with pytest.raises(ConfigurationError, match="start the script again"):
        runtime.connect(TWO, OPTIONS)


class Client:
    """A line to the others that breaks when this worker leaves."""

    broken = None

    def __init__(self):
        self.told = []

    def on_broken(self, call):
        pass

    def leave(self, seconds):
        raise OverflowError("timestamp too large")

    def fail(self, failed, seconds):
        self.told.append(failed)


def test_an_end_that_fails_is_told_to_those_who_wait_in_it():
    client, alone = Client(), Alone()
    job = runtime.Runtime(TWO, alone, alone.channel("agreement"), runtime._Line(client, Progress(), None), 5.0)
    with pytest.raises(OverflowError):
        job.close()
    (told,) = client.told
    assert (told.kind, told.error_type, told.message) == ("error", "OverflowError", "timestamp too large")


def test_what_others_are_told_of_an_error():
    try:
        raise ValueError("the picture in row 5 is broken")
    except ValueError as error:
        told = verdicts.failed(error, 1, 5, "loading")
    assert (told.kind, told.error_type, told.about, told.step, told.phase) == ("error", "ValueError", 1, 5, "loading")
    assert told.message == "the picture in row 5 is broken"
    assert "test_runtime.py" in told.trace and told.trace.endswith("row 5 is broken")


@pytest.mark.parametrize(
    ("error", "kind", "about"),
    [
        (CollectiveTimeoutError("late", rank=2), "timeout", 2),
        (WorkerLostError("left", rank=2), "left", 2),
        (WorkerLostError("somebody"), "left", 1),
    ],
)
def test_who_gives_up_waiting_speaks_of_the_other(error, kind, about):
    told = verdicts.failed(error, 1, 5, "")
    assert (told.kind, told.about, told.trace) == (kind, about, "")


def test_long_errors_are_cut():
    told = verdicts.failed(ValueError("x" * 100_000), 0, 0, "")
    assert len(told.message) < 5000 and len(told.trace) < 5000


class UnprintableError(ValueError):
    def __str__(self):
        raise KeyError("no text")


@pytest.mark.parametrize("error", [UnprintableError(), ValueError("\U0001f600" * 100_000), ValueError("\0" * 100_000)])
def test_every_error_can_be_told(error):
    assert decode(encode(verdicts.failed(error, 0, 0, ""))[:-1]).error_type == type(error).__name__
