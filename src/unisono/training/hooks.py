"""Functions set over the methods of one object, or for a while over those of a class, and taken back."""

from __future__ import annotations

import contextlib
import functools
import weakref
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


def is_own(kind: type, base: type, name: str) -> bool:
    """Returns whether a class, or one between it and `base`, has a method of its own where `base` has one, too."""
    return owner(kind, name) not in base.__mro__


@contextlib.contextmanager
def set_below(base: type, target: Any, name: str, function: Callable[..., Any]) -> Iterator[None]:
    """Sets a function, for a while and for one object, below the method that its class has made of one of `base`.

    The method finds it where it calls that of `base`, for example by `super()`.
    """
    own = getattr(base, name)

    @functools.wraps(own)
    def below(each: Any, *args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs) if each is target else own(each, *args, **kwargs)

    below._unisono_own = own  # type: ignore[attr-defined]
    with set_over(owner(base, name), name, below):
        yield


def over(base: type, target: Any, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns what to set over a method of one object so that `function` runs in place of the one of `base`.

    Args:
        base: The class whose method is meant.
        target: The object.
        name: Of the method.
        function: Takes the arguments of that of `base`.

    Returns:
        `function`; where the object's class has a method of its own, with parameters of its own, that method, which
        finds `function` where it calls that of `base`.
    """
    if not is_own(type(target), base, name):
        return function
    seen = weakref.ref(target)

    def own(*args: Any, **kwargs: Any) -> Any:
        each = seen()
        with set_below(base, each, name, function):
            return method(each, name)(*args, **kwargs)

    return own


def base_method(base: type, target: Any, name: str) -> Callable[..., Any]:
    """Returns the method that `base` defines, bound to an object, whatever `set_below` has set in its place."""
    function = getattr(base, name)
    while hasattr(function, "_unisono_own"):
        function = function._unisono_own
    return function.__get__(target)  # type: ignore[no-any-return]


@contextlib.contextmanager
def set_over(kind: type, name: str, function: Any) -> Iterator[None]:
    """Sets an attribute of a class for a while."""
    own = vars(kind)[name]
    setattr(kind, name, function)
    try:
        yield
    finally:
        setattr(kind, name, own)
