"""Log lines with the worker's rank; once where once is enough, and on change only where state repeats.

The package logs to the logger named "unisono". A handler on standard error is added the first time a
strategy is made; it is silent as soon as the application has configured one of its own, before or after.
"""

from __future__ import annotations

import logging
import sys

from unisono import env
from unisono.errors import ConfigurationError

LEVELS = ("debug", "info", "warning", "error")

logger = logging.getLogger("unisono")

_said: set[str] = set()
_last: dict[str, str] = {}


def set_up(rank: int, size: int) -> None:
    """Shows log lines on standard error, with the rank in front when there are several workers.

    Args:
        rank: This worker.
        size: How many there are.

    Raises:
        ConfigurationError: If `UNISONO_LOG_LEVEL` is none of `LEVELS`.
    """
    level = env.read("UNISONO_LOG_LEVEL") or "info"
    if level.lower() not in LEVELS:
        raise ConfigurationError(
            f"UNISONO_LOG_LEVEL={level!r} is not a level of log lines.", remedy=f"set it to one of {', '.join(LEVELS)}."
        )
    logger.setLevel(level.upper())
    for handler in [h for h in logger.handlers if isinstance(h, _RankHandler)]:
        logger.removeHandler(handler)
    if not logger.handlers:
        who = f" worker {rank}" if size > 1 else ""
        handler = _RankHandler()
        handler.setFormatter(logging.Formatter(f"[unisono{who}] %(message)s"))
        logger.addHandler(handler)


class _RankHandler(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes to whatever `sys.stderr` is at the moment, so that redirections hold; nothing if others write it too."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)

    def emit(self, record: logging.LogRecord) -> None:
        if logger.propagate and logging.getLogger().handlers:
            return
        self.stream = sys.stderr
        super().emit(record)


def once(key: str, message: str, level: int = logging.INFO) -> None:
    """Logs `message` the first time `key` is seen in this process."""
    if key not in _said:
        _said.add(key)
        logger.log(level, message)


def on_change(key: str, message: str, level: int = logging.INFO) -> None:
    """Logs `message` unless it is what was last logged under `key`."""
    if _last.get(key) != message:
        _last[key] = message
        logger.log(level, message)
