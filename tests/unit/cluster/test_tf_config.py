"""TF_CONFIG in all its dialects, and a clear error for each that cannot work."""

from __future__ import annotations

import json
from typing import Any

import pytest

from unisono.cluster import tf_config
from unisono.cluster.spec import Address, Cluster, Declined, Task
from unisono.errors import ClusterError

TWO = ["h0:1000", "h1:1001"]


def parsed(cluster: Any, task: Any = None, **more: Any) -> Cluster:
    return tf_config.parse(json.dumps({"cluster": cluster, "task": task, **more}))


def refused(text: str, *parts: str) -> None:
    with pytest.raises(ClusterError) as caught:
        tf_config.parse(text)
    assert isinstance(caught.value, ValueError)
    for part in parts:
        assert part in str(caught.value), str(caught.value)


def refused_cluster(cluster: Any, task: Any, *parts: str) -> None:
    refused(json.dumps({"cluster": cluster, "task": task}), *parts)


@pytest.mark.parametrize("index", [0, 1])
def test_two_workers(index: int) -> None:
    cluster = parsed({"worker": TWO}, {"type": "worker", "index": index})
    assert cluster.tasks == (Task("worker", 0), Task("worker", 1))
    assert cluster.addresses == (Address("h0", 1000), Address("h1", 1001))
    assert (cluster.rank, cluster.size, cluster.bootstrap, cluster.source) == (index, 2, "coordinator", "TF_CONFIG")
    assert cluster.task == Task("worker", index)


@pytest.mark.parametrize("role", ["chief", "master", "Chief", " MASTER "])
def test_chief_is_rank_0_wherever_it_stands(role: str) -> None:
    cluster = parsed({"worker": ["h1:1"], role: ["h0:1"]}, {"type": "worker", "index": 0})
    assert cluster.tasks == (Task("chief", 0), Task("worker", 0))
    assert cluster.addresses[0] == Address("h0", 1)
    assert cluster.rank == 1
    assert parsed({"worker": ["h1:1"], role: ["h0:1"]}, {"type": role, "index": 0}).rank == 0


def test_evaluator_is_beside_the_workers() -> None:
    jobs = {"worker": TWO, "evaluator": ["e:1"]}
    worker = parsed(jobs, {"type": "worker", "index": 1})
    assert (worker.size, worker.rank, worker.is_evaluator) == (2, 1, False)
    assert worker.evaluators == (Address("e", 1),)
    evaluator = parsed(jobs, {"type": "evaluator", "index": 0})
    assert (evaluator.size, evaluator.is_evaluator, evaluator.bootstrap) == (2, True, "none")
    assert evaluator.task == Task("evaluator", 0)


def test_evaluator_need_not_be_listed() -> None:
    cluster = parsed({"worker": TWO}, {"type": "evaluator", "index": 1})
    assert cluster.is_evaluator
    assert cluster.task == Task("evaluator", 1)
    refused_cluster({"worker": TWO, "evaluator": ["e:1"]}, {"type": "evaluator", "index": 1}, "evaluator 1", "lists 1")


@pytest.mark.parametrize(
    "text",
    [
        '{"cluster": {"worker": ["h:1"]}}',
        '{"cluster": {"worker": ["h:1"]}, "task": {"type": "worker", "index": 0}}',
        '{"cluster": {"chief": ["h:1"]}, "task": {"type": "chief", "index": 0}}',
        '{"cluster": {"chief": ["h:1"], "ps": []}, "task": {"type": "chief", "index": 0}}',
        '{"cluster": {}, "task": {"type": "worker", "index": 0}}',
        '{"cluster": null, "task": null, "environment": null}',
        '{"environment": "cloud", "task": {"type": "master", "index": 0}}',
    ],
)
def test_one_worker_needs_no_meeting(text: str) -> None:
    cluster = tf_config.parse(text)
    assert (cluster.size, cluster.rank, cluster.bootstrap) == (1, 0, "none")


@pytest.mark.parametrize("text", ["", "   ", "{}", " {} "])
def test_empty_is_no_cluster(text: str) -> None:
    assert isinstance(tf_config.resolve({"TF_CONFIG": text}), Declined)


def test_absent_is_no_cluster() -> None:
    assert tf_config.resolve({}) == Declined("TF_CONFIG is not set")


@pytest.mark.parametrize(
    "task",
    [
        {"type": "worker", "index": "1"},
        {"type": "worker", "index": " 1 "},
        {"type": "worker", "id": 1},
        {"type": "worker", "index": 1, "id": "1"},
        {"type": "WORKER", "index": 1},
        {"Type": " worker ", "Index": 1, "trial": "3", "cloud": None},
        '{"type": "worker", "index": 1}',
    ],
)
def test_dialects_of_the_task(task: Any) -> None:
    assert parsed({"worker": TWO}, task).rank == 1


@pytest.mark.parametrize(
    "jobs",
    [
        {"worker": [" h0:1000 ", "grpc://h1:1001"]},
        {"worker": {"0": "h0:1000", "1": "h1:1001"}},
        {"worker": {"1": "h1:1001", "0": "h0:1000"}},
        {"Worker": TWO, "chief": [], "ps": None},
        json.dumps({"worker": TWO}),
    ],
)
def test_dialects_of_the_cluster(jobs: Any) -> None:
    cluster = parsed(jobs, {"type": "worker", "index": 0}, environment=None, rpc_layer="grpc", model_dir="/m")
    assert cluster.addresses == (Address("h0", 1000), Address("h1", 1001))


def test_whole_text_encoded_twice() -> None:
    text = json.dumps(json.dumps({"CLUSTER": {"worker": TWO}, "TASK": {"type": "worker", "index": 1}}))
    assert tf_config.parse(text).rank == 1


def test_ipv6() -> None:
    cluster = parsed({"worker": ["[::1]:5000", "[fe80::2%eth0]:5000"]}, {"type": "worker", "index": 0})
    assert cluster.addresses == (Address("::1", 5000), Address("fe80::2%eth0", 5000))
    assert str(cluster.addresses[0]) == "[::1]:5000"


@pytest.mark.parametrize("index", [0, 1, 2])
def test_written_text_reads_back(index: int) -> None:
    jobs = {"chief": ["[::1]:1"], "worker": TWO, "evaluator": ["e:1"]}
    for task in ({"type": "chief", "index": 0}, {"type": "worker", "index": 1}, {"type": "evaluator", "index": 0}):
        cluster = parsed(jobs, task)
        assert tf_config.parse(tf_config.write(cluster)) == cluster
        assert json.loads(tf_config.write(cluster))["cluster"] == jobs
        assert tf_config.parse(tf_config.write(cluster, rank=index)).rank == index


def test_a_cluster_without_addresses_cannot_be_written() -> None:
    with pytest.raises(ClusterError, match="not known"):
        tf_config.write(Cluster((Task("worker", 0), Task("worker", 1)), (), 0, "mpiexec", bootstrap="pmi"))


def test_not_json_is_shown_with_position() -> None:
    refused('{"cluster": {"worker": ["h:1",]}}', "not JSON", "line 1, column 31", '"h:1",]}')
    refused('{"cluster":\n {"worker" ["h:1"]}}', "line 2, column 12")


def test_python_instead_of_json() -> None:
    refused(str({"cluster": {"worker": TWO}}), "not JSON", "json.dumps")


@pytest.mark.parametrize("mark", ["\ufeff", "\udcef\udcbb\udcbf"])
def test_a_byte_order_mark_is_named(mark: str) -> None:
    refused(mark + '{"cluster": {}}', "byte order mark", "without BOM")


@pytest.mark.parametrize("text", ["[" * 100_000, '{"cluster":' * 100_000])
def test_too_deep(text: str) -> None:
    refused(text, "TF_CONFIG", "too deep", text[:10])


@pytest.mark.parametrize("text", ["[]", "3", '"worker"', "true"])
def test_not_an_object(text: str) -> None:
    refused(text, "TF_CONFIG")


@pytest.mark.parametrize(
    ("jobs", "task", "parts"),
    [
        ({"worker": TWO}, None, ("2 workers", "no task")),
        ({"worker": TWO}, {}, ("no task",)),
        ({"worker": TWO}, {"type": "worker"}, ("no task index",)),
        ({"worker": TWO}, {"index": 1}, ("no task type",)),
        ({"worker": TWO}, {"type": "worker", "index": 2}, ("worker 2", "lists 2", "from 0 to 1")),
        ({"worker": ["h:1"]}, {"type": "worker", "index": 1}, ("worker 1", "lists 1", "index 0")),
        ({"worker": TWO}, {"type": "worker", "index": -1}, ("from 0", "-1")),
        ({"worker": TWO}, {"type": "worker", "index": "one"}, ("task index", "'one'")),
        ({"worker": TWO}, {"type": "worker", "index": "0_1"}, ("task index", "'0_1'")),
        ({"worker": {"0": "h0:1", "0_1": "h1:1"}}, {"type": "worker", "index": 0}, ("'0_1'",)),
        ({"worker": TWO}, {"type": "worker", "index": "9" * 5000}, ("task index", "'999")),
        ({"worker": TWO}, {"type": "worker", "index": 1.5}, ("1.5",)),
        ({"worker": TWO}, {"type": "worker", "index": True}, ("True",)),
        ({"worker": TWO}, {"type": 1, "index": 0}, ("task type",)),
        ({"worker": TWO}, {"type": "worker", "index": 0, "id": 1}, ("index 0", "id 1")),
        ({"worker": TWO}, {"type": "chief", "index": 0}, ("chief 0", "lists no 'chief'", "worker")),
        ({"worker": TWO}, {"type": "boss", "index": 0}, ('"boss"', "not supported", "chief, worker")),
        ({"worker": TWO}, ["worker", 0], ('"task"', "object")),
        ({}, {"type": "worker", "index": 1}, ("worker 1", "no cluster")),
        (None, {"type": "worker", "index": 1}, ("worker 1", "no cluster")),
        ({"chief": TWO}, {"type": "chief", "index": 0}, ("2 chiefs",)),
        ({"chief": ["a:1"], "master": ["b:1"]}, {"type": "chief", "index": 0}, ('"chief"', '"master"')),
        ({"worker": TWO, "ps": ["p:1"]}, {"type": "worker", "index": 0}, ('"ps"', "parameter server")),
        ({"worker": TWO}, {"type": "ps", "index": 0}, ('"ps"', "parameter server")),
        ({"worker": TWO, "boss": ["b:1"]}, {"type": "worker", "index": 0}, ('"boss"', "not supported")),
        ({"worker": ["h:1", "H:1"]}, {"type": "worker", "index": 0}, ("H:1", "worker 0", "worker 1")),
        ({"chief": ["h:1"], "worker": ["h:1"]}, {"type": "worker", "index": 0}, ("chief 0", "worker 0")),
        ({"evaluator": ["e:1"]}, {"type": "evaluator", "index": 0}, ("no worker",)),
        ({"worker": "h0:1,h1:1"}, {"type": "worker", "index": 0}, ('"worker"', "list")),
        ({"worker": {"0": "h0:1", "2": "h2:1"}}, {"type": "worker", "index": 0}, ("0, 2", "gaps")),
        ({"worker": {"a": "h0:1"}}, {"type": "worker", "index": 0}, ("'a'",)),
        (["h0:1"], {"type": "worker", "index": 0}, ('"cluster"', "object")),
    ],
)
def test_malformed(jobs: Any, task: Any, parts: tuple[str, ...]) -> None:
    refused_cluster(jobs, task, *parts)


@pytest.mark.parametrize(
    ("address", "parts"),
    [
        ("h1", ("no port", "h1:2222")),
        ("h1:", ("port",)),
        ("h1:0", ("port", "'h1:0'")),
        ("h1:65536", ("port",)),
        ("h1:-1", ("port",)),
        ("h1:http", ("port",)),
        ("h1:2_2", ("port",)),
        (":2222", ("no host",)),
        ("", ("no port",)),
        ("::1:2222", ("brackets",)),
        ("[::1]", ("no port",)),
        ("[::1:22", ("no port",)),
        ("[]:22", ("no host",)),
        ("http://h1:80", ("not one address",)),
        ("h1:1,h2:1", ("not one address",)),
        ("h 1:1", ("not one address",)),
        (2222, ("text", "2222")),
        (None, ("text",)),
    ],
)
def test_malformed_address_names_the_worker(address: Any, parts: tuple[str, ...]) -> None:
    refused_cluster({"worker": ["h0:1", address]}, {"type": "worker", "index": 0}, "worker 1", "TF_CONFIG", *parts)


def test_a_key_written_twice_is_refused() -> None:
    refused('{"cluster": {"worker": ["a:1"], "worker": ["b:1"]}}', '"worker" twice')
    refused('{"task": {"index": 0, "Index": 1}}', '"index" twice')
