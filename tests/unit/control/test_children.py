"""Who may not join: what a worker has started and says that it is that worker."""

import dataclasses
import os

import pytest

from unisono.cluster.spec import Address, Cluster, Task
from unisono.control import children
from unisono.errors import ConfigurationError

TWO = Cluster((Task("worker", 0), Task("worker", 1)), (Address("a", 22), Address("b", 22)), 1, "TF_CONFIG")
LAUNCHED = dataclasses.replace(TWO, addresses=(), source="mpiexec", bootstrap="pmi")


@pytest.fixture
def marked(monkeypatch):
    """Returns what worker 1 of a cluster, process 70, leaves in the environment."""

    def mark(cluster):
        monkeypatch.setenv("UNISONO_JOINED", "")
        with monkeypatch.context() as patch:
            patch.setattr(os, "getpid", lambda: 70)
            children.mark(cluster, 0)
        return os.environ["UNISONO_JOINED"]

    return mark


def test_the_same_worker_in_another_process_is_a_twin_however_far_away(marked):
    assert children.holder(marked(TWO), TWO, 0, pid=71, parent=70) == 70
    assert children.holder(marked(TWO), TWO, 0, pid=72, parent=71) == 70


@pytest.mark.parametrize(
    ("cluster", "generation"),
    [
        (dataclasses.replace(TWO, rank=0), 0),
        (dataclasses.replace(TWO, addresses=(Address("a", 23), Address("b", 22))), 0),
        (TWO, 1),
    ],
)
def test_another_worker_or_another_job_is_none(marked, cluster, generation):
    assert children.holder(marked(TWO), cluster, generation, pid=71, parent=70) is None


def test_a_process_that_has_become_another_program_is_itself(marked):
    assert children.holder(marked(TWO), TWO, 0, pid=70, parent=1) is None


@pytest.mark.parametrize("told", [None, "", "yes", "yes no", "70"])
def test_what_nobody_has_written_says_nothing(told):
    assert children.holder(told, TWO, 0, pid=71, parent=70) is None


def test_jobs_of_a_launcher_look_alike_so_only_the_parent_counts(marked):
    assert children.holder(marked(LAUNCHED), LAUNCHED, 0, pid=71, parent=70) == 70
    assert children.holder(marked(LAUNCHED), LAUNCHED, 0, pid=72, parent=71) is None


def test_a_twin_is_told_what_to_write(monkeypatch):
    monkeypatch.setenv("UNISONO_JOINED", "")
    children.mark(TWO, 0)
    children.refuse_twin(TWO, 0)
    parent = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: parent + 1)
    with pytest.raises(ConfigurationError, match=rf"worker 1 \(process {parent}\).*worker 1 \(b:22\) of 2") as caught:
        children.refuse_twin(TWO, 0)
    assert "__main__" in caught.value.remedy
    children.unmark()
    children.refuse_twin(TWO, 0)


def test_who_has_ended_is_no_hindrance(marked, monkeypatch):
    monkeypatch.setattr(children, "_runs", lambda pid: pid != 70)
    marked(TWO)
    children.refuse_twin(TWO, 0)
