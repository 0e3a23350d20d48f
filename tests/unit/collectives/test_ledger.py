"""Ledgers differ when calls differ, and are compared often enough."""

import hypothesis.strategies as st
from hypothesis import given

from unisono.collectives.ledger import Ledger, number

calls = st.lists(st.builds(number, st.integers(0, 2**20 - 1), st.integers(0, 2**40)), max_size=20)


def digest(row):
    ledger = Ledger()
    for call in row:
        ledger.note(call)
    return ledger.digest


@given(calls, calls)
def test_equal_calls_and_only_they_give_equal_digests(one, other):
    assert (digest(one) == digest(other)) == (one == other)


@given(calls)
def test_a_digest_fits_a_signed_64_bit_number(row):
    assert 0 <= digest(row) < 2**61


def test_the_order_counts():
    assert digest([1, 2]) != digest([2, 1])


def compared(row):
    ledger = Ledger()
    return [place for place, call in enumerate(row, 1) if ledger.note(call)]


def test_calls_are_compared_always_at_first_and_then_once_in_a_while():
    numbers = compared([number(1, 100)] * 1000)
    assert numbers[:32] == list(range(1, 33))
    assert numbers[32:] == list(range(64, 1001, 64))


def test_a_call_of_a_new_kind_is_compared():
    row = [number(1, 100)] * 100 + [number(1, 101)] + [number(1, 100)] * 10
    assert 101 in compared(row)
    assert 102 not in compared(row)


def test_many_kinds_do_not_fill_the_memory():
    ledger = Ledger()
    assert all(ledger.note(number(1, size)) for size in range(5000))
    assert len(ledger._kinds) <= 1000
