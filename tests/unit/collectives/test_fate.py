"""The first failure wins, and is said again as it was."""

import pytest

from unisono.collectives.fate import Fate
from unisono.errors import DivergenceError, WorkerLostError


def test_nothing_is_raised_before_the_end():
    fate = Fate()
    fate.raise_if_over()
    assert not fate.is_over


def test_the_first_end_is_raised_again_with_its_fields():
    fate = Fate()
    lost = WorkerLostError("worker 1 is gone", remedy="start it", rank=1, host="b:1", step=3, phase="exchange")
    assert fate.end(lost) is lost
    assert isinstance(fate.end(DivergenceError("later")), WorkerLostError)
    assert fate.is_over
    for _ in range(2):
        with pytest.raises(WorkerLostError, match="worker 1 is gone") as caught:
            fate.raise_if_over()
        again = caught.value
        assert str(again) == str(lost)
        assert (again.remedy, again.rank, again.host, again.step, again.phase) == ("start it", 1, "b:1", 3, "exchange")


def test_tracebacks_do_not_pile_up():
    fate = Fate()
    fate.end(WorkerLostError("gone"))

    def depth():
        with pytest.raises(WorkerLostError) as caught:
            fate.raise_if_over()
        return len(caught.traceback)

    assert {depth() for _ in range(5)} == {depth()}
