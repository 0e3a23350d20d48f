"""Who is asked first, and what is said about the others."""

from __future__ import annotations

import logging

import pytest

from unisono.cluster import resolve
from unisono.cluster.spec import ALONE
from unisono.errors import ClusterError

TWO = '{"cluster": {"worker": ["h:1", "h:2"]}, "task": {"type": "worker", "index": 1}}'
HYDRA = {"PMI_RANK": "0", "PMI_SIZE": "2", "PMI_FD": "9"}


def test_tf_config_comes_before_the_launcher() -> None:
    decision = resolve.decide({"TF_CONFIG": TWO, **HYDRA})
    assert decision.cluster.source == "TF_CONFIG"
    assert decision.reasons == ("TF_CONFIG: used",)


def test_the_launcher_comes_when_tf_config_is_empty() -> None:
    decision = resolve.decide({"TF_CONFIG": "", **HYDRA})
    assert decision.cluster.bootstrap == "pmi"
    assert decision.reasons == ("TF_CONFIG: TF_CONFIG is empty", "MPI launcher: used")


def test_alone_with_all_reasons() -> None:
    decision = resolve.decide({})
    assert decision.cluster is ALONE
    assert [reason.split(":")[0] for reason in decision.reasons] == ["TF_CONFIG", "MPI launcher", "alone"]
    assert decision.warnings == ()


def test_a_wrong_tf_config_is_not_passed_over() -> None:
    with pytest.raises(ClusterError):
        resolve.decide({"TF_CONFIG": "{", **HYDRA})


def test_nothing_but_the_mapping_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CONFIG", TWO)
    assert resolve.decide({}).cluster is ALONE


def test_reasons_and_warnings_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    level = logging.getLogger("unisono").level
    try:
        with caplog.at_level(logging.DEBUG):
            resolve.resolve({"WORLD_SIZE": "7"})
            resolve.resolve({"WORLD_SIZE": "7"})
    finally:
        logging.getLogger("unisono").setLevel(level)
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(said) == 1
    assert "WORLD_SIZE=7" in said[0]
