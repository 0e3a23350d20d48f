"""One verdict for all workers, from whatever they say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unisono.data.base import Glance, Part
from unisono.errors import DivergenceError
from unisono.training.agreement import Statement, StepAgreement, Verdict, decide
from unit.training.workers import names, together


def part(local: int, total: int, fingerprint: int = 0) -> Part:
    return Part((np.zeros((local, 1)),) if local else None, local, total, fingerprint)


def verdicts(statements: list[Statement]) -> list[Verdict | str]:
    """Returns what each worker decides."""
    sums = np.sum([s.vector() for s in statements], axis=0)
    return [decide(sums, mine, len(statements)) for mine in statements]


def shared(verdict: Verdict | str) -> object:
    """Returns what must be the same on all workers."""
    return verdict if isinstance(verdict, str) else (verdict.over, verdict.stop, verdict.want_logs, verdict.total)


PARTS = st.one_of(st.none(), st.builds(part, st.integers(0, 2**20), st.integers(1, 2**40), st.integers(0, 2**32 - 1)))
STATEMENTS = st.builds(
    Statement, PARTS, st.sampled_from(["fit step 0", "fit step 1", "evaluate step 0"]), st.booleans(), st.booleans()
)


@settings(deadline=None)
@given(st.lists(STATEMENTS, min_size=1, max_size=70))
def test_any_mixture_gives_the_same_verdict_to_all(statements: list[Statement]):
    assert len({repr(shared(v)) for v in verdicts(statements)}) == 1


@settings(deadline=None)
@given(st.lists(STATEMENTS, min_size=1, max_size=70))
def test_what_the_verdict_is(statements: list[Statement]):
    found = verdicts(statements)[0]
    parts = [s.part for s in statements]
    if len({s.activity for s in statements}) > 1:
        assert found == "activity"
        return
    stop, over = any(s.stop for s in statements), not any(parts)
    if not stop and not over and not all(parts):
        assert found == "ended"
    elif not stop and not over and len({(p.total, p.fingerprint) for p in parts if p}) > 1:
        assert found == "data"
    else:
        assert isinstance(found, Verdict)
        assert (found.stop, found.over) == (stop, over)
        assert found.want_logs == any(s.want_logs for s in statements)
        assert found.total == sum(p.local for p in parts if p)


def sums_of(usual: Statement, odd: Statement, size: int) -> np.ndarray:
    """Adds up what `size` workers say, one of them something odd, as an engine does: in the numbers' own type."""
    return np.add.reduce(np.array([odd.vector()] + [usual.vector()] * (size - 1)), axis=0)


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 2000), st.integers(0, 2**32 - 1), st.text(max_size=20))
def test_equal_marks_are_equal_for_many_workers(size: int, fingerprint: int, activity: str):
    said = Statement(part(3, 3 * size, fingerprint), activity)
    assert decide(sums_of(said, said, size), said, size) == Verdict(False, False, False, 3, 3 * size)


@settings(deadline=None, max_examples=40)
@given(st.integers(2, 2000), st.integers(0, 2**32 - 1))
def test_one_of_many_that_reads_other_data_is_noticed(size: int, fingerprint: int):
    usual, odd = (Statement(part(1, size, mark), "fit") for mark in (fingerprint, fingerprint ^ 1))
    sums = sums_of(usual, odd, size)
    assert decide(sums, usual, size) == decide(sums, odd, size) == "data"


def test_a_step_with_data():
    said = [Statement(part(2, 3), "fit"), Statement(part(1, 3), "fit"), Statement(part(0, 3), "fit")]
    assert [v.local for v in verdicts(said)] == [2, 1, 0]
    first, second, third = (v.weights for v in verdicts(said))
    assert first[:2] == pytest.approx([2 / 3, 1.5]) and second[:2] == pytest.approx([1 / 3, 3])
    assert not third.any() and third.shape == first.shape
    assert first.dtype == third.dtype == "float64"


def test_the_shares_add_up_to_one():
    for locals_ in ([1, 0, 0], [5, 5, 4], [1000, 999, 999]):
        said = [Statement(part(n, sum(locals_)), "fit") for n in locals_]
        assert sum(float(v.weights[0]) for v in verdicts(said)) == pytest.approx(1, abs=1e-15)


def test_over_and_stop_end_the_step_before_data_is_compared():
    end, other = Statement(None, "fit"), Statement(part(1, 2, 7), "fit")
    assert verdicts([end, end])[0] == Verdict(True, False, False, 0, 0)
    stopping = Statement(part(1, 2, 8), "fit", stop=True)
    assert [v.stop for v in verdicts([other, stopping])] == [True, True]


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize(
    ("usual", "odd", "texts"),
    [
        (
            Statement(part(1, 4), "fit step 5"),
            Statement(part(1, 4), "evaluate step 0"),
            ["different things", "worker 0: fit step 5", "worker 1: evaluate step 0", "under `if is_chief`"],
        ),
        (
            Statement(part(1, 4), "fit step 5"),
            Statement(None, "fit step 5"),
            ["ended before", "worker 0: has data left", "worker 1: has no data left", "fit step 5"],
        ),
        (
            Statement(part(1, 4, 0xABC), "fit step 5"),
            Statement(part(1, 4, 0xDEF), "fit step 5"),
            ["different data", "worker 0: 4 examples, content 00000abc", "worker 1: 4 examples, content 00000def"],
        ),
        (
            Statement(part(1, 4), "fit step 5"),
            Statement(part(1, 6), "fit step 5"),
            ["different data", "worker 0: 4 examples", "worker 1: 6 examples"],
        ),
    ],
)
def test_a_difference_is_told_to_all_workers_at_once(size: int, usual: Statement, odd: Statement, texts: list[str]):
    def work(channel):
        agreement = StepAgreement(channel, list(names(size)))
        return agreement.step(odd if channel.rank == 1 else usual)

    errors = together(size, work)
    assert all(isinstance(error, DivergenceError) for error in errors), errors
    assert len({str(error) for error in errors}) == 1
    for text in texts:
        assert text in str(errors[0])


def test_all_must_be_about_to_do_the_same():
    def work(channel):
        agreement = StepAgreement(channel, ["worker 0", "worker 1"])
        agreement.together("fit")
        with pytest.raises(
            DivergenceError, match=r"different things(.|\n)* worker 0: describe_data\n +worker 1: fit\n"
        ):
            agreement.together("describe_data" if channel.rank == 0 else "fit")
        return True

    assert together(2, work) == [True, True]


def test_of_arguments_only_those_are_shown_that_differ():
    said = [{"epochs": "2", "shuffle": "True"}, {"epochs": "2", "shuffle": "False", "steps_per_epoch": "4"}]

    def work(channel):
        agreement = StepAgreement(channel, list(names(2)))
        agreement.together("fit", {"epochs": "2"})
        return agreement.together("fit", said[channel.rank])

    first, second = together(2, work)
    assert str(first) == str(second)
    for text in (
        "call fit with different arguments",
        "worker 0: fit, shuffle=True, steps_per_epoch=not given\n",
        "worker 1: fit, shuffle=False, steps_per_epoch=4\n",
    ):
        assert text in str(first)


def test_one_that_begins_a_loop_is_told_from_one_inside_another():
    def work(channel):
        agreement = StepAgreement(channel, list(names(2)))
        if channel.rank:
            return agreement.together("fit", {"epochs": "2"})
        return agreement.step(Statement(part(1, 4), "predict step 3"))

    for error in together(2, work):
        assert "worker 0: predict step 3\n" in str(error) and "worker 1: fit\n" in str(error)


def glances(*seen: Glance) -> list[Any]:
    def work(channel):
        return StepAgreement(channel, list(names(len(seen)))).same_data("training data", seen[channel.rank])

    return together(len(seen), work)


def test_different_data_is_told_to_all_workers():
    usual, odd = Glance("x (4, 1)", (np.ones(4),)), Glance("x (4, 1)", (np.array([1.0, 1, 2, 1]),))
    assert glances(usual, usual, usual) == [None] * 3
    errors = glances(usual, odd, usual)
    assert len({str(error) for error in errors}) == 1 and isinstance(errors[2], DivergenceError)
    for text in ("Training data: worker 1 and worker 0 hold different data", "worker 2: x (4, 1)", "random_state"):
        assert text in str(errors[0])


def test_where_values_may_differ_only_another_number_of_examples_is_an_error(caplog: pytest.LogCaptureFixture):
    usual, odd = (Glance("4 examples", (np.full(1, value),), certain=False) for value in (1.0, 2.0))
    with caplog.at_level("WARNING"):
        assert glances(usual, odd) == [None, None]
    assert "differs between worker 0 and worker 1" in caplog.text and "examples are lost" in caplog.text
    assert isinstance(glances(usual, Glance("3 examples", usual.values, certain=False))[0], DivergenceError)


def test_small_agreements():
    def work(channel):
        agreement = StepAgreement(channel, list(names(3)))
        rank = channel.rank
        return (
            agreement.any(rank == 2),
            agreement.any(False),
            agreement.gather(rank),
            agreement.from_chief(f"of {rank}"),
        )

    assert together(3, work) == [(True, False, [0, 1, 2], "of 0")] * 3


def test_alone_nothing_is_sent():
    class Refuses:
        rank, size = 0, 1

    agreement = StepAgreement(Refuses(), ["worker 0"])
    assert agreement.step(Statement(part(3, 3), "fit")).total == 3
    assert (agreement.any(True), agreement.gather(1), agreement.from_chief(2)) == (True, [1], 2)


def test_a_seed_is_the_chiefs_and_follows_numpys_own():
    def work(channel):
        agreement = StepAgreement(channel, list(names(2)))
        return agreement.seed(), agreement.seed()

    before = np.random.get_state()
    try:
        first, second = together(2, work)
    finally:
        np.random.set_state(before)
    assert first == second and first[0] != first[1]
    assert all(0 <= seed < 2**63 for seed in first)
