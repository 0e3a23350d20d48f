"""What the user reads when workers do not meet."""

from unisono.cluster.spec import Address, Cluster, Task
from unisono.control import identity
from unisono.control.messages import Missing, NotMet, Refused, StillMissing
from unisono.control.verdicts import not_met, refused, still_missing, unreachable, where


def test_missing_workers_are_named_with_host_port_and_cause():
    message = NotMet((Missing(1, "worker 1 (a:22)", "a:22", "it has never connected"),), 0, 10.2)
    error = not_met(message, 10.0, {1: "the name 'a' does not resolve here"})
    assert (error.rank, error.host, error.phase) == (1, "a:22", "start-up")
    text = str(error)
    assert "1 worker has not come within 10 s. worker 1 (a:22): it has never connected, and the name" in text
    assert "UNISONO_STARTUP_TIMEOUT" in text


def test_many_missing_workers_are_counted():
    named = tuple(Missing(i, f"worker {i}", "", "it has never connected") for i in range(1, 9))
    text = str(not_met(NotMet(named, 12, 10.0), 10.0))
    assert text.startswith("20 workers have not come") and "and 12 more" in text


def test_a_silent_coordinator_is_an_answer_too():
    assert "nor who is missing" in str(not_met(NotMet((), 0, 10.0), 10.0))


def test_the_line_while_they_wait():
    assert still_missing(StillMissing(("worker 1 (a:22)",), 0, 10.0)) == (
        "waiting for worker 1 (a:22) to connect, since 10 s"
    )
    assert " and 3 more to connect" in still_missing(StillMissing(("worker 1",), 3, 10.0))


def test_the_far_side_learns_cause_and_address():
    error = unreachable("worker 0 (h:22)", Address("h", 22), "connection refused", 10.0)
    assert "could not reach worker 0 (h:22) in 10 s: connection refused." in str(error)
    assert (error.rank, error.host) == (0, "h:22")


def test_a_refusal_keeps_its_remedy():
    error = refused(Refused("taken", "Worker 1 is already here.", "give each worker its own index.", 1))
    assert str(error) == "Worker 1 is already here.\nHint: give each worker its own index."
    assert error.rank == 1


def test_where():
    assert [where(5, "x"), where(-1, "x"), where(5, ""), where(-1, "")] == [" in step 5, x", " in x", " in step 5", ""]


def cluster(rank=0, hosts=("a", "b")):
    tasks = tuple(Task("worker", i) for i in range(len(hosts)))
    return Cluster(tasks, tuple(Address(host, 22) for host in hosts), rank, "TF_CONFIG")


def test_workers_of_one_cluster_have_one_fingerprint():
    assert identity.fingerprint(cluster(0)) == identity.fingerprint(cluster(1))
    assert identity.fingerprint(cluster(0)) != identity.fingerprint(cluster(0, ("a", "c")))
    assert identity.fingerprint(cluster(0)) != identity.fingerprint(cluster(0, ("b", "a")))


def test_a_hello_says_who_where_and_which_versions():
    hello = identity.hello(cluster(1), 3)
    assert (hello.rank, hello.size, hello.address, hello.generation) == (1, 2, "b:22", 3)
    assert {"unisono", "Python"} <= set(hello.versions)
    assert hello.place == identity.place()


def test_under_a_launcher_addresses_are_unknown():
    tasks = (Task("worker", 0), Task("worker", 1))
    assert identity.hello(Cluster(tasks, (), 1, "mpiexec", bootstrap="pmi"), 0).address == ""
