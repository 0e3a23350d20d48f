"""The examples do what they say, started as they say."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ports import free_ports

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
SECONDS = 600
"""On a quiet machine ten seconds are enough; on a crowded one, importing a framework takes a minute."""

pytestmark = [pytest.mark.multiprocess, pytest.mark.timeout(3 * SECONDS)]


def environment(backend: str = "tensorflow") -> dict[str, str]:
    paths = os.pathsep.join([os.environ["PYTHONPATH"], str(ROOT / "src")])
    variables = {"KERAS_BACKEND": backend, "PYTHONPATH": paths, "UNISONO_STARTUP_TIMEOUT": "120"}
    return {**{name: text for name, text in os.environ.items() if name != "TF_CONFIG"}, **variables}


def unisono_run(workers: int, *arguments: str) -> str:
    command = [sys.executable, "-m", "unisono", "run", "-n", str(workers), *arguments]
    ended = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=SECONDS)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_digits_are_learned(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    output = unisono_run(2, str(EXAMPLES / "digits_cnn.py"), "--report", str(report))
    assert json.loads(report.read_text(encoding="utf-8"))["accuracy"] > 0.97
    assert len(re.findall(r"^\[worker 0\] .*accuracy: .*loss: ", output, re.MULTILINE)) == 15
    assert "[worker 1]" not in output


def test_the_same_losses_on_three_backends() -> None:
    script = str(EXAMPLES / "three_backends.py")
    losses = []
    for backend in ("tensorflow", "jax", "torch"):
        output = unisono_run(2, script, "--backend", backend)
        (line,) = re.findall(r"2 worker\(s\)  loss (.*)$", output, re.MULTILINE)
        losses.append([float(word) for word in line.split()])
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)
    assert losses[2] == pytest.approx(losses[0], rel=1e-4)


def test_two_terminals(tmp_path: Path) -> None:
    workers = ["--workers", *(f"localhost:{port}" for port in free_ports(2))]
    command = [sys.executable, str(EXAMPLES / "subclassed_mlp.py"), "--epochs", "3", *workers]
    terminals = [
        subprocess.Popen(
            [*command, "--index", str(index)],
            cwd=tmp_path,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for index in (1, 0)
    ]
    try:
        outputs = [terminal.communicate(timeout=SECONDS)[0] for terminal in terminals]
    finally:
        for terminal in terminals:
            terminal.kill()
            terminal.communicate()
    assert [terminal.returncode for terminal in terminals] == [0, 0], "\n".join(outputs)
    told = [re.findall(r"^worker \d: (.*)$", output, re.MULTILINE)[-1] for output in outputs]
    assert told[0] == told[1]
    accuracy = re.search(r"accuracy ([\d.]+)", told[0])
    assert accuracy is not None
    assert float(accuracy[1]) > 0.9
