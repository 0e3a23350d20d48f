"""How a job ends, and what others are told of an error."""

import pytest

from unisono.cluster.spec import Address, Cluster, Task
from unisono.collectives.loopback import Alone
from unisono.collectives.options import CommunicationOptions
from unisono.control import verdicts
from unisono.control.progress import Progress
from unisono.control.wire import decode, encode
from unisono.errors import CollectiveTimeoutError, WorkerLostError
from unisono.runtime.job import Line, Runtime

OPTIONS = CommunicationOptions()
TWO = Cluster((Task("worker", 0), Task("worker", 1)), (Address("a", 22), Address("b", 22)), 0, "TF_CONFIG")


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
    job = Runtime(TWO, alone, alone.channel("agreement"), Line(client, Progress(), None), 5.0)
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
    assert "test_job.py" in told.trace and told.trace.endswith("row 5 is broken")


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
