"""Residuals in pairs of binary64: what a product or a sum has lost is summed beside it.

Source    T. Ogita, S. M. Rump, S. Oishi, Accurate sum and dot product, SIAM J. Sci. Comput. 26
          (2005), Dot2; T. J. Dekker 1971 (the error of a product), D. E. Knuth 1969 (of a sum).
"""

from __future__ import annotations

from numba import njit

from fpsim.kernels.compiling import INLINE, compiled

__all__ = ["residuals"]

#: 2**27 + 1 halves a significand of 53 digits.
_SPLITTER = 134217729.0


@njit(**INLINE)
def _halves(x):
    product = _SPLITTER * x
    high = product - (product - x)
    return high, x - high


@njit(**INLINE)
def _product(x, y):
    """The product, and what it has lost."""
    product = x * y
    a, b = _halves(x)
    c, d = _halves(y)
    return product, b * d - (((product - a * c) - b * c) - a * d)


@njit(**INLINE)
def _sum(x, y):
    """The sum, and what it has lost."""
    total = x + y
    back = total - x
    return total, (x - (total - back)) + (y - back)


@compiled
def residuals(a, x, b, out):
    """out[i] = b[i] - a[i] x, in pairs, rounded to binary64 at the end."""
    for i in range(a.shape[0]):
        total, lost = b[i], 0.0
        for j in range(a.shape[1]):
            term, low = _product(-a[i, j], x[j])
            total, missed = _sum(total, term)
            lost += low + missed
        out[i] = total + lost
