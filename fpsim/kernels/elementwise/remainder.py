"""Remainders by long division of significands: exact, so nothing is rounded.

Source    IEEE 754-2019 §5.3.1 (remainder); ISO C §7.12.10.1 (fmod).
"""

from __future__ import annotations

import numpy as np
from numba import njit

from fpsim.kernels.compiling import INLINE, compiled

__all__ = ["remainders"]

_FRACTION = (1 << 52) - 1
_HIDDEN = 1 << 52


@njit(**INLINE)
def _modulo(significand, divisor, digits):
    """significand * 2**digits modulo divisor, and whether the whole quotient is odd."""
    quotient = significand // divisor
    r = significand - quotient * divisor
    while digits > 0:
        step = min(digits, 10)  # 53 digits and 10 more stay inside 64 bits
        r <<= np.uint64(step)
        quotient = r // divisor
        r -= quotient * divisor
        digits -= step
    return r, quotient & np.uint64(1)


@compiled
def remainders(x_bits, y_bits, out_bits, nearest):
    """Remainders of finite binary64 x and nonzero y that are normal there or zero, as bits.

    `nearest` rounds the quotient to nearest even (IEEE), else toward zero (C).
    """
    one = np.uint64(1)
    for i in range(out_bits.shape[0]):
        sign = x_bits[i] >> np.uint64(63)
        a = x_bits[i] & np.uint64(0x7FFFFFFFFFFFFFFF)
        b = y_bits[i] & np.uint64(0x7FFFFFFFFFFFFFFF)
        exponent = np.int64(a >> np.uint64(52))
        digits = exponent - np.int64(b >> np.uint64(52))
        if a == 0 or digits < -1:
            out_bits[i] = x_bits[i]
            continue
        r = (a & np.uint64(_FRACTION)) | np.uint64(_HIDDEN)
        divisor = (b & np.uint64(_FRACTION)) | np.uint64(_HIDDEN)
        odd = np.uint64(0)
        if digits >= 0:
            r, odd = _modulo(r, divisor, digits)
            exponent -= digits
        else:
            divisor <<= one
            if not nearest:
                out_bits[i] = x_bits[i]
                continue
        twice = r << one
        if nearest and (twice > divisor or (twice == divisor and odd)):
            r = divisor - r
            sign ^= one
        if r == 0:
            out_bits[i] = x_bits[i] & np.uint64(0x8000000000000000)
            continue
        while r < np.uint64(_HIDDEN):
            r <<= one
            exponent -= 1
        bits = (np.uint64(exponent) << np.uint64(52)) | (r & np.uint64(_FRACTION))
        out_bits[i] = bits | sign << np.uint64(63)
