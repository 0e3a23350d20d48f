"""Many workers compute what one process computes: losses, weights, metrics, optimizers, moving statistics."""

from __future__ import annotations

import importlib.metadata

import pytest
from expect import flat, near, same, same_history

ALL = ("alone", 2, 3, 4)


@pytest.mark.case("exact.r01_parity", workers=ALL)
def test_r01_parity(run):
    found = run.agreed()
    assert found["history"]["loss"] == near([30.0])
    assert found["weight"] == near(0.30)
    same(found, run.plain)


@pytest.mark.case("exact.r02_partial_batch", workers=ALL)
def test_r02_partial_last_batch_with_an_empty_part(run):
    found = run.agreed()
    assert found["weight"] == near(1.15)
    assert found["history"]["loss"] == near([38.45])
    assert found["iterations"] == 2
    same(found, run.plain)


@pytest.mark.case("exact.r03_unequal_halves", workers=ALL)
def test_r03_unequal_halves(run):
    found = run.agreed()
    assert found["weight"] == near(0.186667)
    same(found, run.plain)


@pytest.mark.case("exact.r29_seven_samples", workers=(3,))
def test_r29_seven_samples_on_three_workers(run):
    same(run.agreed(), run.plain)


@pytest.mark.case("exact.r11_sample_weights")
def test_r11_sample_weights(run):
    default, mean = run.one("sum_over_batch_size"), run.one("mean_with_sample_weight")
    assert default["history"]["loss"] == near([69.0])
    assert default["weight"] == near(0.69)
    assert default["history"]["mse"] == near([46.0])
    assert mean["weight"] == near(0.46)
    for reduction in ("sum_over_batch_size", "mean_with_sample_weight"):
        same(run.one(reduction), run.plain[reduction])


@pytest.mark.case("exact.r11_uneven_sample_weights", more=("torch-3",))
@pytest.mark.parametrize("reduction", ["sum_over_batch_size", "mean_with_sample_weight", "sum"])
def test_r11_sample_weights_on_uneven_parts(run, reduction):
    same(run.one(reduction), run.plain[reduction])


@pytest.mark.case("exact.r11_class_weight")
def test_r11_class_weight(run):
    same(run.agreed(), run.plain)


@pytest.mark.case("exact.r08_auc_and_precision")
def test_r08_metrics_are_reduced_as_state(run):
    assert run.one("auc")["m"] == pytest.approx(0.75, abs=0.01)
    assert run.one("precision")["m"] == near(0.40)


@pytest.mark.case("exact.r09_counter_metric")
def test_r09_integer_counter(run):
    assert [each["seen"] for each in run.one("evaluate")] == [120, 120]
    found = run.agreed()
    assert found["history"]["seen"] == [121, 121]
    assert found["history"]["val_seen"] == [5, 5]


@pytest.mark.case("exact.r10_batch_norm")
def test_r10_moving_statistics_are_the_mean_of_the_workers(run):
    found = run.one("synchronized=False")
    assert found["mean"] == near(0.5)
    assert found["variance"] == near(0.9)


@pytest.mark.case("exact.r10_batch_norm")
def test_r10_synchronized(run):
    found = run.one("synchronized=True")
    if run.world.backend == "tensorflow":
        assert found["mean"] == near(0.5)
        assert found["variance"] == near(3.4)
    else:
        assert found == run.plain["synchronized=True"]
        assert "only supported with the TensorFlow backend" in found


@pytest.mark.case("exact.r13_clip_after_reduce")
def test_r13_clipping_sees_global_gradients(run):
    assert run.one("global_clipnorm")["weight"] == near(0.10)
    for clip in ("global_clipnorm", "clipnorm", "clipvalue"):
        same(run.one(clip), run.plain[clip])


@pytest.mark.case("exact.r14_accumulation")
def test_r14_accumulation(run):
    found = run.agreed()
    assert run.one("weights") == near([0.0, 0.30])
    assert run.one("updates") == run.plain["updates"]
    same(found, run.plain)


@pytest.mark.case("exact.r15_loss_scale")
def test_r15_loss_scale_is_agreed(run):
    found = run.agreed()
    weights, scales = run.one("weights"), run.one("scales")
    assert weights[2] == weights[1] != weights[3]
    assert scales == [2.0**15, 2.0**15, 2.0**14, 2.0**14, 2.0**14]
    assert weights == near(run.plain["weights"])
    assert found["iterations"] == run.plain["iterations"]


@pytest.mark.case("exact.r15_mixed_precision")
def test_r15_mixed_precision(run):
    found = run.agreed()
    assert found["scale"] == run.plain["scale"]
    assert found["weight"] == near(run.plain["weight"], 5e-3)
    assert found["history"]["loss"] == near(run.plain["history"]["loss"], 5e-3)


@pytest.mark.case("exact.r16_sparse_gradients")
def test_r16_sparse_gradients(run):
    assert run.one("even")["rows"] == near([0.05, 0.10, 0.05, 0, 0, 0])
    for name in ("even", "unequal", "empty", "repeated", "large"):
        assert run.one(name)["rows"] == near(run.plain[name]["rows"])
    assert run.one("large")["touched"] == [0, 5, 7, 100_000, 199_999]
    for name in ("repeated", "large"):
        assert run.one(name)["loss"] == near(run.plain[name]["loss"])


@pytest.mark.case("exact.r17_two_outputs")
def test_r17_dict_inputs_and_two_outputs(run):
    found = run.agreed()
    same(found, run.plain)
    assert run.one("dataset") == near(run.plain["dataset"])
    history = found["history"]
    assert history["loss"] == near([y + 0.5 * z for y, z in zip(history["y_loss"], history["z_loss"], strict=True)])
    for key, rows in run.plain["predicted"].items():
        assert [row[0] for row in run.one("predicted")[key]] == near([row[0] for row in rows])


@pytest.mark.case("exact.r17_two_outputs")
def test_r17_losses_of_outputs_on_an_uneven_batch(run):
    found, plain = run.one("uneven"), run.plain["uneven"]
    assert list(found) == list(plain)
    assert found["loss"] == near(plain["loss"])
    # One Keras process on TensorFlow gives each batch, whatever its size, the same weight in these two.
    by_example = found["y_loss"][0] + 0.5 * found["z_loss"][0] == near(found["loss"][0])
    by_batch = all(found[key] == near(plain[key]) for key in ("y_loss", "z_loss"))
    assert by_example or by_batch, f"{found}, one process: {plain}"


BY_HAND = {
    "loss": ([3.633233, 3.187679], [3.394420, 2.854973]),
    "val_loss": ([1.279895, 1.650669], [0.994094, 1.322786]),
}
"""With an activity regularizer that Keras sums over a batch, as before 3.14, and with one that is a mean."""


@pytest.mark.case("exact.losses_once")
def test_regularisers_and_added_losses_count_once(run):
    # Not against one process of plain Keras, which now and then loses a layer's loss on JAX (seen with Keras 3.12: the
    # activity loss of the last, small batch was missing there): it tells losses of layers apart by `id`.
    old = tuple(map(int, importlib.metadata.version("keras").split(".")[:2])) < (3, 14)
    found = run.agreed()
    same_history(found["history"], {name: sums if old else means for name, (sums, means) in BY_HAND.items()})
    assert found["weight"] == near(1.205418 if old else 1.214124)
    assert (found["epochs"], found["iterations"]) == (run.plain["epochs"], run.plain["iterations"])


@pytest.mark.case("exact.weights_assigned_in_the_forward_pass", more=("torch-3",))
@pytest.mark.parametrize("way", ["compiled", "eager"])
def test_weights_that_the_forward_pass_assigns_are_the_same_on_all(run, way):
    found, right = run.one(way), run.plain[way]
    same(found, right)
    assert found["sums"] == near(right["sums"])


@pytest.mark.case("exact.ignored_class", more=("torch-3",))
def test_a_loss_that_masks_examples_itself(run):
    same(run.agreed(), run.plain)


@pytest.mark.case("exact.own_trackers", more=("torch-3",))
def test_a_users_mean_counts_each_global_batch_once(run):
    found = run.agreed()
    assert {"own", "val_own"} <= set(found["history"])
    same(found, run.plain)


@pytest.mark.case("exact.optimizers")
@pytest.mark.parametrize("name", ["adamw_ema", "accumulate_clip", "schedule"])
def test_optimizers_see_global_gradients(run, name):
    same(run.one(name), run.plain[name])
    for found, right in zip(run.one(name)["weights"], run.plain[name]["weights"], strict=True):
        assert flat(found) == near(flat(right))


@pytest.mark.case("exact.r31_state_is_one", more=("torch-3",))
def test_r31_state_is_one_after_every_step(run):
    assert len(run.one("states")) == 8
    run.agreed()
    seeds = run.each("seeds")
    assert seeds[0] and len({repr(each) for each in seeds}) == run.world.size


@pytest.mark.case("exact.r30_world_size_invariant", workers=(2, 3, 4), against=("alone",))
def test_r30_same_trajectory_for_any_number_of_workers(run):
    found, alone = run.agreed(), run.alone
    assert list(found["history"]) == list(alone["history"])
    for key, values in alone["history"].items():
        assert found["history"][key] == pytest.approx(values, rel=1e-4), key
    for mine, right in zip(found["weights"], alone["weights"], strict=True):
        assert flat(mine) == pytest.approx(flat(right), rel=1e-4, abs=1e-5)


@pytest.mark.case("exact.batch_logs")
def test_batch_logs_are_global(run):
    same(run.agreed(), run.plain)
    found = run.one("seen")
    assert [batch for batch, _ in found] == [batch for batch, _ in run.plain["seen"]]
    for (_, logs), (_, right) in zip(found, run.plain["seen"], strict=True):
        assert logs == near(right)
