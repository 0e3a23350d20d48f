"""One suite over the three backends, each in a process of its own; `*_programs.py` hold the programs."""

from __future__ import annotations

import concurrent.futures
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from contract import backend_programs, loop_programs

BACKENDS = ["tensorflow", "jax", "torch"]
Outcomes = Callable[[str], dict[str, str]]


@pytest.fixture(scope="session")
def backend_outcomes(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """What each program came to on a backend; all of one backend run in one process."""
    known: dict[str, dict[str, str]] = {}

    def run(backend: str, folder: Path) -> dict[str, str]:
        environment = {
            **os.environ,
            "KERAS_BACKEND": backend,
            "TF_CPP_MIN_LOG_LEVEL": "3",
            # Workers that are threads wait for each other in the threads of JAX's one pool.
            "PJRT_NPROC": "16",
            "PYTHONPATH": os.pathsep.join([os.environ["PYTHONPATH"], *filter(None, sys.path)]),
        }
        command = [sys.executable, backend_programs.__file__, str(folder)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=560)
        outcomes = folder / "outcomes.json"
        found: dict[str, str] = json.loads(outcomes.read_text()) if outcomes.exists() else {}
        return {**found, "its end": done.stderr[-3000:] if done.returncode else "ok"}

    def outcomes(backend: str) -> dict[str, str]:
        if not known:
            folders = [tmp_path_factory.mktemp(name) for name in BACKENDS]
            # Each keeps about one core busy.
            with concurrent.futures.ThreadPoolExecutor(2) as pool:
                known.update(zip(BACKENDS, pool.map(run, BACKENDS, folders), strict=True))
        return known[backend]

    return outcomes


# The first to ask waits for all programs.
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", [*backend_programs.PROGRAMS, *loop_programs.PROGRAMS])
@pytest.mark.parametrize("backend", BACKENDS)
def test_backend(backend: str, name: str, backend_outcomes: Outcomes):
    outcomes = backend_outcomes(backend)
    assert outcomes.get(name, outcomes["its end"]) == "ok"
    assert outcomes["its end"] == "ok"
