"""Each line appears once, on the worker's own terms."""

from __future__ import annotations

import logging

import pytest

from unisono import log
from unisono.errors import ConfigurationError


@pytest.fixture(autouse=True)
def logger_as_it_was(monkeypatch):
    level = log.logger.level
    monkeypatch.setattr(log.logger, "handlers", [])
    yield
    log.logger.setLevel(level)


@pytest.fixture
def bare(monkeypatch):
    """Called in a test, takes away the handlers that pytest has put on the root logger."""
    return lambda: monkeypatch.setattr(logging.getLogger(), "handlers", [])


def test_a_line_bears_the_rank(capsys, bare):
    bare()
    log.set_up(1, 2)
    log.logger.info("here")
    assert capsys.readouterr().err == "[unisono worker 1] here\n"


@pytest.mark.parametrize("first", [True, False])
def test_where_the_script_shows_log_lines_itself_each_appears_once(capsys, bare, first):
    bare()
    if not first:
        log.set_up(0, 2)
    logging.basicConfig(format="mine: %(message)s")
    if first:
        log.set_up(0, 2)
    log.logger.info("here")
    assert capsys.readouterr().err == "mine: here\n"


def test_a_level_that_is_none_is_refused(monkeypatch):
    monkeypatch.setenv("UNISONO_LOG_LEVEL", "loud")
    with pytest.raises(ConfigurationError, match=r"UNISONO_LOG_LEVEL='loud'.*\n.*debug, info, warning, error"):
        log.set_up(0, 1)


def test_a_level_may_be_written_in_capitals(monkeypatch):
    monkeypatch.setenv("UNISONO_LOG_LEVEL", "WARNING")
    log.set_up(0, 1)
    assert log.logger.level == logging.WARNING
