"""Variables are set for as long as they are needed, and then as they were."""

from __future__ import annotations

import contextlib
import os

from unisono import env


def test_what_is_exported_for_a_while_is_taken_back_also_after_an_error(monkeypatch):
    monkeypatch.setenv("PMI_RANK", "7")
    monkeypatch.delenv("PMI_FD", raising=False)
    with contextlib.suppress(ValueError), env.exported({"PMI_RANK": "1", "PMI_FD": "8"}):
        assert (os.environ["PMI_RANK"], os.environ["PMI_FD"]) == ("1", "8")
        raise ValueError
    assert os.environ["PMI_RANK"] == "7"
    assert "PMI_FD" not in os.environ
