"""Reading data from files with two workers, one core each, against plain tf.data and TensorFlow's strategy.

    python benchmarks/input.py              prints tables in Markdown; writes and removes 8 GB below --folder
    python benchmarks/input.py --quick      the same with a hundredth of the data

Of all variants of one table the processes stay alive and take turns at whole epochs. Bytes are what a process has
asked the system to read (`rchar` of /proc/self/io), from files that the system holds in memory.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import input_data
import team
from report import Section, Target, render, table

ROUNDS = 2
SECONDS = 600.0
PLAIN, UNTUNED, UNISONO, STOCK = (
    "two plain tf.data processes, half of the data each",
    "the same without autotuning",
    "Unisono, 2 workers",
    "MultiWorkerMirroredStrategy, 2 workers",
)
ONCE = (STOCK,)
"""What takes minutes runs in the last round only."""
KINDS = {PLAIN: "plain", UNTUNED: "plain", UNISONO: "unisono", STOCK: "stock"}
MEMORY, READER, TF_DATA, ALONE = "memory", "unisono.data", "tf.data", "alone"
FILES = (READER, TF_DATA)
"""Ways to read TFRecord."""
READS = {
    "text in 64 files, by file": ("text", "FILE"),
    "text in 64 files, by record": ("text", "DATA"),
    "TFRecord in one file, by record": ("records", "DATA"),
}


@contextlib.contextmanager
def started(kind: str, spec: dict[str, Any]) -> Iterator[team.Team]:
    """Starts the two processes of one variant."""
    spec = {"backend": "tensorflow", **spec, "kind": kind}
    if kind == "unisono":
        with team.workers("input_worker.py", spec, 2) as running:
            yield running
    else:
        with team.plain("input_worker.py", spec, 2) as running:
            yield running


def rounds(specs: dict[str, tuple[str, dict[str, Any]]], number: int) -> dict[str, list[list[dict[str, Any]]]]:
    """Returns, by variant and round, the answers of its processes.

    Args:
        specs: By variant its kind and what its processes are told.
        number: How many rounds count; one more goes before them, except for what runs once.
    """
    found: dict[str, list[list[dict[str, Any]]]] = {name: [] for name in specs}
    with contextlib.ExitStack() as stack:
        teams = {name: stack.enter_context(started(*spec)) for name, spec in specs.items()}
        for turn in range(number + 1):
            for name, running in teams.items():
                if name in ONCE and turn < number:
                    continue
                running.order(turn=turn)
                answers = running.answers(SECONDS)
                if turn:
                    found[name].append(answers)
    return found


def slower(turns: list[list[dict[str, Any]]], plain: list[list[dict[str, Any]]]) -> float:
    """Returns the speed of the slower process over that of a plain one in the same round, as median of the rounds."""
    return median(
        min(a["examples"] / a["seconds"] for a in answers) / median(a["examples"] / a["seconds"] for a in others)
        for answers, others in zip(reversed(turns), reversed(plain), strict=False)
    )


def reading(folder: Path, title: str, size: int, number: int) -> Section:
    """Returns what it takes to read a data set once.

    Args:
        folder: Where the data lies.
        title: One of `READS`.
        size: Bytes of the data.
        number: Rounds.
    """
    print(f"input: {title} ...", file=sys.stderr, flush=True)
    form, policy = READS[title]
    spec = {"what": "read", "form": form, "policy": policy, "folder": str(folder)}
    found = rounds({name: (kind, {**spec, "tuned": name != UNTUNED}) for name, kind in KINDS.items()}, number)
    rows = []
    for name, turns in found.items():
        seconds = median(max(a["seconds"] for a in answers) for answers in turns)
        each = median(median(a["examples"] / a["seconds"] for a in answers) for answers in turns)
        read = [median(answers[rank]["bytes"] for answers in turns) / size for rank in range(2)]
        speeds = [slower(turns, found[plain]) for plain in (PLAIN, UNTUNED)]
        ratios = [f"{speed:.2f}" for speed in speeds]
        rows.append((name, f"{seconds:.2f}", f"{each:,.0f}", *ratios, f"{read[0]:.3f}", f"{read[1]:.3f}"))
        if name == UNISONO:
            text = f"{title}: slower worker over plain tf.data on its half"
            targets = (
                Target(f"{title}: bytes read by all workers over the data", sum(read), 1.02),
                Target(text, speeds[0], 0.95, at_most=False),
                Target(f"{text}, without autotuning", speeds[1], 0.95, at_most=False),
            )
    heads = (
        *("", "seconds an epoch", "examples/s a worker"),
        *("slower process to plain", "to plain without autotuning", "read by 0", "read by 1"),
    )
    return Section(f"Input: {title}", table(heads, rows), targets)


def arrays(rows: int) -> Section:
    """Returns what `fit` does with large arrays before its first step."""
    print("input: arrays ...", file=sys.stderr, flush=True)
    lines, found = [], {}
    for name, kind in (("plain Keras, 1 process", "plain"), (UNISONO, "unisono")):
        spec = {"backend": "tensorflow", "what": "arrays", "rows": rows, "kind": kind}
        starts = team.workers("input_worker.py", spec, 2) if kind == "unisono" else team.plain("input_worker.py", spec)
        with starts as running:
            running.order(turn=0)
            answers = running.answers(SECONDS)
        seconds, more = (max(a[key] for a in answers) for key in ("first", "more"))
        found[kind] = seconds, more
        lines.append((name, f"{seconds:.2f}", f"{more / 1e6:,.0f}", f"{answers[0]['array'] / 1e6:,.0f}"))
    late, more = found["unisono"][0] - found["plain"][0], found["unisono"][1]
    targets = (
        Target("arrays: first step later than in plain Keras", late, 2.0, unit="s"),
        Target("arrays: memory that fit adds, over the array", more / answers[0]["array"], 0.25),
    )
    heads = ("", "first step done after (s)", "memory that fit adds (MB)", "array (MB)")
    return Section("Input: fit on one large array, shuffled", table(heads, lines), targets)


def step(backend: str, folder: Path, number: int) -> Section:
    """Returns the step time of the MLP from files over that from memory, with Unisono and in plain Keras.

    As in `step.py`, what `fit` does before its first epoch does not count. A last line says what the files cost the one
    core of a process by themselves: reading and parsing, without a model.

    Args:
        backend: Of Keras.
        folder: Where the files are.
        number: Rounds.
    """
    print(f"input: MLP from TFRecord on {backend} ...", file=sys.stderr, flush=True)
    spec = {"what": "step", "folder": str(folder), "backend": backend}
    plain = "two plain Keras processes, half of the data each"
    variants = {(UNISONO, form): ("unisono", {**spec, "form": form}) for form in (MEMORY, *FILES)}
    variants |= {(plain, form): ("plain", {**spec, "form": form}) for form in (MEMORY, TF_DATA, ALONE)}
    found = rounds({" ".join(key): each for key, each in variants.items()}, number)
    times = {key: [max(a["step"] for a in answers) for answers in found[" ".join(key)]] for key in variants}
    alone = times.pop((plain, ALONE))
    lines, targets = [], []
    for (name, form), seconds in times.items():
        memory = times[name, MEMORY]
        ratio = median(b / a for a, b in zip(memory, seconds, strict=True))
        least = f"{median((a + b) / a for a, b in zip(memory, alone, strict=True)):.2f}" if form == TF_DATA else ""
        lines.append((name, form, f"{median(seconds) * 1e3:.2f}", f"{ratio:.2f}", least))
        if name == UNISONO and form != MEMORY:
            text = f"MLP on {backend}, from TFRecord by {form} over the same from memory"
            targets.append(Target(text, ratio, 1.10))
    lines.append(("two tf.data processes without a model", TF_DATA, f"{median(alone) * 1e3:.2f}", "", ""))
    heads = ("", "examples by", "ms a step", "to memory", "memory, and tf.data by itself, to memory")
    return Section(f"Input: the MLP on {backend}, from TFRecord by file", table(heads, lines), tuple(targets))


def sections(quick: bool, folder: Path | None = None) -> Iterator[Section]:
    """Yields the measurements as parts of the results.

    Args:
        quick: Whether a hundredth of the data is enough.
        folder: Where the data is written, and removed from; None for the folder of temporary files.
    """
    size = input_data.SIZE // (100 if quick else 1)
    number = 1 if quick else ROUNDS
    with tempfile.TemporaryDirectory(dir=folder) as made:
        where = Path(made)
        written = {"text": input_data.write_text(where, size), "records": input_data.write_records(where, size)}
        for title, (form, _) in READS.items():
            yield reading(where, title, written[form], number)
        input_data.write_examples(where)
        for backend in ("tensorflow", "jax", "torch"):
            yield step(backend, where, 1 if quick else 5)
    yield arrays(input_data.ARRAY_ROWS // (100 if quick else 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--folder", type=Path, help="where the data is written for the time of the measurement")
    options = parser.parse_args()
    for each in sections(options.quick, options.folder):
        print(render(each), flush=True)


if __name__ == "__main__":
    main()
