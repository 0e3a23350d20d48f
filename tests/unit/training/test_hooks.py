"""Functions over the methods of one object."""

from __future__ import annotations

import keras
import pytest

from unisono.training.hooks import Hooks, method

# Keras hands its variables to NumPy 2 in an old way.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


class Thing:
    def say(self, what: str = "own") -> str:
        return f"{what} of {self.name}"

    name = "thing"


class Kept(Thing):
    def __setattr__(self, name: str, value: object) -> None:
        raise AssertionError("attributes are tracked here")


def test_only_one_object_is_touched_and_only_for_a_while():
    one, other = Thing(), Thing()
    hooks = Hooks(one)
    hooks.set("say", lambda: "hooked " + method(one, "say")())
    assert (one.say(), other.say()) == ("hooked own of thing", "own of thing")
    assert method(one, "say")("what") == "what of thing"
    hooks.remove()
    hooks.remove()
    assert one.say() == "own of thing" and not vars(one)


def test_tracking_of_attributes_is_passed_by():
    one = Kept()
    hooks = Hooks(one)
    hooks.set("say", lambda: "hooked")
    assert one.say() == "hooked"
    hooks.remove()


def test_the_method_of_a_subclass_is_found():
    class Louder(Thing):
        def say(self, what: str = "own") -> str:
            return super().say(what).upper()

    one = Louder()
    Hooks(one).set("say", lambda: "hooked")
    assert method(one, "say")() == "OWN OF THING"


def test_a_keras_model_neither_counts_nor_saves_its_hooks(tmp_path):
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    layers, weights, config = list(model.layers), len(model.weights), model.get_config()
    hooks = Hooks(model)
    hooks.set("fit", lambda: "hooked")
    hooks.set("notes", lambda: [keras.layers.Dense(3)])
    assert (model.layers, len(model.weights), model.get_config()) == (layers, weights, config)
    model.save(tmp_path / "m.keras")
    assert keras.models.load_model(tmp_path / "m.keras").fit.__name__ == "fit"
    hooks.remove()
    assert model.fit.__func__.__name__ == "fit" and not hasattr(model, "notes")
