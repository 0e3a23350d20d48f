"""Messages to bytes and back: one JSON object a line.

Every line begins with `{"unisono":<protocol>,`, so that a stranger on the port is known by its first bytes and
another release by its number. Lines have a largest size; whatever does not fit its message exactly is rejected.
"""

from __future__ import annotations

import dataclasses
import json
import typing

from unisono.control.messages import Message

PROTOCOL = 2
"""Number of this set of messages; coordinator and workers must have the same."""

MAX_LINE = 64 * 1024
"""Largest line in bytes; messages keep their texts far below."""

MAGIC = b'{"unisono":'
"""How every line begins."""

_TEXT_LIMIT = 4000


class WireError(ValueError):
    """The other side does not speak this protocol."""


class OtherProtocolError(WireError):
    """The other side speaks another release of this protocol."""


_BY_NAME: dict[str, type] = {cls.__name__: cls for cls in typing.get_args(Message)}


def encode(message: Message) -> bytes:
    """Returns the line of a message, with its newline.

    Raises:
        WireError: If the line would be too long.
    """
    body = {"unisono": PROTOCOL, "type": type(message).__name__, **dataclasses.asdict(message)}
    line = json.dumps(body, separators=(",", ":")).encode() + b"\n"
    if len(line) > MAX_LINE:
        raise WireError(f"A {type(message).__name__} of {len(line)} bytes is longer than {MAX_LINE}.")
    return line


def decode(line: bytes) -> Message:
    """Returns the message of a line, without its newline.

    Raises:
        OtherProtocolError: If it is of another release.
        WireError: If it is anything else than a message.
    """
    if not line.startswith(MAGIC):
        raise WireError(f"Not a line of this protocol: {line[:60]!r}.")
    try:
        body = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise WireError(f"Not JSON: {error}.") from None
    if not isinstance(body, dict):
        raise WireError("Not a JSON object.")
    protocol = body.pop("unisono", None)
    if protocol != PROTOCOL or isinstance(protocol, bool):
        raise OtherProtocolError(f"The other side speaks protocol {protocol!r}, this one {PROTOCOL}.")
    cls = _BY_NAME.get(str(body.pop("type", None)))
    if cls is None:
        raise WireError(f"Unknown message: {line[:60]!r}.")
    return typing.cast(Message, _build(cls, body))


def clip(text: str, limit: int = _TEXT_LIMIT) -> str:
    """Returns `text`, its middle cut out if it is longer than `limit` characters (a third, if not all are ASCII)."""
    # In JSON a character beyond ASCII takes up to twelve bytes.
    limit = limit if text.isascii() else limit // 3
    if len(text) <= limit:
        return text
    half = (limit - 5) // 2
    return f"{text[:half]} ... {text[-half:]}"


class Lines:
    """Cuts a stream of bytes into lines of bounded length."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Adds received bytes.

        Returns:
            The lines that are now complete, without newlines.

        Raises:
            WireError: If a line is too long.
        """
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > MAX_LINE or any(len(line) > MAX_LINE for line in lines):
            raise WireError(f"A line is longer than {MAX_LINE} bytes.")
        return lines


def _build(expected: typing.Any, value: object) -> object:
    """Returns `value`, as JSON gave it, as a value of the annotated type `expected`."""
    if dataclasses.is_dataclass(expected):
        return _build_message(typing.cast(type, expected), value)
    origin = typing.get_origin(expected)
    if origin is tuple:
        (item, _) = typing.get_args(expected)
        if isinstance(value, list):
            return tuple(_build(item, v) for v in value)
    elif origin is dict:
        (_, item) = typing.get_args(expected)
        if isinstance(value, dict):
            return {key: _build(item, v) for key, v in value.items()}
    elif expected is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    elif isinstance(value, expected) and (expected is bool or not isinstance(value, bool)):
        return value
    raise WireError(f"Expected {expected}, received {str(value)[:60]!r}.")


def _build_message(cls: type, value: object) -> object:
    if not isinstance(value, dict):
        raise WireError(f"Expected the fields of {cls.__name__}, received {str(value)[:60]!r}.")
    hints = _hints(cls)
    if set(value) != set(hints):
        raise WireError(f"{cls.__name__} has the fields {sorted(hints)}, received {sorted(map(str, value))}.")
    return cls(**{name: _build(hint, value[name]) for name, hint in hints.items()})


_hint_cache: dict[type, dict[str, typing.Any]] = {}


def _hints(cls: type) -> dict[str, typing.Any]:
    if cls not in _hint_cache:
        _hint_cache[cls] = typing.get_type_hints(cls)
    return _hint_cache[cls]
