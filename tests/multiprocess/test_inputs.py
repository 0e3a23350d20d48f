"""Every source of data gives each example once, and the numbers of one process."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from expect import near, same, same_history

KINDS = (
    "arrays", "tensors", "pandas", "tf_data", "py_dataset", "generator", "endless_generator", "data_loader", "grain",
)  # fmt: skip


@pytest.mark.case("inputs.kinds", more=("torch-3",))
@pytest.mark.parametrize("kind", KINDS)
def test_kinds_of_data(run, kind):
    right = run.plain[kind]
    assert all(kind in each for each in run.workers), "not reached: an earlier kind failed"
    for found in [right, *run.each(kind)]:
        assert isinstance(found, dict), found
    found = run.one(kind)
    assert found["weight"] == near(1.15)
    assert found["history"]["loss"] == near([38.45])
    assert found["iterations"] == 2 * (KINDS.index(kind) + 1)
    same_history(found["history"], right["history"])
    for key in {"evaluated", "predicted"} & right.keys():
        assert found[key] == near(right[key]), key


@pytest.mark.case("inputs.text", workers=(2, 3), backends=("tensorflow",))
@pytest.mark.parametrize("way", ["compiled", "eager"])
def test_text_that_layers_of_the_model_look_up(run, way):
    found, right = run.one(way), run.plain[way]
    assert found["losses"] == near(right["losses"])
    assert found["predicted"] == near(right["predicted"])


@pytest.mark.case("inputs.r06_each_sample_once", workers=(2, 3, 4), against=())
@pytest.mark.parametrize(
    "source",
    [
        "tf_data",
        "tf_data_shuffled",
        "arrays",
        "py_dataset",
        "py_dataset_that_shuffles",
        "generator",
    ],
)
def test_r06_each_sample_once(run, source):
    each_sample_once(run, source)


@pytest.mark.case("inputs.r06_data_loader", more=("torch-3", "torch-4"), against=("alone",))
def test_r06_each_sample_of_a_data_loader_once(run):
    each_sample_once(run, "data_loader_shuffled")
    alone = [int(i) for i in run.alone["data_loader_shuffled"]]
    together = [iter([int(i) for i in seen]) for seen in run.each("data_loader_shuffled")]
    shares = [len(part) for part in np.array_split(np.arange(20), len(together))]
    assert alone == [
        i
        for _ in range(10)
        for seen, share in zip(together, shares, strict=True)
        for i in itertools.islice(seen, share)
    ]


def each_sample_once(run, source):
    epochs = 1 if source == "generator" else 2
    workers = [[int(i) for i in seen] for seen in run.each(source)]
    everything = sorted(i for seen in workers for i in seen)
    assert everything == sorted(list(range(100)) * epochs)
    assert all(workers), "a worker saw nothing"
    if source in ("tf_data_shuffled", "arrays", "py_dataset_that_shuffles", "data_loader_shuffled"):
        first, second = workers[0][: len(workers[0]) // 2], workers[0][len(workers[0]) // 2 :]
        assert first != second


@pytest.mark.case("inputs.r04_more_steps_than_data", workers=(2, 3, 4))
@pytest.mark.parametrize("source", ["arrays", "tf_data"])
def test_r04_more_steps_than_data(run, source):
    found, right = run.one(source), run.plain[source]
    assert found["steps"] == right["steps"]
    assert len(found["warnings"]) == len(right["warnings"])
    same(found, right)


@pytest.mark.case("inputs.fit_arguments")
@pytest.mark.parametrize(
    "call",
    [
        "validation_split",
        "validation_freq",
        "validation_steps",
        "validation_of_another_kind",
        "weights_in_the_dataset",
        "two_epochs_of_a_dataset",
    ],
)
def test_arguments_of_fit(run, call):
    same(run.one(call), run.plain[call])


@pytest.mark.case("inputs.seeded_shuffles", more=("torch-3",))
def test_a_seeded_dataset_shuffle_is_the_same_for_any_number_of_workers(run):
    same(run.agreed(), run.plain)


@pytest.mark.case("inputs.seeded_shuffles_go_on", workers=(2, 3), against=("plain", "alone"))
def test_a_seeded_dataset_shuffle_goes_on_from_loop_to_loop(run):
    run.agreed()
    for found in (run.workers[0], run.alone):
        assert found["weight"] == near(run.plain["weight"])
        assert found["weights"] == near(run.plain["weights"])


@pytest.mark.case("inputs.unseeded_array_shuffle", against=())
def test_an_unseeded_shuffle_is_agreed(run):
    run.agreed()


@pytest.mark.case("inputs.r23_predict", more=("torch-3",))
def test_r23_predict_gives_the_whole_result_in_order(run):
    for name, rows in (("ten", range(10)), ("tf_data", range(10)), ("one", [3])):
        assert run.one(name)["same"] == [[float(i)] for i in rows]
        assert run.one(name)["twice"] == [[2.0 * i] for i in rows]
    assert run.one("shape") == [10, 1]
    assert run.one("single") == [[float(i)] for i in range(10)]


@pytest.mark.case("inputs.slow_py_dataset")
def test_a_slow_dataset_of_batches(run):
    same(run.agreed(), run.plain)
    assert sorted({i for asked in run.each("asked") for i in asked}) == list(range(10))


@pytest.mark.case("inputs.batch_methods", more=("torch-3",))
def test_batch_methods_take_the_global_batch(run):
    assert run.one("first_weight") == near(0.30)
    assert run.one("first")["loss"] == near(30.0)
    for key in ("first", "second", "tested", "predicted", "predicted_one", "weight"):
        assert run.one(key) == near(run.plain[key]), key
    run.one("state")
