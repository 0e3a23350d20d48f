"""The command line: what is understood, what is refused, and in which words."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import unisono
from unisono import cli
from unisono.launch.plan import WorkerPlan


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[WorkerPlan]:
    """The workers that would have been started; in a folder with train.py and package/module.py."""
    found: list[WorkerPlan] = []

    def run(plans: Sequence[WorkerPlan], **_: Any) -> int:
        found.extend(plans)
        return 7

    monkeypatch.setattr(cli.processes, "run", run)
    monkeypatch.setattr(cli.ports, "free", lambda count: list(range(5000, 5000 + count)))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "module.py").touch()
    (tmp_path / "program").mkdir()
    (tmp_path / "program" / "__main__.py").touch()
    return found


@pytest.mark.parametrize(
    ("typed", "own"),
    [
        ("-n 2 train.py", ["train.py"]),
        ("-n 2 train.py --its own flags", ["train.py", "--its", "own", "flags"]),
        ("--workers=2 train.py -n 5 --workers 7 -m x", ["train.py", "-n", "5", "--workers", "7", "-m", "x"]),
        ("-n2 train.py a -- -b --", ["train.py", "a", "--", "-b", "--"]),
        ("-n 2 train.py --help --version", ["train.py", "--help", "--version"]),
        ("-n 2 -- train.py -x", ["train.py", "-x"]),
        ("-n 2 -m package.module", ["-m", "package.module"]),
        ("-n 2 -m package.module --its -n 3 -- x", ["-m", "package.module", "--its", "-n", "3", "--", "x"]),
        ("-n 2 -mpackage.module x.py", ["-mpackage.module", "x.py"]),
        ("-n 2 -c print(1) -n 3", ["-c", "print(1)", "-n", "3"]),
        ("-n 2 -cprint(1)", ["-cprint(1)"]),
        ("-n 2 program --its", ["program", "--its"]),
    ],
)
def test_flags_of_the_script_are_its_own(started: list[WorkerPlan], typed: str, own: list[str]) -> None:
    assert cli.main(["run", *typed.split()]) == 7
    assert [plan.rank for plan in started] == [0, 1]
    for plan in started:
        assert plan.argv == (sys.executable, *own)


def test_how_cores_are_shared_is_said_in_one_line(
    started: list[WorkerPlan], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TF_CONFIG", raising=False)
    cli.main(["run", "-n", "2", "train.py"])
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("[unisono] 2 workers on this machine")


def test_a_tf_config_that_is_not_used_is_named(
    started: list[WorkerPlan], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TF_CONFIG", "{}")
    cli.main(["run", "-n", "2", "train.py"])
    assert "TF_CONFIG was set" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("typed", "part"),
    [
        ("-n 2 trian.py", "unisono: there is no file 'trian.py' to run, in "),
        ("-n 2 package", "unisono: 'package' is a folder without a __main__.py"),
        ("-n 2 .", "unisono: '.' is a folder without a __main__.py"),
        ("-n 2 -m no_such_package.train", "unisono: there is no module 'no_such_package' to run"),
    ],
)
def test_nothing_to_run_is_one_clear_line(
    started: list[WorkerPlan], capsys: pytest.CaptureFixture[str], typed: str, part: str
) -> None:
    assert cli.main(["run", *typed.split()]) == 2
    err = capsys.readouterr().err
    assert err.startswith(part)
    assert err.count("\n") == 1
    assert started == []


@pytest.mark.parametrize(
    ("typed", "part"),
    [
        ("run train.py", "required: -n/--workers"),
        ("run -n 2", "say what to run, for example: unisono run -n 2 train.py"),
        ("run -n 0 train.py", "'0' is not a number of workers"),
        ("run -n two train.py", "'two' is not a number of workers"),
        ("run -n 2 -m", "-m needs the name of a module"),
        ("run -n 2 --unknown train.py", "unrecognized arguments: --unknown"),
        ("run --work 2 train.py", "required: -n/--workers"),
        ("run train.py -n 2", "required: -n/--workers, before the script, for example: unisono run -n 2 train.py"),
        ("run --np 2 mine.py", "unrecognized arguments: --np; required: -n/--workers, before the script"),
        ("run --np 2 mine.py", "unisono run -n 2 mine.py"),
        ("run -n 2 -", "workers have no standard input"),
        ("run -n 2 -c", "-c needs the code"),
        ("", "required: COMMAND"),
        ("walk", "invalid choice: 'walk'"),
    ],
)
def test_usage_errors(started: list[WorkerPlan], capsys: pytest.CaptureFixture[str], typed: str, part: str) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(typed.split())
    assert end.value.code == 2
    assert part in capsys.readouterr().err
    assert started == []


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out == f"unisono {unisono.__version__}\n"


@pytest.mark.parametrize(
    ("typed", "part"), [("--help", "unisono run -n 2 train.py"), ("run --help", "-m mypackage.train")]
)
def test_help_shows_examples(capsys: pytest.CaptureFixture[str], typed: str, part: str) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(typed.split())
    assert end.value.code == 0
    assert part in capsys.readouterr().out
