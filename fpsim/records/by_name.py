"""Enumerations whose members are found by their names, as programs and command lines write them."""

from __future__ import annotations

from enum import Enum
from typing import Self

__all__ = ["EnumByName"]


class EnumByName(Enum):
    """An enumeration with `parse`.

    >>> Colour = EnumByName("Colour", ["RED", "DARK_RED"])
    >>> Colour.parse("Dark_red").name
    'DARK_RED'
    """

    @classmethod
    def parse(cls, value: object, /) -> Self:
        """A member, or the one of that name, in any case.

        Raises    ValueError for anything else.
        """
        if isinstance(value, cls):
            return value
        if isinstance(value, str) and value.upper() in cls.__members__:
            return cls[value.upper()]
        raise ValueError(cls._refusal(value))

    @classmethod
    def _refusal(cls, value: object) -> str:
        """What to say about a value that is no member."""
        return f"Cannot parse {value!r} as one of {cls.__name__}; use {', '.join(cls.__members__)}"
