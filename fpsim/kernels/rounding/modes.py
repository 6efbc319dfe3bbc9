"""Rounding modes as numbers, the way kernels take them.

A deterministic mode says of four cases (even or odd m, positive or negative) which tails w take the
magnitude from m to m + 1. These are four digits of base 4, so kernels know every mode that can be
written so, whatever its name. A mode is a constant to the compiler, never tested at run time.

Source    docs/semantics.md §1.
"""

from __future__ import annotations

__all__ = [
    "ABOVE_HALF", "ALWAYS", "FROM_HALF", "NEVER", "RAZ", "RNA", "RNE", "RNZ", "RTN", "RTO", "RTP",
    "RTZ", "SR", "SR_EQUAL", "deterministic", "has_minus_zero", "is_signed", "is_stochastic",
    "steps_of",
]

#: For which tails w the magnitude goes up: none, w > 1/2, w >= 1/2, w > 0.
NEVER, ABOVE_HALF, FROM_HALF, ALWAYS = range(4)

_MINUS_ZERO, _STOCHASTIC = 1 << 8, 1 << 9


def deterministic(
    positive: tuple[int, int], negative: tuple[int, int] | None = None, minus_zero: bool = False
) -> int:
    """The number of a mode: its steps for even and odd m, of positive and of negative numbers.

    minus_zero: an exact zero sum of numbers of both signs is -0.
    """
    steps = (*positive, *(negative or positive))
    return sum(step << 2 * i for i, step in enumerate(steps)) + minus_zero * _MINUS_ZERO


RNE = deterministic((ABOVE_HALF, FROM_HALF))
RNA = deterministic((FROM_HALF, FROM_HALF))
RNZ = deterministic((ABOVE_HALF, ABOVE_HALF))
RTZ = deterministic((NEVER, NEVER))
RTP = deterministic((ALWAYS, ALWAYS), (NEVER, NEVER))
RTN = deterministic((NEVER, NEVER), (ALWAYS, ALWAYS), minus_zero=True)
RAZ = deterministic((ALWAYS, ALWAYS))
RTO = deterministic((ALWAYS, NEVER))
#: Stochastic modes are numbered from SR on.
SR, SR_EQUAL = _STOCHASTIC, _STOCHASTIC + 1


def is_stochastic(mode: int) -> bool:
    """Whether the mode takes random bits."""
    return mode >= _STOCHASTIC


def steps_of(mode: int, negative: bool) -> tuple[int, int]:
    """The steps of a deterministic mode for even and odd m."""
    digits = mode >> (4 if negative else 0)
    return digits & 3, digits >> 2 & 3


def is_signed(mode: int) -> bool:
    """Whether the mode treats positive and negative numbers differently."""
    return not is_stochastic(mode) and steps_of(mode, False) != steps_of(mode, True)


def has_minus_zero(mode: int) -> bool:
    """Whether an exact zero sum of numbers of both signs is -0."""
    return bool(mode & _MINUS_ZERO)
