"""One worker of a group: runs the cases of a plan in order and writes one result file a case.

Usage: python worker.py PLAN.json RANK
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import random
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

FILE_BARRIER_SECONDS = 120.0


def _plainly(value: Any) -> Any:
    """Returns a value that JSON can carry without losing a bit of a float."""
    import numpy as np

    if isinstance(value, dict):
        return {str(key): _plainly(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plainly(each) for each in value]
    if isinstance(value, (bool, int, float, str)) or value is None:
        return value
    if isinstance(value, Path):
        return str(value)
    return _plainly(np.asarray(value).tolist())


def _forget_seeds() -> None:
    """Undoes `set_random_seed` of an earlier case, so that a case without a seed has none."""
    import keras
    import numpy as np

    random.seed()
    np.random.seed()
    keras.utils.clear_session(free_memory=False)
    if "tensorflow" in sys.modules:
        import tensorflow as tf

        tf.random.set_seed(None)
    if "torch" in sys.modules:
        import torch

        torch.seed()


def _write(path: Path, result: dict[str, Any]) -> None:
    temporary = path.parent.parent / f".{path.name}"
    temporary.write_text(json.dumps(result))
    temporary.rename(path)


def _await_others(folder: Path, case: str, size: int) -> list[dict[str, Any]]:
    """Waits for the results of all workers; returns them."""
    paths = [folder / f"{case}.{rank}.json" for rank in range(size)]
    deadline = time.monotonic() + FILE_BARRIER_SECONDS
    while not all(path.exists() for path in paths):
        if time.monotonic() > deadline:
            raise TimeoutError(f"the other workers did not end case {case}")
        time.sleep(0.005)
    return [json.loads(path.read_text()) for path in paths]


def main(plan_path: str, rank_text: str) -> int:
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    plan, rank = json.loads(Path(plan_path).read_text()), int(rank_text)
    plain = plan["kind"] == "plain"
    if plain:
        sys.modules["unisono"] = None  # type: ignore[assignment]

    from cases.world import PlainStrategy, World, early_work

    early = early_work() if plan.get("late") else None
    if plain:
        strategy: Any = PlainStrategy()
    else:
        import unisono

        strategy = unisono.MultiWorkerMirroredStrategy(**plan.get("strategy", {}))

    results = Path(plan["scratch"]) / "results"
    for case in plan["cases"]:
        module, function = case.rsplit(".", 1)
        shared = Path(plan.get("shared", plan["scratch"])) / "shared" / case
        shared.mkdir(parents=True, exist_ok=True)
        world = World(plan["backend"], plan["kind"], plan["size"], rank, shared, early, plan.get("arguments", {}))
        print(f"=== {case}", file=sys.stderr, flush=True)
        _forget_seeds()
        begun, cpu = time.monotonic(), time.process_time()
        raised: BaseException | None = None
        try:
            value = getattr(importlib.import_module(f"cases.{module}"), function)(strategy, world)
            result: dict[str, Any] = {"value": _plainly(value)}
        except Exception as error:  # noqa: BLE001 - the result carries it to the test
            raised = error
            result = {
                "error": f"{type(error).__name__}: {error}",
                "kinds": [kind.__name__ for kind in type(error).__mro__],
                "traceback": traceback.format_exc(),
            }
        result["at"] = time.monotonic()
        result["seconds"], result["cpu_seconds"] = result["at"] - begun, time.process_time() - cpu
        result["fatal"] = raised is not None or bool(world.problems)
        _write(results / f"{case}.{rank}.json", result)
        if raised is not None and plan.get("propagate"):
            raise raised
        if plan.get("leave_at_once"):
            continue
        everybody = _await_others(results, case, plan["size"])
        if plan["kind"] == "cluster" and any(each["fatal"] for each in everybody):
            print(f"=== {case} failed, and with it this job; leaving", file=sys.stderr, flush=True)
            return 3
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
