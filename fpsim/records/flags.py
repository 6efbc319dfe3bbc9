"""The five exceptions of IEEE 754, as sticky flags, and the error a trap raises.

Source    IEEE 754-2019 §7. The numeric values are those of SoftFloat and TestFloat, so that a
          flag byte in a vector file is a `Flags`.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["FloatingPointTrap", "Flags", "as_integer", "raised_in"]


class Flags(enum.IntFlag):
    """Exceptions of an operation, or the sticky sum of many.

    >>> Flags.OVERFLOW | Flags.INEXACT
    <Flags.INEXACT|OVERFLOW: 5>
    """

    NONE = 0
    INEXACT = 1
    UNDERFLOW = 2
    OVERFLOW = 4
    DIVBYZERO = 8
    INVALID = 16

    @property
    def names(self) -> list[str]:
        """Names of the flags that are set, most severe first."""
        return [flag.name for flag in reversed(Flags) if flag in self and flag.name]


def raised_in(times: Sequence[int]) -> int:
    """The flags that were raised at all, by how often each was, in the order of their bits.

    >>> Flags(raised_in([3, 0, 1]))
    <Flags.INEXACT|OVERFLOW: 5>
    """
    return sum([(n > 0) << f for f, n in enumerate(times)])


def as_integer(name: str, flags: int) -> int:
    """Flags as a plain integer, checked.

    >>> as_integer("traps", Flags.INVALID)
    16
    """
    if isinstance(flags, bool) or not isinstance(flags, (int, np.integer)) or flags >> 5:
        raise TypeError(
            f"{name}={flags!r} is not a Flags; join members, as in Flags.INVALID | Flags.OVERFLOW"
        )
    return int(flags)


class FloatingPointTrap(FloatingPointError):  # noqa: N818  (named as decimal names its traps)
    """A simulated exception whose trap is armed; nothing of the operation was published.

    Attributes    operation, flags (raised by the operation), index (C order, of the first guilty
                  element), operands (its values; of a matrix product its
                  row and column), dump (the status register as text).

    >>> import fpsim as fp
    >>> half = fp.Context("binary16", traps=fp.Flags.OVERFLOW)
    >>> try:
    ...     half.array([1.0, 60000.0]) * 2
    ... except fp.FloatingPointTrap as trap:
    ...     print(trap.operation, trap.flags.names, trap.index, trap.operands)
    multiply ['OVERFLOW', 'INEXACT'] (1,) (60000.0, 2.0)
    """

    __module__ = "fpsim"  # the name under which users catch it, in tracebacks too

    def __init__(
        self,
        operation: str,
        flags: Flags,
        index: tuple[int, ...],
        operands: Sequence[float | NDArray[Any]],
        dump: str,
    ) -> None:
        self.operation = operation
        self.flags = flags
        self.index = index
        self.operands = tuple(operands)
        self.dump = dump
        names = "|".join(flags.names)
        values = ", ".join(map(_shown, self.operands))
        super().__init__(f"{operation} raised {names} at {index}: ({values})\n{dump}")

    def __reduce__(self) -> tuple[Any, ...]:
        """What makes it again in another process; an exception's own would give its text alone."""
        return type(self), (self.operation, self.flags, self.index, self.operands, self.dump)


def _shown(operand: float | NDArray[Any]) -> str:
    with np.errstate(invalid="ignore"):  # signalling NaNs
        if np.ndim(operand) == 0:
            return repr(float(operand))
        return np.array2string(np.asarray(operand, np.float64), threshold=8, separator=", ")
