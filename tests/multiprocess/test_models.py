"""A model may be written, built, compiled and stopped in any way that one process allows."""

from __future__ import annotations

import pytest
from expect import near, same, same_history


@pytest.mark.case("models.kinds")
@pytest.mark.parametrize(
    "kind",
    ["sequential_unbuilt", "subclassed_unbuilt", "compiled_outside", "compiled_twice", "run_eagerly", "no_jit_compile"],
)
def test_kinds_of_models(run, kind):
    found = run.one(kind)
    assert found["weight"] == near(1.15)
    same(found, run.plain[kind])


@pytest.mark.case("models.kinds", backends=("tensorflow", "jax"))
def test_jit_compile_works_or_is_switched_off(run):
    same(run.one("jit_compile"), run.plain["jit_compile"])


@pytest.mark.case("models.steps_per_execution", backends=("tensorflow", "jax"))
def test_steps_per_execution(run):
    found, right = run.agreed(), run.plain
    assert found["weight"] == near(right["weight"])
    assert found["iterations"] == right["iterations"]
    same_history(found["history"], right["history"])
    assert run.one("predicted") == near(right["predicted"])


@pytest.mark.case("models.r12_custom_train_step")
def test_r12_custom_train_step(run):
    found = run.one("even")
    assert found["weight"] == near(0.30)
    assert found["history"]["own_loss"] == near([30.0])
    same(found, run.plain["even"])


@pytest.mark.case("models.r12_custom_train_step")
def test_r12_custom_train_step_on_unequal_parts(run):
    found = run.one("unequal")
    assert found["weight"] == near(0.186667)
    same(found, run.plain["unequal"])


@pytest.mark.case("models.loops_of_its_own", more=("torch-3",))
def test_a_class_may_have_loops_with_parameters_of_its_own(run):
    found, right = run.agreed(), run.plain
    same(found, right)
    for key in ("evaluated", "predicted", "once", "later"):
        assert run.one(key) == near(right[key]), key
    assert run.one("made") and run.one("saved")


@pytest.mark.case("models.logs_of_its_own", more=("torch-3",))
def test_what_a_step_returns_under_names_of_its_own_is_global(run):
    found, right = run.one("history"), run.plain["history"]
    assert set(found) == set(right) == {"loss", "mae", "mean_of_losses", "norm"}
    assert all(found[key] == near(right[key]) for key in right)


@pytest.mark.case("models.several_optimizers", backends=("tensorflow", "torch"))
def test_several_optimizers_in_one_step(run):
    found, right = run.agreed(), run.plain
    assert found["weights"] == near(right["weights"])
    assert found["updates"] == right["updates"] == [6, 6]
    same_history(found["history"], right["history"])


@pytest.mark.case("models.counting_layer", more=("torch-3", "jax-3"))
@pytest.mark.parametrize("way", ["compiled", "eager"])
def test_a_counter_in_a_layer_stays_behind_nowhere(run, way):
    found = run.one(way)
    assert (found["steps"], found["used"]) == (6, True)
    same(found, run.plain[way])


@pytest.mark.case("models.loss_without_reduction", backends=("tensorflow",))
def test_a_loss_without_reduction(run):
    same(run.agreed(), run.plain)


@pytest.mark.case("models.custom_compute_loss")
def test_custom_compute_loss(run):
    same(run.agreed(), run.plain)


@pytest.mark.case("models.r28_equal_start_unequal_noise", more=("torch-3",), against=())
@pytest.mark.parametrize("seeding", ["unseeded", "seeded"])
def test_r28_equal_start_unequal_noise(run, seeding):
    found = run.each(seeding)
    assert all(each["start"] == found[0]["start"] for each in found)
    assert all(each["state"] == found[0]["state"] for each in found)
    masks = [each["mask"] for each in found]
    assert all(len(mask) == 4 for mask in masks)
    assert all(masks[i] != masks[j] for i in range(len(masks)) for j in range(i))


@pytest.mark.case("models.r22_stop_on_one_rank", more=("torch-3",))
@pytest.mark.parametrize(
    "where",
    ["at_epoch_end", "inside_an_epoch", "before_a_batch", "before_an_epoch", "before_all", "early_stopping"],
)
def test_r22_a_stop_is_agreed(run, where):
    found, right = run.one(where), run.plain[where]
    if where == "at_epoch_end":
        assert len(found["epochs"]) == 2
    if where == "early_stopping":
        assert len(found["epochs"]) == 2
    same(found, right)


@pytest.mark.case("models.outputs_of_any_rows", more=("torch-3",))
def test_predict_returns_all_rows_of_any_kind(run):
    found, right = run.agreed(), run.plain
    assert found["rows"] == near(right["rows"]) and len(found["rows"]) == 15
    assert found["half"] == near(right["half"])
    assert found["words"] == right["words"]


@pytest.mark.case("models.stops_outside_of_training")
def test_a_stop_of_evaluation_and_prediction_is_agreed(run):
    found, right = run.agreed(), run.plain
    same(found, right)
    assert found["evaluated"] == near(right["evaluated"])
    assert (found["tested"], found["predicted"]) == (right["tested"], right["predicted"]) == (9, 8)


@pytest.mark.case("models.callbacks_agree")
def test_callbacks_decide_alike(run):
    found, right = run.one("plateau"), run.plain["plateau"]
    assert run.one("seen") == run.plain["seen"]
    same(found, right)
    assert run.one("terminated") == run.plain["terminated"]


@pytest.mark.case("models.callbacks_stay_in_the_loop")
def test_callbacks_are_called_in_the_thread_of_the_loop(run):
    assert run.one("called") == [True] * 6


@pytest.mark.case("models.printed", workers=(2,))
def test_only_the_chief_prints(run):
    for name in ("fit", "evaluate", "predict"):
        texts = run.each(name)
        assert "step" in texts[0] and "loss" in texts[0] if name != "predict" else texts[0], name
        assert all(text == "" for text in texts[1:]), name


@pytest.mark.case("models.r26_late_strategy", workers=("alone", 2), more=("torch-3",))
def test_r26_late_strategy(run):
    assert run.one("late") == (run.world.size != 3)
    same(run.one("again"), run.plain["again"])
    if run.one("late"):
        same(run.one("made_before"), run.plain["made_before"])


@pytest.mark.case("models.never_in_scope", against=())
def test_a_model_outside_any_scope_is_spoken_of(run):
    assert all("scope" in told for told in run.each("told"))


@pytest.mark.case("models.strategy_surface", more=("torch-3",), against=())
def test_names_of_the_strategy(run):
    size = run.world.size
    assert run.each("replicas") == [size] * size
    assert run.each("rank") == run.each("id") == list(range(size))
    assert run.each("chief") == [rank == 0 for rank in range(size)]
    assert run.each("type") == ["worker"] * size
    assert run.each("workers") == [size] * size
