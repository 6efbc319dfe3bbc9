"""An attribute, or a context variable, that has another value inside a block.

Each operation of a training enters several such blocks; a class takes a third of the time that a
generator does.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, Generic, TypeVar

__all__ = ["Assigned", "Bound"]

T = TypeVar("T")


class Assigned:
    """The attribute `name` of the owner is `value` inside, and what it was afterwards.

    >>> class Clock:
    ...     first = 0
    >>> with Assigned(Clock, "first", 3):
    ...     Clock.first
    3
    >>> Clock.first
    0
    """

    __slots__ = ("_before", "_name", "_owner", "_value")

    def __init__(self, owner: Any, name: str, value: Any) -> None:
        self._owner, self._name, self._value = owner, name, value

    def __enter__(self) -> None:
        self._before = getattr(self._owner, self._name)
        setattr(self._owner, self._name, self._value)

    def __exit__(self, *_: object) -> None:
        setattr(self._owner, self._name, self._before)


class Bound(Generic[T]):
    """The context variable has this value inside, and what it had afterwards.

    >>> depth = ContextVar("depth", default=0)
    >>> with Bound(depth, 1) as value:
    ...     depth.get(), value
    (1, 1)
    >>> depth.get()
    0
    """

    __slots__ = ("_token", "_value", "_variable")

    def __init__(self, variable: ContextVar[Any], value: T) -> None:
        self._variable, self._value = variable, value

    def __enter__(self) -> T:
        self._token = self._variable.set(self._value)
        return self._value

    def __exit__(self, *_: object) -> None:
        self._variable.reset(self._token)
