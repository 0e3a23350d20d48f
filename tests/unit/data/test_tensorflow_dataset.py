"""tf.data: agreed seeds, what fingerprints cover, samples, weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from minutes import Minutes, Worker, in_turn
from unisono.data import tensorflow_graph, tensorflow_seeds
from unisono.data.select import make_source
from unisono.errors import ConfigurationError, DivergenceError

Pipeline = Callable[[], tf.data.Dataset]


@pytest.fixture(autouse=True)
def no_global_seed() -> Iterator[None]:
    tf.random.set_seed(None)
    yield
    tf.random.set_seed(None)


def numbers(n: int = 12) -> tf.data.Dataset:
    return tf.data.Dataset.range(n)


def read(build: Callable[[int], Any], size: int = 2, epochs: int = 2) -> tuple[list[Any], list[Any]]:
    """Returns the global batches of each epoch, and per worker the fingerprints."""

    def work(rank: int, size: int, agreement: Worker) -> list[list[Any]]:
        source = make_source(build(rank), rank=rank, size=size, agreement=agreement)
        return [list(source.epoch()) for _ in range(epochs)]

    workers = in_turn(size, work)
    batches = [
        [
            [v for p in parts if p.data for v in np.asarray(p.data[0]).reshape(-1).tolist()]
            for parts in zip(*(w[e] for w in workers), strict=True)
        ]
        for e in range(epochs)
    ]
    return batches, [[p.fingerprint for epoch in w for p in epoch] for w in workers]


def describe(dataset: Any, rank: int, size: int, agreement: Worker) -> str:
    return make_source(dataset, rank=rank, size=size, agreement=agreement).describe()


@pytest.mark.parametrize(
    "build",
    [
        lambda: numbers().shuffle(12).batch(5),
        lambda: numbers().shuffle(5).repeat(2).batch(5),
        lambda: numbers().map(lambda x: (x, tf.random.uniform(()))).shuffle(12).batch(5),
        lambda: numbers(3).flat_map(lambda i: numbers(4).shuffle(4)).batch(5),
        lambda: tf.data.Dataset.sample_from_datasets([numbers(5), numbers(9)], [0.5, 0.5]).batch(4),
        lambda: numbers(40).filter(lambda x: tf.random.uniform(()) < 0.4).batch(4),
    ],
    ids=["shuffle", "repeat", "map", "flat_map", "sample", "filter"],
)
def test_with_a_global_seed_two_workers_see_what_one_sees_in_every_epoch(build: Pipeline) -> None:
    def seeded(rank: int) -> Any:
        tf.random.set_seed(7)
        return build()

    alone, _ = read(seeded, size=1)
    together, (first, second) = read(seeded, size=2)
    assert together == alone
    assert first == second


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize(
    ("behind", "apart"),
    [(lambda x: 2 * x + 1, True), (lambda x: x - tf.reduce_max(x), False), (lambda x: tf.reverse(x, [0]), False)],
    ids=["each by itself", "the largest of all", "another order"],
)
def test_functions_behind_batch_see_what_they_see_alone(behind: Any, apart: bool, size: int) -> None:
    def build(rank: int) -> Any:
        return numbers(13).map(lambda i: i * i).shuffle(13, seed=1).batch(5).map(behind)

    alone, _ = read(build, size=1, epochs=1)
    together, _ = read(build, size=size, epochs=1)
    assert together == alone
    (line, *_) = in_turn(size, lambda rank, size, agreement: describe(build(rank), rank, size, agreement))
    assert ("functions run on a worker's own examples only" in line) is apart
    assert ("put it before batch() if it does not" in line) is not apart


def test_a_shuffle_that_must_not_change_between_epochs_does_not() -> None:
    (first, second), _ = read(lambda rank: numbers().shuffle(12, reshuffle_each_iteration=False).batch(5))
    assert first == second != [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [10, 11]]


def test_unseeded_random_values_are_drawn_afresh_in_each_epoch() -> None:
    (first, second), _ = read(lambda rank: numbers().map(lambda x: tf.random.uniform(())).batch(12))
    assert first != second


def test_a_cache_in_memory_outlives_the_epoch() -> None:
    made: list[int] = []

    def slow(i: Any) -> Any:
        made.append(int(i))
        return i

    def build(rank: int) -> Any:
        cached = numbers(6).map(lambda i: tf.numpy_function(slow, [i], tf.int64)).cache()
        return cached.map(lambda i: i + 0 * tf.random.uniform((), 0, 2, tf.int64)).shuffle(6).batch(3)

    read(build)
    assert sorted(made) == sorted(2 * [*range(6)])


def test_large_arrays_are_kept_outside_the_graph() -> None:
    rows = np.arange(20_000, dtype="int64")
    dataset = tf.data.Dataset.from_tensor_slices((rows, tf.cast(rows, "float32"))).shuffle(100).batch(10_000)
    serialized = tensorflow_graph.serialize(dataset)
    assert serialized is not None and serialized.graph.ByteSize() < 10_000
    (first, second), (one, other) = read(lambda rank: dataset.map(lambda x, y: (x, y + tf.random.uniform(()))))
    assert one == other
    assert first != second
    assert sorted(i for b in first for i in b) == rows.tolist()


def test_the_chiefs_seeds_win() -> None:
    batches, (first, second) = read(lambda rank: numbers().shuffle(12, seed=rank + 1).batch(5))
    assert first == second
    assert sorted(i for b in batches[0] for i in b) == [*range(12)]


def test_another_pipeline_than_the_chiefs_is_an_error() -> None:
    with pytest.raises(DivergenceError, match="pipeline is not the chief's"):
        read(lambda rank: numbers().shuffle(12).batch(5) if rank else numbers().batch(5))


@pytest.mark.parametrize(
    "build",
    [
        lambda rank: numbers().map(lambda i: i + rank).batch(5),
        lambda rank: numbers(12 + rank).map(lambda i: i).batch(5),
        lambda rank: tf.data.Dataset.from_tensor_slices(np.full(50_000, rank)).map(lambda i: i).batch(500),
    ],
    ids=["function", "constant", "array"],
)
def test_another_function_or_other_data_than_the_chiefs_is_an_error(build: Callable[[int], Any]) -> None:
    with pytest.raises(DivergenceError, match="functions, constants or arrays differ"):
        read(build)


def test_other_data_than_the_chiefs_has_another_fingerprint() -> None:
    _, (first, second) = read(lambda rank: numbers().batch(5).map(lambda i: i + rank))
    assert set(first).isdisjoint(second)


@pytest.mark.parametrize("without", [(0,), (1,), (0, 1)])
def test_a_pipeline_that_cannot_be_serialized_is_found_by_its_fingerprint(
    monkeypatch: pytest.MonkeyPatch, without: tuple[int, ...]
) -> None:
    serialize = tensorflow_graph.serialize
    ranks = iter((0, 1))
    monkeypatch.setattr(tensorflow_graph, "serialize", lambda d: None if next(ranks) in without else serialize(d))
    _, (first, second) = read(lambda rank: tf.data.Dataset.range(1000).shuffle(1000).batch(100))
    assert first != second


def test_random_inputs_do_not_count_as_other_data_but_other_examples_do() -> None:
    generator = tf.random.Generator.from_non_deterministic_state()

    def augmented(rank: int, start: int = 0) -> Any:
        labelled = tf.data.Dataset.range(start, start + 12)
        return labelled.map(lambda i: (generator.uniform((3,)), i)).batch(5)

    _, (first, second) = read(augmented)
    assert first == second
    with pytest.raises(DivergenceError, match="constants"):
        read(lambda rank: augmented(rank, start=rank))


def test_order_of_a_python_generator_with_random_values_shows_in_its_targets() -> None:
    def build(rank: int) -> Any:
        made = tf.data.Dataset.from_generator(
            lambda: ((float(i), float(i)) for i in np.random.default_rng(rank).permutation(12)),
            output_signature=(tf.TensorSpec((), tf.float32), tf.TensorSpec((), tf.float32)),
        )
        return made.map(lambda x, y: (x + tf.random.uniform(()), y)).batch(5)

    _, (first, second) = read(build)
    assert first != second


def source(dataset: Any, **options: Any) -> Any:
    return make_source(dataset, rank=0, size=1, agreement=Minutes().worker(0), **options)


def test_the_number_of_batches_is_known_where_tensorflow_knows_it() -> None:
    assert source(numbers().batch(5)).num_batches == 3
    assert source(numbers().batch(5, drop_remainder=True)).num_batches == 2
    assert source(numbers().repeat().batch(5)).num_batches is None
    assert source(numbers().filter(lambda i: i > 3).batch(5)).num_batches is None


def test_a_sample_is_made_without_running_the_pipeline_where_shapes_are_known() -> None:
    def never(i: Any) -> Any:
        raise AssertionError

    known = numbers().map(lambda i: tf.ensure_shape(tf.numpy_function(never, [i], tf.float32), (3,))).batch(5)
    assert source(known).sample()[0].shape == (1, 3)
    strings = tf.data.Dataset.from_tensors(tf.constant(["a", "b"]))
    assert source(strings).sample()[0].tolist() == [b""]
    unknown = numbers().batch(5).map(lambda i: tf.reshape(tf.range(10), (5, -1)))
    assert source(unknown).sample()[0].shape == (1, 2)


def test_dicts_keep_their_form_and_count_as_inputs() -> None:
    parts = list(source(numbers(8).map(lambda i: {"a": i, "b": (i, i)}).batch(5)).epoch())
    assert [np.asarray(part.batch["b"][1]).tolist() for part in parts] == [[0, 1, 2, 3, 4], [5, 6, 7]]
    assert len({type(part.batch["a"]) for part in parts}) == 1
    assert all(part.data == (part.batch,) for part in parts)


def test_class_weights() -> None:
    pairs = numbers(3).map(lambda i: (i, i))
    part = next(source(pairs.batch(3), class_weight={1: 0.5}).epoch())
    assert part.data[2].tolist() == [1, 0.5, 1]
    with pytest.raises(ConfigurationError, match="yields sample weights too"):
        next(source(pairs.map(lambda x, y: (x, y, y)).batch(3), class_weight={1: 0.5}).epoch())
    with pytest.raises(ConfigurationError, match="exactly one output"):
        next(source(numbers(3).batch(3), class_weight={1: 0.5}).epoch())


def test_elements_that_are_not_batched_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"The tf\.data\.Dataset yielded a batch whose arrays"):
        next(source(numbers()).epoch())


def draws(dataset: Any) -> list[tensorflow_seeds.Draw]:
    serialized = tensorflow_graph.serialize(dataset)
    assert serialized is not None
    return tensorflow_seeds.draws(serialized.graph)


def test_draws_are_listed_by_structure_not_by_name() -> None:
    def build() -> tf.data.Dataset:
        inner = numbers(2).shuffle(2, seed=3).interleave(lambda i: numbers(3).shuffle(3), num_parallel_calls=2)
        return inner.map(lambda i: i + tf.random.uniform((), 0, 1, tf.int64)).batch(2)

    first = draws(build())
    for _ in range(5):
        build()
    assert draws(build()) == first
    assert [(d.op, d.nested, d.starts_anew) for d in first] == [
        ("ShuffleDatasetV3", False, False),
        ("ShuffleDatasetV3", True, True),
        ("RandomUniformInt", True, True),
    ]
