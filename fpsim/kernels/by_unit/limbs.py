"""Sums without rounding: limbs of 32 binary digits, each in an integer of 64.

Source    docs/semantics.md §5.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from fpsim.kernels.compiling import INLINE

__all__ = ["LIMBS", "LOW", "put", "take"]

#: Limbs of an uncut sum: 2**LOW is below every product of two binary32 numbers.
LIMBS, LOW = 30, -416


@njit(**INLINE)
def put(limbs, reach, value, lsb):
    """limbs += value * 2**lsb, |value| < 2**60; returns the lowest and the highest limb in use."""
    magnitude = abs(value)
    bit = lsb - LOW
    while magnitude:
        # What stands in one limb alone: a limb holds 2**31 of these.
        limb, offset = bit >> 5, bit & 31
        part = (magnitude << offset) & 0xFFFFFFFF
        limbs[limb] += part if value > 0 else -part
        reach = (min(reach[0], limb), max(reach[1], limb))
        magnitude >>= 32 - offset
        bit += 32 - offset
    return reach


@njit(**INLINE)
def _carry(limbs, reach):
    """Limbs to 32 digits each, the last one with the sign."""
    for i in range(reach[0], reach[1] + 2):
        limbs[i + 1] += limbs[i] >> 32
        limbs[i] &= 0xFFFFFFFF


@njit(**INLINE)
def take(limbs, reach):
    """Empty the limbs: sign, leading digits (odd last digit for the rest), its exponent."""
    _carry(limbs, reach)
    last = reach[1] + 2
    negative = limbs[last] < 0
    if negative:
        for i in range(reach[0], last + 1):
            limbs[i] = -limbs[i]
        _carry(limbs, (reach[0], last - 2))
    top = last
    while top > reach[0] and limbs[top] == 0:
        top -= 1
    m, limb = limbs[top], top
    if top > reach[0]:
        m = (limbs[top] << 29) | (limbs[top - 1] >> 3)
        rest = limbs[top - 1] & 7
        for i in range(reach[0], top - 1):
            rest |= limbs[i]
        m |= np.int64(rest != 0)
        q = LOW + 32 * (limb - 1) + 3
    else:
        q = LOW + 32 * limb
    for i in range(reach[0], last + 1):
        limbs[i] = 0
    return negative, m, np.int64(q)
