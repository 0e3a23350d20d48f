"""Functions set over the methods of one object, or for a while over those of a class, and taken back."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any


class Hooks:
    """The functions that stand in for methods of one object.

    They are put into the object's own dictionary, past any tracking that its class does of attributes, so that
    they are neither saved nor counted as layers.

    Args:
        target: The object.
    """

    def __init__(self, target: Any) -> None:
        self._target = target
        self._names: list[str] = []

    def set(self, name: str, function: Callable[..., Any]) -> None:
        """Lets `target.name` be `function` instead of the method of the class."""
        self._target.__dict__[name] = function
        self._names.append(name)

    def remove(self) -> None:
        """Gives the object its own methods back."""
        for name in self._names:
            self._target.__dict__.pop(name, None)
        self._names = []


def method(target: Any, name: str) -> Callable[..., Any]:
    """Returns the method that the object's class defines, whatever stands over it."""
    return getattr(type(target), name).__get__(target)  # type: ignore[no-any-return]


def owner(kind: type, name: str) -> type[Any]:
    """Returns the class that defines a method, `kind` itself or one that it is derived from.

    Keras compares the methods of its classes with those it defines, and subclasses may go past `kind`.
    """
    found: type[Any] = next(each for each in kind.__mro__ if name in vars(each))
    return found


@contextlib.contextmanager
def set_over(kind: type, name: str, function: Any) -> Iterator[None]:
    """Sets an attribute of a class for a while."""
    own = vars(kind)[name]
    setattr(kind, name, function)
    try:
        yield
    finally:
        setattr(kind, name, own)
