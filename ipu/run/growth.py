"""Relative errors that remember the sum in which they grew.

A sum of numbers of different sign is smaller than they are, and their error is larger beside it.
Where most of its results are large its own error looks small; what depends on the small ones, as an
exponential of a distance, is wrong by all of it. The sum in which the error grew most is carried
with the error through what reads it, as far as more is inherited than born and the error stays of
its size.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ipu.run.births.verbs import ADDITIONS, base_of

__all__ = ["GROWS", "Growth", "carried", "growth_of"]

#: Times that a sum of two magnifies the error of its operands, at least, that is remembered: more
#: than the root of 2, which of numbers of one sign it cannot (triangle inequality), ASSUMED.
GROWS = 2.0
#: Times that an error is larger or smaller than the remembered sum's, at most: of others it has
#: other sources too, ASSUMED.
_ALIKE = 4.0


class Growth(NamedTuple):
    """The sum in which an error grew, how many times, and the error of its results."""

    layer: str
    direction: str
    operation: str
    line: str
    amplification: float
    error: float


class _GrownError(float):
    """A relative error with its growth."""

    __slots__ = ("growth",)
    growth: Growth


def growth_of(error: float) -> Growth | None:
    """Where a relative error grew, if it did.

    >>> growth_of(0.5) is None
    True
    """
    return error.growth if isinstance(error, _GrownError) else None


def carried(
    error: float, operands: float, times: float, key: tuple[str, str, str],
    line: Callable[[], str],
) -> float:
    """The error of a result, most of it inherited, with the growth of its operands or its own.

    operands    their largest error, which the operation `key` in this line magnified so many times.

    >>> of_sub = carried(0.4, 0.1, 4.0, ("net", "forward", "aten.sub"), lambda: "a.py:1")
    >>> growth_of(carried(0.8, of_sub, 2.0, ("net", "forward", "aten.exp"), str)).line
    'a.py:1'
    """
    growth = growth_of(operands)
    if growth and not growth.error / _ALIKE <= error <= growth.error * _ALIKE:
        growth = None
    if times > (growth.amplification if growth else GROWS) and base_of(key[2]) in ADDITIONS:
        growth = Growth(*key, line(), times, error)
    if growth is None:
        return error
    grown = _GrownError(error)
    grown.growth = growth
    return grown
