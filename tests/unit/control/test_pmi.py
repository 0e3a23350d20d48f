"""The answers that MPI gets when it asks how to find its peers."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from unisono.control.pmi import PmiError, Reply, Space, process_mapping


def ask(space, rank, line):
    (reply,) = space.handle(rank, line)
    assert reply.rank == rank
    return reply.line


def test_a_whole_start():
    space = Space(2, "unisono_job", ["a", "a"])
    assert ask(space, 0, "cmd=init pmi_version=1 pmi_subversion=1").startswith("cmd=response_to_init rc=0")
    assert "kvsname_max=256 keylen_max=64 vallen_max=1024" in ask(space, 0, "cmd=get_maxes")
    assert ask(space, 0, "cmd=get_appnum") == "cmd=appnum rc=0 appnum=0"
    assert ask(space, 1, "cmd=get_my_kvsname") == "cmd=my_kvsname rc=0 kvsname=unisono_job"
    assert ask(space, 1, "cmd=get_universe_size") == "cmd=universe_size rc=0 size=2"
    assert ask(space, 0, "cmd=put kvsname=unisono_job key=card-0 value=a=b c d") == "cmd=put_result rc=0 msg=success"
    assert space.handle(0, "cmd=barrier_in") == []
    assert space.handle(1, "cmd=barrier_in") == [Reply(0, "cmd=barrier_out rc=0"), Reply(1, "cmd=barrier_out rc=0")]
    assert ask(space, 1, "cmd=get kvsname=unisono_job key=card-0").endswith("msg=success value=a=b c d")
    assert "value=(vector,(0,1,2))" in ask(space, 1, "cmd=get kvsname=unisono_job key=PMI_process_mapping")
    assert ask(space, 0, "cmd=finalize") == "cmd=finalize_ack rc=0"


def test_an_unknown_key_is_no_error():
    assert "rc=-1" in ask(Space(1, "k", ["a"]), 0, "cmd=get kvsname=k key=PMI_hwloc_xmlfile")


def test_a_barrier_can_be_passed_many_times_and_counts_ranks_once():
    space = Space(3, "k", ["a"] * 3)
    for _ in range(3):
        assert space.handle(2, "cmd=barrier_in") == []
        assert space.handle(2, "cmd=barrier_in") == []
        assert space.handle(0, "cmd=barrier_in") == []
        assert [reply.rank for reply in space.handle(1, "cmd=barrier_in")] == [0, 1, 2]


@pytest.mark.parametrize(
    "line",
    [
        "",
        "GET / HTTP/1.1",
        "cmd=spawn",
        "mcmd=spawn",
        "cmd=put kvsname=k key= value=x",
        "cmd=put kvsname=k key=" + "k" * 65 + " value=x",
        "cmd=put kvsname=k key=k value=" + "v" * 1025,
    ],
)
def test_other_requests_are_errors(line):
    with pytest.raises(PmiError):
        Space(1, "k", ["a"]).handle(0, line)


def test_the_space_is_bounded():
    space = Space(1, "k", ["a"])
    for i in range(64):
        space.handle(0, f"cmd=put kvsname=k key=k{i} value=v")
    with pytest.raises(PmiError, match="Too many"):
        space.handle(0, "cmd=put kvsname=k key=another value=v")


@pytest.mark.parametrize(
    ("places", "text"),
    [
        ("a", "(vector,(0,1,1))"),
        ("aaaa", "(vector,(0,1,4))"),
        ("abcd", "(vector,(0,4,1))"),
        ("aabbcc", "(vector,(0,3,2))"),
        ("aabc", "(vector,(0,1,2),(1,2,1))"),
        ("abab", "(vector,(0,2,1),(0,2,1))"),
    ],
)
def test_mapping(places, text):
    assert process_mapping(places) == text


@given(st.lists(st.sampled_from("abcde"), min_size=1, max_size=40))
def test_the_mapping_says_who_shares_a_place(places):
    nodes = []
    blocks = process_mapping(places).removeprefix("(vector,(").removesuffix("))").split("),(")
    for first, count, ranks in (map(int, block.split(",")) for block in blocks):
        nodes += [node for node in range(first, first + count) for _ in range(ranks)]
    assert len(nodes) == len(places)
    assert len(set(nodes)) == len(set(zip(nodes, places, strict=True))) == len(set(places))


def test_a_mapping_too_long_for_mpi_is_left_out():
    places = [str(i % 2 * i) for i in range(2000)]
    assert "rc=-1" in ask(Space(2000, "k", places), 0, "cmd=get kvsname=k key=PMI_process_mapping")
