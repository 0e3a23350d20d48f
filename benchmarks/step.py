"""Time of a training step through `model.fit`: two workers against one plain Keras process and the stock ways.

    python benchmarks/step.py                       prints tables in Markdown
    python benchmarks/step.py --backends jax --models MLP --quick

All variants of one model live at the same time and take turns at short epochs, each in processes of its own with one
core each, so that whatever else the machine does meets all of them alike. Between its turns a process sleeps.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median

import models
import team
from report import Section, Target, render, table

BACKENDS = ("tensorflow", "jax", "torch")
ROUNDS = 5
STEPS = {"MLP": 300, "CNN": 40}
QUICK_ROUNDS, QUICK_STEPS = 2, {"MLP": 8, "CNN": 3}
EPOCH_SECONDS, FEWEST_STEPS = 2.0, 20
"""A variant that is slower than this for its steps does fewer of them, so that one slow way does not cost the hour."""
START_SECONDS, ROUND_SECONDS = 300.0, 180.0
IDLE_LIMIT = 0.05

PLAIN, PAIR = "one plain Keras process", "two plain processes at once, which exchange nothing"
TWO, READ, FOUR = "Unisono, 2 workers", "Unisono, 2 workers, a callback reads each batch's logs", "Unisono, 4 workers"
STOCK = {
    "tensorflow": "MultiWorkerMirroredStrategy, legacy Keras, 2 workers",
    "jax": "keras.distribution.DataParallel, gloo, 2 processes",
    "torch": "DistributedDataParallel, gloo, plain loop, 2 processes",
}
TWO_OVER_ONE = {
    ("tensorflow", "MLP"): 1.40,
    ("tensorflow", "CNN"): 1.06,
    ("jax", "MLP"): 1.35,
    ("jax", "CNN"): 1.08,
    ("torch", "MLP"): 1.15,
    ("torch", "CNN"): 1.10,
}
STOCK_OVER_TWO = {("tensorflow", "MLP"): 6.0, ("tensorflow", "CNN"): 2.3, ("jax", "MLP"): 30.0}
READ_OVER_TWO = 1.10
FOUR_OVER_TWO = 2.5


@dataclass
class Times:
    """What the rounds of one variant gave.

    Args:
        steps: Milliseconds a step, by round.
        around: Milliseconds of each `fit` outside its epoch, by round.
        idle: Share of a core used by a process between the rounds, where they were long enough to tell.
        losses: Mean loss of the first short fit, then of each round.
        fault: Why there are no times.
    """

    steps: list[float] = field(default_factory=list)
    around: list[float] = field(default_factory=list)
    idle: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    fault: str = ""

    def over(self, other: Times) -> float:
        """Returns the median, over the rounds, of the ratio to another variant's time in the same round."""
        return median(a / b for a, b in zip(self.steps, other.steps, strict=True))


class Variant:
    """One team, and the orders it gets in each round.

    Args:
        rows: Name and whether a callback reads each batch's logs, for each timed epoch of a round.
        running: The context in which the team lives.
    """

    def __init__(self, rows: dict[str, bool], running: contextlib.AbstractContextManager[team.Team]) -> None:
        self.rows = rows
        self.times = {name: Times() for name in rows}
        self._most_steps: int | None = None
        self._running = running
        self._team: team.Team | None = None
        self._stack = contextlib.ExitStack()

    def start(self) -> None:
        self._team = self._stack.enter_context(self._running)
        with self._faults():
            loss = self._team.answers(START_SECONDS)[0]["loss"]
            for times in self.times.values():
                times.losses.append(loss)

    def round(self, steps: int, counts: bool) -> None:
        for name, batch_logs in self.rows.items():
            if self._team is None:
                return
            with self._faults():
                count = min(steps, self._most_steps or steps)
                self._team.order(steps=count, batch_logs=batch_logs)
                answers = self._team.answers(ROUND_SECONDS)
                times = self.times[name]
                times.losses.append(answers[0]["loss"])
                seconds = max(each["seconds"] for each in answers) / count
                if not counts:
                    self._most_steps = max(FEWEST_STEPS, int(EPOCH_SECONDS / seconds))
                else:
                    times.steps.append(seconds * 1e3)
                    times.around.append(max(each["around"] for each in answers) * 1e3)
                    times.idle += [each["idle"] for each in answers if each["idle"] is not None]

    def stop(self) -> None:
        self._stack.close()

    @contextlib.contextmanager
    def _faults(self) -> Iterator[None]:
        """A variant that breaks leaves the others in peace, and says why it has no times."""
        try:
            yield
        except team.TeamError as error:
            for times in self.times.values():
                times.fault = str(error)
            print(error, file=sys.stderr)
            self._team = None
            with contextlib.suppress(team.TeamError):
                self._stack.__exit__(type(error), error, error.__traceback__)


def measure(backend: str, model: str, steps: int, rounds: int) -> dict[str, Times]:
    """Runs the comparison for one backend and model.

    Args:
        backend: "tensorflow", "jax" or "torch".
        model: "MLP" or "CNN".
        steps: Steps of each epoch.
        rounds: Epochs of each variant that count; one before them does not.

    Returns:
        Times by the name of the variant.
    """
    script = "step_worker.py"
    spec = {"backend": backend, "model": model, "steps": steps, "batch": models.BATCH}
    plain, ours = {**spec, "kind": "plain"}, {**spec, "kind": "unisono"}
    variants = [
        Variant({PLAIN: False}, team.plain(script, plain)),
        Variant({PAIR: False}, team.plain(script, plain, 2)),
        Variant({TWO: False, READ: True}, team.workers(script, ours, 2)),
        Variant({FOUR: False}, team.workers(script, ours, 4)),
        Variant({STOCK[backend]: False}, team.plain(script, {**spec, "kind": f"stock {backend}"}, 2)),
    ]
    with contextlib.ExitStack() as stack:
        for variant in variants:
            stack.callback(variant.stop)
            variant.start()
        for number in range(rounds + 1):
            first = number % len(variants)
            for variant in [*variants[first:], *variants[:first]]:
                variant.round(steps, counts=number > 0)
    return {name: times for variant in variants for name, times in variant.times.items()}


def section(backend: str, model: str, steps: int, rounds: int) -> Section:
    """Returns the comparison for one backend and model, as a part of the results; arguments as for `measure`."""
    found = measure(backend, model, steps, rounds)
    rows, faults = [], []
    plain = found[PLAIN]
    for name, times in found.items():
        if times.fault:
            rows.append((name, "failed", "-", "-", "-", "-"))
            faults.append(f"{backend}, {model}, {name}: {times.fault}")
            continue
        rows.append(
            (
                name,
                f"{median(times.steps):.2f}",
                "-" if plain.fault else f"{times.over(plain):.2f}",
                f"{min(times.steps):.2f} - {max(times.steps):.2f}",
                f"{median(times.around):.0f}",
                f"{times.losses[0]:.3f} to {times.losses[-1]:.3f}",
            )
        )
        if not times.losses[-1] < times.losses[0]:
            faults.append(f"{backend}, {model}, {name}: the loss did not fall ({rows[-1][-1]}).")
        if times.idle and median(times.idle) > IDLE_LIMIT:
            faults.append(f"{backend}, {model}, {name}: used {median(times.idle):.0%} of a core while it should sleep.")
    head = ("", "ms a step", "to plain", "range", "ms of fit outside the epoch", "loss")
    return Section(
        title=f"Step: {model} on {backend}",
        text=table(head, rows),
        targets=tuple(targets(backend, model, found)),
        faults=tuple(faults),
        headline=(headline(backend, model, found),),
    )


def targets(backend: str, model: str, found: dict[str, Times]) -> list[Target]:
    """Returns what was to be reached for one backend and model.

    Args:
        backend: "tensorflow", "jax" or "torch".
        model: "MLP" or "CNN".
        found: Times by variant.
    """
    wanted = [
        (TWO, PLAIN, "two workers over one plain process", TWO_OVER_ONE[backend, model], True),
        (FOUR, TWO, "four workers on two cores over two", FOUR_OVER_TWO, True),
    ]
    if (backend, model) in STOCK_OVER_TWO:
        stock = STOCK[backend]
        wanted.append((stock, TWO, f"{stock.split(',')[0]} over two workers", STOCK_OVER_TWO[backend, model], False))
    if model == "CNN":
        wanted.append((READ, TWO, "logs of each batch over logs of each epoch", READ_OVER_TWO, True))
    return [
        Target(f"{backend}, {model}: {what}", found[a].over(found[b]), limit, at_most)
        for a, b, what, limit, at_most in wanted
        if not (found[a].fault or found[b].fault)
    ]


def headline(backend: str, model: str, found: dict[str, Times]) -> tuple[str, ...]:
    """Returns one line for the front page: backend, model, then times in ms with the ratio to the plain process."""
    plain = found[PLAIN]
    cells = [backend, model]
    for name in (PLAIN, TWO, STOCK[backend]):
        times = found[name]
        if times.fault or plain.fault:
            cells.append("failed")
        else:
            cells.append(f"{median(times.steps):.2f}" + ("" if name == PLAIN else f" ({times.over(plain):.2f} x)"))
    return tuple(cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backends", nargs="+", choices=BACKENDS, default=BACKENDS)
    parser.add_argument("--models", nargs="+", choices=models.MODELS, default=models.MODELS)
    parser.add_argument("--rounds", type=int, help=f"epochs of each variant that count; {ROUNDS} unless --quick")
    parser.add_argument("--quick", action="store_true", help="a few steps, to see that all works")
    options = parser.parse_args()
    for each in sections(options.quick, options.backends, options.models, options.rounds):
        print(render(each), end="\n\n", flush=True)


def sections(
    quick: bool,
    backends: Sequence[str] = BACKENDS,
    which: Sequence[str] = models.MODELS,
    rounds: int | None = None,
) -> Iterator[Section]:
    """Yields all comparisons, each as soon as it is made.

    Args:
        quick: Whether a few steps are enough.
        backends: Which backends.
        which: Which models.
        rounds: Epochs of each variant that count; None for the usual number.
    """
    steps = QUICK_STEPS if quick else STEPS
    rounds = rounds or (QUICK_ROUNDS if quick else ROUNDS)
    for backend in backends:
        for model in which:
            print(f"step: {backend}, {model} ...", file=sys.stderr, flush=True)
            yield section(backend, model, steps[model], rounds)


if __name__ == "__main__":
    main()
