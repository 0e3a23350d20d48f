"""What must be alike on all workers before a loop begins, as text, so that a difference can be shown to the user.

Numbers are rounded: different machines may compute the same setting with another last digit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras

from unisono.training.keras_private import learning_rate_schedule
from unisono.training.state import optimizers

_SETTINGS = {
    "fit": (
        *("batch_size", "epochs", "initial_epoch", "steps_per_epoch", "shuffle", "class_weight"),
        *("validation_split", "validation_steps", "validation_batch_size", "validation_freq"),
    ),
    "evaluate": ("batch_size", "steps"),
    "predict": ("batch_size", "steps"),
}
_DATA = ("y", "sample_weight", "validation_data")
_NO_SETTINGS = ("name", "built")
_PLAIN = (bool, int, float, str, type(None))


def of_call(name: str, arguments: Mapping[str, Any]) -> dict[str, str]:
    """Returns what the arguments of a loop have in common with those of other workers.

    Args:
        name: "fit", "evaluate" or "predict".
        arguments: By name, as far as the user gave them.

    Returns:
        Text by name of the argument; of data, only whether it was given.
    """
    said = {key: _text(arguments[key]) for key in _SETTINGS[name] if arguments.get(key) is not None}
    return said | {key: "given" for key in _DATA if arguments.get(key) is not None}


def of_training(model: Any) -> dict[str, str]:
    """Returns the settings of a compiled model that decide how it trains.

    Args:
        model: The model. Of its optimizers only Keras's own are looked at; a learning rate that is a plain number is
            left out, as all workers are given the chief's.

    Returns:
        Text by name, e.g. "optimizer.momentum".
    """
    said = {name: str(getattr(model, name)) for name in ("run_eagerly", "steps_per_execution")}
    for number, optimizer in enumerate(optimizers(model)):
        said.update(_settings("optimizer" if number == 0 else f"optimizer {number}", optimizer))
    return said


def _settings(title: str, thing: Any) -> dict[str, str]:
    # Not `get_config`, which loads TensorFlow on other backends where there is a schedule.
    if not _is_stock(thing):
        return {}
    found = {title: type(thing).__name__}
    for key, value in vars(thing).items():
        if isinstance(value, keras.optimizers.Optimizer):
            found.update(_settings(f"{title}.{key}", value))
        elif not key.startswith("_") and key not in _NO_SETTINGS and _is_plain(value):
            found[f"{title}.{key}"] = _text(value)
    if isinstance(thing, keras.optimizers.Optimizer):
        schedule = learning_rate_schedule(thing)
        found.update({} if schedule is None else _settings(f"{title}.learning_rate", schedule))
    return found


def _is_plain(value: Any) -> bool:
    # Lists of an optimizer hold its variables; those of a schedule, numbers.
    return all(isinstance(each, _PLAIN) for each in (value if isinstance(value, list | tuple) else [value]))


def _is_stock(thing: Any) -> bool:
    return type(thing).__module__.partition(".")[0] == "keras"


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(sorted(f"{_text(k)}: {_text(v)}" for k, v in value.items())) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_text, value)) + "]"
    if isinstance(value, bool | str | int) or value is None:
        return str(value)
    if keras.ops.is_tensor(value) or hasattr(value, "__float__"):
        return f"{float(value):.6g}"
    return type(value).__name__
