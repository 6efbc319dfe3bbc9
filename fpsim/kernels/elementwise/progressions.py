"""Numbers in equal steps, each rounded once to binary64, from a running sum in limbs.

The running number is (limbs + rest / divisor) 2**lowest, limbs of 32 bits in two's complement. A
step adds limbs and a rest, so no number stems from the rounding of another one.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from fpsim.kernels.compiling import INLINE, compiled

__all__ = ["equal_steps"]

#: Digits that are looked at: those of binary64, one below, and one for all the others.
_DIGITS = 55


@njit(**INLINE)
def _add(limbs, step, carry):
    """limbs += step + carry, in place."""
    for i in range(limbs.shape[0]):
        total = limbs[i] + step[i] + carry
        limbs[i] = total & 0xFFFFFFFF
        carry = total >> 32


@njit(**INLINE)
def _put_size(limbs, size, negative, rest):
    """size = |number| without its rest; below zero that is the complement, or one more."""
    carry = 1 if negative and rest == 0 else 0
    for i in range(limbs.shape[0]):
        total = (limbs[i] ^ 0xFFFFFFFF if negative else limbs[i]) + carry
        size[i] = total & 0xFFFFFFFF
        carry = total >> 32


@njit(**INLINE)
def _digits(size, first, sticky):
    """The 55 digits from bit `first` on, the last one set if `sticky` or any below is."""
    value = np.int64(0)
    for i in range(size.shape[0]):
        shift = 32 * i - first
        if shift >= 0:
            value |= size[i] << shift
        elif shift > -32:
            value |= size[i] >> -shift
            sticky = sticky or size[i] & ((np.int64(1) << -shift) - 1) != 0
        else:
            sticky = sticky or size[i] != 0
    return value | 1 if sticky else value


@njit(**INLINE)
def _rounded(size, sticky, lowest, nearest):
    """binary64 of a size, to nearest even or to odd; to odd stays between 2**-1000 and the largest
    number."""
    top = size.shape[0] - 1
    while top >= 0 and size[top] == 0:
        top -= 1
    if top < 0:
        return 0.0
    bit = 32 * top
    while size[top] >> (bit - 32 * top):
        bit += 1
    first = bit - _DIGITS
    if nearest:
        first = max(first, -1076 - lowest)
    elif bit + lowest > 1024:
        return 1.7976931348623157e308
    elif bit + lowest < -999:
        return 2.0**-1000
    value = _digits(size, first, sticky)
    significand, below = value >> 2, value & 3
    if nearest:
        significand += below == 3 or (below == 2 and significand & 1)
    elif below:
        significand |= 1
    return math.ldexp(np.float64(significand), first + 2 + lowest)


@compiled
def equal_steps(limbs, step, rest, rest_step, divisor, lowest, nearest, out):
    """out (n,) of binary64: the number in limbs, which is used up, and those after it.

    A number with a rest must have 54 digits before it.

    Rounding  each once, to nearest even or to odd.
    """
    size = np.empty_like(limbs)
    last = limbs.shape[0] - 1
    for k in range(out.shape[0]):
        negative = limbs[last] >> 31 != 0
        _put_size(limbs, size, negative, rest)
        value = _rounded(size, rest != 0, lowest, nearest)
        out[k] = -value if negative else value
        rest += rest_step
        carry = np.int64(rest >= divisor)
        rest -= divisor * carry
        _add(limbs, step, carry)
