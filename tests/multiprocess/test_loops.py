"""Training loops that a user writes compute on many workers what they compute in one process."""

from __future__ import annotations

import pytest
from expect import flat, near, same


@pytest.mark.case("loops.toy", workers=("alone", 2, 3))
@pytest.mark.parametrize(("name", "weight"), [("R01", 0.30), ("R02", 1.15), ("R03", 0.186667)])
def test_own_loops_are_exact(run, name, weight):
    found, plain = run.one(name), run.plain[name]
    assert found["weight"] == near(weight)
    assert found["losses"] == near(plain["losses"])
    assert found["metric"] == near(plain["metric"]) and found["again"] == found["metric"]
    assert found["reset"] == 0.0
    assert (found["updates"], found["rates"]) == (plain["updates"], plain["rates"])


@pytest.mark.case("loops.initial_weights")
def test_the_first_step_begins_with_the_weights_of_the_chief(run):
    firsts = run.each("first")
    assert firsts[0] != firsts[1], "the workers should have begun apart"
    run.one("states")
    run.one("out")


@pytest.mark.case("loops.values", workers=(2, 3), against=())
def test_reductions_and_concatenations(run):
    size = run.world.size
    rows = [[0, 1], [2, 3], [4, 5], [10, 11]]
    assert flat(run.one("rows")) == flat(rows) == flat(run.one("half"))
    assert run.one("columns") == [[0, 2, 4, 10], [1, 3, 5, 11]]
    assert run.one("flags") == [True] * 4
    assert run.one("mean") == near([4.0, 5.0])
    assert run.one("mean_integers") == near([4.0, 5.0])
    assert run.one("mean_half") == near([4.0, 5.0])
    assert run.one("mean_all") == near(4.5)
    assert run.one("sum") == [16, 20] == run.one("sum_integers")
    assert run.one("nested") == [sum(range(1, size + 1)), [0, 2], [1.5 * size]]
    assert run.one("means") == [near((size - 1) / 2), near((size - 1) / 2), None]
    assert run.one("sums") == [size, sum(range(size))]
    assert run.one("average") == near((size - 1) / 2)
    assert run.one("chief") == [0, 7]
    assert run.one("local") == [1, size]


@pytest.mark.case("loops.refused", against=())
def test_what_cannot_be_meant_is_refused(run):
    for twice, no_op, no_axis, no_number, scalar in run.workers:
        assert "summed twice" in twice and "gradients of this worker" in twice
        assert "SUM or MEAN" in no_op and "'MAX'" in no_op
        assert "axis 0" in no_axis and "axis=None" in no_axis
        assert "bool" in no_number
        assert "gather" in scalar


@pytest.mark.case("loops.own_optimizer", workers=("alone", 2, 3))
def test_updates_that_keras_knows_nothing_of(run):
    assert run.one("losses") == near(run.plain["losses"])
    assert run.one("weight") == near(1.15)


@pytest.mark.case("loops.tutorial", workers=("alone", 2), backends=("tensorflow",))
def test_the_tutorial_of_tensorflow(run):
    found = run.one("numbers")
    for key, values in run.plain["numbers"].items():
        assert found[key] == near(values, 1e-3), key
    run.one("state")
    assert run.one("updates") == 6


@pytest.mark.case("loops.lazy_and_empty", workers=(2, 3), backends=("tensorflow",), against=())
def test_open_shapes_new_variables_and_empty_batches(run):
    assert len(run.one("states")) == 4
    assert all(number == number for number in [*run.one("losses"), *flat(run.one("weights"))])
    assert run.one("replicas") == run.world.size and run.one("outside") == 1
    assert run.each("number") == list(range(run.world.size))
    run.one("average")


@pytest.mark.case("loops.compiled_model")
def test_a_loop_between_two_fits(run):
    found = run.agreed()
    same(found, run.plain)
    assert found["own"] == near(run.plain["own"])
