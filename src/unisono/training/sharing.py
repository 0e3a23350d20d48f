"""One state before the first exchange of a user's own loop: the chief's, for all models and optimizers of the scope."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np

from unisono import log
from unisono.backends.base import Backend
from unisono.collectives.base import Collectives
from unisono.collectives.objects import all_gather_object
from unisono.training import state
from unisono.training.keras_private import flat_layers


class StateSharing:
    """What was made in the scope and may differ between workers still.

    Whether there is anything to do is agreed at the begin of each step, by one small all-reduce.

    Args:
        channel: For small reductions on the main thread.
        names: Name of each worker, for messages.
        backend: The framework under Keras.
        from_chief: Returns the chief's value on all workers.
    """

    def __init__(
        self, channel: Collectives, names: Sequence[str], backend: Backend, from_chief: Callable[[Any], Any]
    ) -> None:
        self._channel = channel
        self._names = names
        self._backend = backend
        self._from_chief = from_chief
        self._made = 0
        self._seen = 0
        self._pending: dict[int, weakref.ref[Any]] = {}
        self._shared: dict[int, int] = {}
        self._random = False

    def add(self, thing: Any) -> None:
        """Takes note of a model or an optimizer."""
        self._made += 1
        self._pending[self._made] = weakref.ref(thing)

    def share(self, *, inside: bool = False) -> None:
        """Gives all workers the chief's state of what is new since the last call; a collective call.

        Args:
            inside: Whether a step is being traced or going on. Then only some workers may come here, those that trace
                it, so nobody is asked: what is new is what the script has made, alike on all.
        """
        living = {
            number: thing
            for number, ref in self._pending.items()
            if (thing := ref()) is not None and state.is_made(thing)
        }
        news = self._seen != self._made or any(self._grown(number, thing) for number, thing in living.items())
        # Asked each time, as Python frees what a script has dropped at other times on each worker.
        if not (news if inside else self._channel.all_reduce(np.array([news], np.int64))[0]):
            return
        with self._backend.eagerly():
            # A variable that a graph has made has no value before that graph runs.
            ready = [n for n, thing in living.items() if all(map(self._backend.is_initialized, _variables(thing)))]
            everyone = all_gather_object(self._channel, (list(living), ready))
            alive, known = (set.intersection(*map(set, lists)) for lists in zip(*everyone, strict=True))
            differed = [self._broadcast(living[number]) for number in sorted(known)]
            if not self._random:
                self._random = True
                state.spread_global_seed(self._channel.rank, self._from_chief)
                self._backend.spread_randomness(self._channel.rank, self._from_chief)
        self._seen = self._made
        self._shared.update({number: len(_variables(living[number])) for number in known})
        unmade = {n: ref for n, ref in self._pending.items() if n not in living and ref() is not None}
        self._pending = unmade | {
            n: weakref.ref(thing) for n, thing in living.items() if n in alive and not self._complete(n, thing)
        }
        if any(differed) and self._backend.apply_method == "stateless_apply":
            log.once(
                "taken before",
                "the workers had different initial weights; the variables hold the chief's now, but values that the "
                "script has taken out of them before do not. Pass those through unisono.broadcast.",
                logging.WARNING,
            )

    def created(self, variable: Any) -> None:
        """Gives all workers the chief's value of a variable that a step has just made; a collective call."""
        with self._backend.eagerly():
            if self._backend.is_initialized(variable):
                (value,) = state.from_chief(self._channel, [variable])
                if self._channel.rank:
                    variable.assign(value)

    def broadcast(self, tensors: Sequence[Any]) -> list[np.ndarray]:
        """Returns the chief's values of tensors; a collective call."""
        return state.from_chief(self._channel, tensors)

    def _grown(self, number: int, thing: Any) -> bool:
        return len(_variables(thing)) != self._shared.get(number, 0)

    def _complete(self, number: int, thing: Any) -> bool:
        return number in self._shared and not self._grown(number, thing) and _is_built(thing)

    def _broadcast(self, thing: Any) -> bool:
        if isinstance(thing, keras.Model):
            return state.broadcast_state(thing, self._channel, self._names)
        return state.broadcast_variables(thing.variables, [], self._channel, self._names)


def _variables(thing: Any) -> list[Any]:
    return state.shared_variables(thing) if isinstance(thing, keras.Model) else list(thing.variables)


def _is_built(thing: Any) -> bool:
    if not isinstance(thing, keras.Model):
        return bool(thing.built)
    return all(layer.built for layer in flat_layers(thing)) and all(o.built for o in state.optimizers(thing))
