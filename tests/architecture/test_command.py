"""The command line is part of the public face: it changes on purpose only, and its page says what it can do."""

from __future__ import annotations

import argparse
import subprocess
import sys

import house

import unisono
from unisono import cli

COMMANDS = {
    "unisono": {"-h", "--help", "--version"},
    "unisono run": {"-h", "--help", "-n", "--workers"},
}


def options(parser: argparse.ArgumentParser, name: str) -> dict[str, set[str]]:
    found = {name: {option for action in parser._actions for option in action.option_strings}}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, inner in action.choices.items():
                found |= options(inner, f"{name} {word}")
    return found


def test_commands_and_options_are_these() -> None:
    assert options(cli.parser(), "unisono") == COMMANDS


def test_every_option_is_on_its_page() -> None:
    page = (house.ROOT / "docs" / "unisono-run.md").read_text(encoding="utf-8")
    assert not [option for option in COMMANDS["unisono run"] | {"-m"} if f"`{option}`" not in page]


def test_the_version_is_told() -> None:
    output = subprocess.run(
        [sys.executable, "-m", "unisono", "--version"], check=True, capture_output=True, text=True, timeout=60
    )
    assert output.stdout == f"unisono {unisono.__version__}\n"


def test_public_names_are_these() -> None:
    assert set(unisono.__all__) == {
        "ClusterError",
        "CollectiveTimeoutError",
        "CommunicationImplementation",
        "CommunicationOptions",
        "ConfigurationError",
        "DataError",
        "DivergenceError",
        "MultiWorkerMirroredStrategy",
        "ReduceOp",
        "StartupError",
        "UnisonoError",
        "WorkerFailedError",
        "WorkerLostError",
        "__version__",
        "all_reduce",
        "broadcast",
    }
    assert all(hasattr(unisono, name) for name in unisono.__all__)


def test_the_strategy_has_these_members() -> None:
    members = {name for name in vars(unisono.MultiWorkerMirroredStrategy) if not name.startswith("_")}
    assert members == {
        "cluster_resolver",
        "communication_options",
        "describe_data",
        "distribute_datasets_from_function",
        "experimental_distribute_dataset",
        "experimental_local_results",
        "gather",
        "is_chief",
        "num_replicas_in_sync",
        "rank",
        "reduce",
        "run",
        "scope",
    }
