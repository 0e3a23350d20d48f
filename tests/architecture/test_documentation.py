"""The documentation is complete, fresh and free of dead links, and its code runs."""

from __future__ import annotations

import ast
import concurrent.futures
import contextlib
import dataclasses
import enum
import inspect
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import house
import leaks
import pytest
import snippets

import unisono
import unisono.data
from nursery import Nursery, Order
from ports import free_ports
from unisono import env, errors
from unisono.cluster.resolve import resolve
from unisono.data.distributed import InputContext

DOCS = house.ROOT / "docs"
SECONDS = 600
"""On a quiet machine ten seconds are enough; on a crowded one, importing a framework takes a minute."""

SCRIPTS = {
    (page, block.backend): block
    for page in snippets.pages()
    for block in snippets.blocks(page)
    if block.language == "python"
}


def test_generated_pages_are_fresh() -> None:
    command = [sys.executable, str(DOCS / "generate.py"), "--check"]
    output = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert output.returncode == 0, output.stdout + output.stderr


def test_every_variable_is_on_its_page() -> None:
    page = (DOCS / "environment.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in page for name in env.VARIABLES)


def test_every_exception_is_on_its_page() -> None:
    page = (DOCS / "errors.md").read_text(encoding="utf-8")
    names = [n for n, e in vars(errors).items() if isinstance(e, type) and issubclass(e, errors.UnisonoError)]
    assert len(names) >= 8
    assert not [name for name in names if f"`{name}`" not in page and f"{name}`" not in page]
    assert not [n for n in re.findall(r"\b\w+Error\b", page) if n not in {*names, "RuntimeError", "ValueError"}]


PUBLIC = {
    f"{package.__name__}.{name}": getattr(package, name)
    for package in (unisono, unisono.data)
    for name in package.__all__
    if not name.startswith("__")
}
FOR_SOURCES = {"FileDataset.blocks", "FileDataset.stream", "FileDataset.in_line"}
"""Methods without an underscore that users do not call."""


def test_every_public_name_is_in_the_reference() -> None:
    page = (DOCS / "reference.md").read_text(encoding="utf-8")
    assert not [name for name in PUBLIC if f"# `{name}`\n" not in page]


@pytest.mark.parametrize("cls", [*(c for c in PUBLIC.values() if isinstance(c, type)), InputContext])
def test_every_public_member_is_in_the_reference(cls: type) -> None:
    page = (DOCS / "reference.md").read_text(encoding="utf-8")
    if issubclass(cls, enum.Enum):
        members = list(cls.__members__)
    else:
        members = [n for n, m in vars(cls).items() if isinstance(m, property) or inspect.isfunction(m)]
        if cls is InputContext:
            members += [each.name for each in dataclasses.fields(cls)]
    public = {f"{cls.__name__}.{name}" for name in members if not name.startswith("_")} - FOR_SOURCES
    shown = set(re.findall(rf"`({cls.__name__}\.\w+)", page))
    if cls is InputContext:
        shown |= {f"InputContext.{name}" for name in re.findall(r"^- `(\w+)`: ", page, re.MULTILINE)}
    assert public <= shown


def test_the_reference_keeps_stars() -> None:
    page = (DOCS / "reference.md").read_text(encoding="utf-8")
    assert "describe_data(data: Any, **arguments: Any)" in page
    assert "    files: Patterns,\n    *,\n" in page


@pytest.mark.parametrize("page", snippets.pages(), ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    targets = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text)
    local = [target for target in targets if "://" not in target]
    assert not [target for target in local if not (page.parent / target).exists()]


def test_variables_in_texts_exist() -> None:
    for page in snippets.pages():
        names = set(re.findall(r"\bUNISONO_[A-Z_]+\b", page.read_text(encoding="utf-8")))
        assert names <= env.VARIABLES.keys(), page.name


def test_every_python_block_is_a_script_that_some_test_runs() -> None:
    marks = {block.mark for page in snippets.pages() for block in snippets.blocks(page)} - {""}
    assert marks == {"ways to start", "slurm"}
    assert len(SCRIPTS) >= 7


@dataclasses.dataclass(frozen=True)
class Ended:
    """How a script has ended, and all it printed."""

    returncode: int
    output: str


@pytest.fixture(scope="session")
def ended_scripts(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[tuple[Path, str], Ended]:
    """The scripts that the tests of this session want, two at a time, as each keeps about one core busy."""
    chosen: dict[str, list[Path]] = {}
    for item in request.session.items:
        if isinstance(item, pytest.Function) and "ended_scripts" in item.fixturenames:
            chosen.setdefault(item.callspec.params["backend"], []).append(item.callspec.params["page"])
    folders = [tmp_path_factory.mktemp(backend or "any") for backend in chosen]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        found = pool.map(run_pages, chosen.values(), chosen, folders)
        return {script: ended for some in found for script, ended in some.items()}


@pytest.mark.multiprocess
@pytest.mark.timeout(len(SCRIPTS) * SECONDS)
@pytest.mark.parametrize(
    ("page", "backend"), SCRIPTS, ids=lambda value: value.name if isinstance(value, Path) else value
)
def test_python_blocks_run(page: Path, backend: str, ended_scripts: dict[tuple[Path, str], Ended]) -> None:
    """All blocks of a page that name no backend run in their order in one process; the others by themselves."""
    ended = ended_scripts[page, backend]
    assert ended.returncode == 0, ended.output


def run_pages(pages: list[Path], backend: str, folder: Path) -> dict[tuple[Path, str], Ended]:
    """Runs the blocks of some pages that name one backend, or of those that name none."""
    environ = {**os.environ, "PYTHONPATH": _paths(), "KERAS_BACKEND": backend or "tensorflow"}
    environ.pop("TF_CONFIG", None)
    # What a test leaves behind is known by this variable; the nursery stays until all scripts have ended.
    nursery = Nursery({name: text for name, text in environ.items() if name != leaks.SESSION})
    with contextlib.closing(nursery):
        return {(page, backend): run_blocks(nursery, page, backend, environ, folder) for page in pages}


def run_blocks(nursery: Nursery, page: Path, backend: str, environ: dict[str, str], folder: Path) -> Ended:
    script, output = folder / f"{page.stem}.py", folder / f"{page.stem}.txt"
    own = folder / page.stem
    own.mkdir()
    # Blank lines keep the line numbers of the page, for tracebacks.
    text = ""
    for block in snippets.blocks(page):
        if block.language == "python" and block.backend == backend:
            text += "\n" * (block.line - 1 - text.count("\n")) + block.code
    script.write_text(text, encoding="utf-8")
    # Some blocks make temporary folders, as a reader would, and leave them.
    environ = {**environ, "TMPDIR": str(own)}
    child = nursery.start(Order((str(script),), environ, str(own), str(output), f"{output}.err"))
    code = child.wait(SECONDS)
    return Ended(code, output.read_text(errors="replace") + Path(f"{output}.err").read_text(errors="replace"))


def _paths() -> str:
    return os.pathsep.join([os.environ["PYTHONPATH"], str(house.PACKAGE.parent)])


def ways_to_start() -> list[list[str]]:
    """Returns the commands of the README, those that belong together in one list."""
    (block,) = [b for b in snippets.blocks(house.ROOT / "README.md") if b.mark == "ways to start"]
    groups = re.split(r"\n\n", block.code.strip())
    return [[line for line in group.splitlines() if not line.startswith("#")] for group in groups]


TRAIN = """
import json, os, sys
import keras, numpy as np, unisono

x = np.arange(1, 5, dtype="float32").reshape(4, 1)
strategy = unisono.MultiWorkerMirroredStrategy()
with strategy.scope():
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")])
    model.compile(keras.optimizers.SGD(0.01), "mse")
history = model.fit(x, 2 * x, batch_size=4, shuffle=False, verbose=0)
result = [strategy.rank, strategy.num_replicas_in_sync, history.history["loss"][0], float(model.get_weights()[0][0, 0])]
with open(f"result-{strategy.rank}.json", "w") as file:
    json.dump(result, file)
"""


@pytest.mark.multiprocess
@pytest.mark.timeout(2 * SECONDS)
@pytest.mark.parametrize("commands", ways_to_start(), ids=lambda commands: commands[0].split()[0].split("=")[0])
def test_the_ways_to_start_work(commands: list[str], tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN, encoding="utf-8")
    workers = 1 if commands == ["python train.py"] else 2
    # The commands by name are those of this environment; ports that others may hold are exchanged.
    environ = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": _paths(),
        "KERAS_BACKEND": "tensorflow",
        "UNISONO_STARTUP_TIMEOUT": "60",
    }
    first, second = map(str, free_ports(2))
    texts = [c.replace("12345", first).replace("23456", second) for c in commands]
    if not (Path(sys.executable).parent / "unisono").exists():
        texts = [re.sub(r"^unisono ", "python -m unisono ", text) for text in texts]
    running = [
        subprocess.Popen(
            ["bash", "-c", text], cwd=tmp_path, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for text in texts
    ]
    check_results(running, tmp_path, workers)


def check_results(running: list[subprocess.Popen[str]], folder: Path, workers: int) -> None:
    """Waits for processes that run TRAIN; all workers must have been in one job and made the same step."""
    try:
        outputs = [process.communicate(timeout=SECONDS)[0] for process in running]
    finally:
        for process in running:
            process.kill()
            process.communicate()
    assert [process.returncode for process in running] == [0] * len(running), "\n".join(outputs)
    results = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("result-*.json"))]
    assert [result[:2] for result in results] == [[rank, workers] for rank in range(workers)]
    for result in results:
        assert result[2:] == pytest.approx([30.0, 0.30], rel=1e-5)


def slurm_lines() -> str:
    """Returns the lines that make a TF_CONFIG of Slurm's variables."""
    (block,) = [b for page in snippets.pages() for b in snippets.blocks(page) if b.mark == "slurm"]
    return block.code


def stub_slurm(folder: Path, hosts: list[str], variables: dict[str, str]) -> dict[str, str]:
    """Returns an environment as in a step of Slurm; `scontrol` is a stand-in that knows these hosts."""
    scontrol = folder / "scontrol"
    wanted = f'"$*" = "show hostnames {variables["SLURM_STEP_NODELIST"]}"'
    scontrol.write_text(f"#!/bin/sh\n[ {wanted} ] || exit 1\nprintf '%s\\n' {' '.join(hosts)}\n", encoding="utf-8")
    scontrol.chmod(0o755)
    return {
        **{name: text for name, text in os.environ.items() if not name.startswith("SLURM_") and name != "TF_CONFIG"},
        **variables,
        "PATH": f"{folder}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": _paths(),
        "KERAS_BACKEND": "tensorflow",
        "UNISONO_STARTUP_TIMEOUT": "60",
    }


def test_the_lines_for_slurm_count_host_by_host(tmp_path: Path) -> None:
    step = {
        "SLURM_JOB_ID": "1234567",
        "SLURM_PROCID": "4",
        "SLURM_STEP_NUM_TASKS": "5",
        "SLURM_STEP_NODELIST": "n[1-3]",
        "SLURM_STEP_TASKS_PER_NODE": "2(x2),1",
    }
    environ = stub_slurm(tmp_path, ["n1", "n2", "n3"], step)
    tell = f"{slurm_lines()}\nprint(os.environ.get('TF_CONFIG'))"
    command = [sys.executable, "-c", tell]
    output = subprocess.run(command, env=environ, check=True, capture_output=True, text=True, timeout=60).stdout
    cluster = resolve({"TF_CONFIG": output, **step})
    addresses = ["n1:24567", "n1:24568", "n2:24567", "n2:24568", "n3:24567"]
    assert [str(address) for address in cluster.addresses] == addresses
    assert (cluster.rank, cluster.size) == (4, 5)

    environ["SLURM_STEP_NUM_TASKS"] = "1"
    output = subprocess.run(command, env=environ, check=True, capture_output=True, text=True, timeout=60).stdout
    assert output == "None\n"


@pytest.mark.multiprocess
@pytest.mark.timeout(2 * SECONDS)
def test_workers_meet_by_the_lines_for_slurm(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(slurm_lines() + TRAIN, encoding="utf-8")
    port = next(port for port in free_ports(40) if 20000 <= port < 30000)
    step = {
        "SLURM_JOB_ID": str(port - 20000),
        "SLURM_STEP_NUM_TASKS": "2",
        "SLURM_STEP_NODELIST": "localhost",
        "SLURM_STEP_TASKS_PER_NODE": "2",
    }
    environ = stub_slurm(tmp_path, ["localhost"], step)
    running = [
        subprocess.Popen(
            [sys.executable, "train.py"],
            cwd=tmp_path,
            env={**environ, "SLURM_PROCID": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    check_results(running, tmp_path, workers=2)


@pytest.mark.parametrize("name", [*PUBLIC, "InputContext"])
def test_public_names_say_what_they_take_and_give(name: str) -> None:
    assert (PUBLIC.get(name, InputContext).__doc__ or "").strip(), name
    name = name.rpartition(".")[2]
    for path in house.files():
        for node in ast.walk(house.tree(path)):
            if isinstance(node, ast.ClassDef) and node.name == name:
                for method in node.body:
                    if isinstance(method, ast.FunctionDef) and not method.name.startswith("_"):
                        assert ast.get_docstring(method), f"{name}.{method.name}"
                        assert method.returns is not None, f"{name}.{method.name}"
