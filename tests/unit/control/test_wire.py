"""Messages come back from their bytes as they were, and nothing else is taken for a message."""

import contextlib
import dataclasses
import typing

import hypothesis.strategies as st
import pytest
from hypothesis import given

from unisono.control.messages import Beat, Hello, Message
from unisono.control.wire import MAGIC, MAX_LINE, Lines, OtherProtocolError, WireError, clip, decode, encode

ALL = typing.get_args(Message)


def of_type(cls):
    """A strategy for any value of a message class."""
    hints = typing.get_type_hints(cls)
    return st.builds(cls, **{field.name: _values(hints[field.name]) for field in dataclasses.fields(cls)})


def _values(hint):
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if dataclasses.is_dataclass(hint):
        return of_type(hint)
    if origin is tuple:
        return st.lists(_values(arguments[0]), max_size=3).map(tuple)
    if origin is dict:
        return st.dictionaries(st.text(max_size=5), _values(arguments[1]), max_size=3)
    if hint is float:
        return st.floats(allow_nan=False, allow_infinity=False)
    return {int: st.integers(), str: st.text(max_size=20), bool: st.booleans()}[hint]


@given(st.one_of([of_type(cls) for cls in ALL]))
def test_what_is_sent_comes_back(message):
    line = encode(message)
    assert line.startswith(MAGIC) and line.count(b"\n") == 1 and line.endswith(b"\n")
    assert decode(line[:-1]) == message


@given(st.binary(max_size=200))
def test_garbage_is_rejected(data):
    with pytest.raises(WireError):
        decode(data)


@given(of_type(Hello), st.data())
def test_a_damaged_line_is_rejected_or_reads_as_a_message(message, data):
    line = bytearray(encode(message)[:-1])
    line[data.draw(st.integers(0, len(line) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(WireError):
        assert isinstance(decode(bytes(line)), ALL)


@pytest.mark.parametrize(
    "line",
    [
        b"GET / HTTP/1.1",
        b"cmd=init pmi_version=1 pmi_subversion=1",
        b'{"unisono":1}',
        b'{"unisono":1,"type":"Nonsense"}',
        b'{"unisono":1,"type":"Bye","more":1}',
        b'{"unisono":1,"type":"Ready"}',
        b'{"unisono":1,"type":"Ready","job":7}',
        b'{"unisono":1,"type":"Ended","together":1}',
        b'{"unisono":1,"type":"Beat","counts":{"a":true},"step":0,"phase":"","waits":[]}',
        b'{"unisono":1,"type":"Beat","counts":{},"step":0,"phase":"","waits":[{"channel":"a"}]}',
        b'{"unisono":1,"type":"Beat","counts":{},"step":0,"phase":"","waits":[7]}',
        b'{"unisono":1,' + b"[" * 5000,
    ],
)
def test_what_does_not_fit_is_rejected(line):
    with pytest.raises(WireError):
        decode(line)


@pytest.mark.parametrize("number", ["0", "1", "true", "null", '"2"'])
def test_another_protocol_is_told_apart(number):
    with pytest.raises(OtherProtocolError):
        decode(f'{{"unisono":{number},"type":"Bye"}}'.encode())


def test_a_message_that_is_too_long_is_not_sent():
    with pytest.raises(WireError, match="longer"):
        encode(Beat({}, 0, "x" * MAX_LINE))


@given(st.lists(st.one_of([of_type(cls) for cls in ALL]), max_size=4), st.lists(st.integers(1, 50), min_size=1))
def test_lines_are_found_wherever_the_stream_is_cut(sent, cuts):
    stream = b"".join(encode(message) for message in sent)
    lines, received, position, i = Lines(), [], 0, 0
    while position < len(stream):
        step = cuts[i % len(cuts)]
        received += [decode(line) for line in lines.feed(stream[position : position + step])]
        position, i = position + step, i + 1
    assert received == sent


def test_a_line_without_end_is_rejected():
    lines = Lines()
    for _ in range(MAX_LINE // 1024):
        assert lines.feed(b"x" * 1024) == []
    with pytest.raises(WireError, match="longer"):
        lines.feed(b"x")


@given(st.text(max_size=300), st.integers(60, 200))
def test_clipped_texts_keep_both_ends(text, limit):
    short = clip(text, limit)
    assert len(short) <= limit
    assert short == text or (text.startswith(short[:5]) and text.endswith(short[-5:]))
