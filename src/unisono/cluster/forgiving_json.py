"""JSON as tools and people write it: encoded twice, keys in capitals; what is ambiguous is refused with its place."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from unisono.errors import ClusterError

_MARKS = ("\ufeff", "\udcef\udcbb\udcbf")
"""Byte order marks, as Python reads them from the environment with and without a locale of UTF-8."""


def decoded(value: Any, what: str, example: str) -> Any:
    """Returns what a JSON text holds, also one that was encoded twice; anything but a text as it is.

    Args:
        value: The text, or a value that is already decoded.
        what: What it is, e.g. "TF_CONFIG", for messages.
        example: A right text, for messages.

    Raises:
        ClusterError: If it is not JSON (the message shows where), or an object has a key twice.
    """
    for _ in range(2):
        if not isinstance(value, str):
            break
        if value.startswith(_MARKS):
            raise ClusterError(
                f"{what} is not JSON: it begins with a byte order mark (BOM): {value[:15]!r}.",
                remedy="save the text as UTF-8 without BOM.",
            )
        try:
            value = json.loads(value, object_pairs_hook=lambda pairs: unique(pairs, what))
        except json.JSONDecodeError as error:
            around = error.doc[max(0, error.pos - 15) : error.pos + 15]
            raise ClusterError(
                f"{what} is not JSON: {error.msg} at line {error.lineno}, column {error.colno}, near {around!r}.",
                remedy="write it with json.dumps(...), which uses double quotes; for example " + example
                if "'" in error.doc
                else "compare with " + example,
            ) from None
        except RecursionError:
            raise ClusterError(
                f"{what} has objects or lists in each other too deep to read; it begins with {value[:30]!r}.",
                remedy="compare with " + example,
            ) from None
    return value


def unique(pairs: Iterable[tuple[str, Any]], what: str) -> dict[str, Any]:
    """Returns the pairs as a dict; refuses a key that comes twice, where `json` would keep the last in silence."""
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise ClusterError(f'{what} has the key "{key}" twice in one object.', remedy="merge the two.")
        result[key] = value
    return result


def mapping(value: Any, what: str, example: str) -> dict[str, Any]:
    """Returns the value as a dict; refuses anything but an object."""
    if not isinstance(value, Mapping):
        raise ClusterError(
            f"{what} must be a JSON object in braces. Received: {value!r}.", remedy=f"compare with {example}"
        )
    return dict(value)


def lower_keys(config: Mapping[str, Any], what: str) -> dict[str, Any]:
    """Returns the mapping with keys in lower case: some tools write them in capitals."""
    return unique(((str(key).strip().lower(), value) for key, value in config.items()), what)
