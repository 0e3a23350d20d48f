"""What is decided at the start without meeting anyone."""

import dataclasses

import numpy as np
import pytest

from unisono.cluster.spec import ALONE, Address, Cluster, Task
from unisono.collectives.options import CommunicationImplementation, CommunicationOptions
from unisono.errors import ConfigurationError
from unisono.runtime import start

OPTIONS = CommunicationOptions()
TWO = Cluster((Task("worker", 0), Task("worker", 1)), (Address("a", 22), Address("b", 22)), 0, "TF_CONFIG")


@pytest.mark.parametrize("cluster", [ALONE, dataclasses.replace(TWO, is_evaluator=True, bootstrap="none")])
def test_alone(cluster):
    job = start.connect(cluster, OPTIONS)
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
        start.connect(ALONE, CommunicationOptions(implementation=CommunicationImplementation.NCCL))


@pytest.mark.parametrize("name", ["UNISONO_TIMEOUT", "UNISONO_STARTUP_TIMEOUT", "UNISONO_SILENCE_TIMEOUT"])
@pytest.mark.parametrize("text", ["inf", "nan", "0", "-1", "1e9", "5 minutes"])
def test_seconds_that_nobody_can_wait_are_refused_before_anyone_is_met(monkeypatch, name, text):
    monkeypatch.setenv(name, text)
    monkeypatch.setattr(start, "_Start", None)
    with pytest.raises(ConfigurationError, match=rf"{name}='{text}' is not a number of seconds above 0"):
        start.connect(TWO, OPTIONS)


@pytest.mark.parametrize("text", ["1.5", "-1", "nan", "one"])
def test_a_generation_is_a_whole_number(monkeypatch, text):
    monkeypatch.setenv("UNISONO_GENERATION", text)
    monkeypatch.setattr(start.coordinator, "start", None)
    with pytest.raises(ConfigurationError, match=f"UNISONO_GENERATION='{text}' is not a whole number"):
        start.connect(TWO, OPTIONS)


@pytest.fixture
def live(monkeypatch):
    """A job of this process, as if workers had met."""
    job = start.connect(ALONE, OPTIONS)
    job.cluster = TWO
    monkeypatch.setattr(start, "_live", [job])
    return job


def test_a_second_strategy_gets_the_same_job(live):
    assert start.connect(TWO, OPTIONS) is live


def test_another_cluster_in_one_process_is_refused(live):
    other = dataclasses.replace(TWO, addresses=(Address("a", 23), Address("b", 22)))
    with pytest.raises(ConfigurationError, match=r"worker 0 \(a:22\) of 2 already, as TF_CONFIG said"):
        start.connect(other, OPTIONS)


def test_a_job_that_is_over_does_not_begin_again(live):
    live.close()
    with pytest.raises(ConfigurationError, match="start the script again"):
        start.connect(TWO, OPTIONS)
