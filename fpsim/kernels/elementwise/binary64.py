"""Operations in binary64 by the processor's own arithmetic, with one NaN for all.

Of two NaNs a vector instruction passes on the one, the elements behind it perhaps the other; so
every NaN becomes the same.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from fpsim.kernels.compiling import INLINE, compiled
from fpsim.kernels.elementwise.special import ADD, DIVIDE, MULTIPLY, SQRT, SUBTRACT

__all__ = ["operate", "unify_nans"]


@njit(**INLINE)
def _unify(out):
    nans = 0
    for i in range(out.shape[0]):
        nans |= out[i] != out[i]
    if nans != 0:
        for i in range(out.shape[0]):
            if out[i] != out[i]:
                out[i] = np.nan


@njit(**INLINE)
def _combine(operation, x, y, out):
    n = out.shape[0]
    if operation == ADD:
        for i in range(n):
            out[i] = x[i] + y[i]
    elif operation == SUBTRACT:
        for i in range(n):
            out[i] = x[i] - y[i]
    elif operation == MULTIPLY:
        for i in range(n):
            out[i] = x[i] * y[i]
    elif operation == DIVIDE:
        for i in range(n):
            out[i] = x[i] / y[i]
    elif operation == SQRT:
        for i in range(n):
            out[i] = np.sqrt(x[i])
    else:
        for i in range(n):
            out[i] = x[i]


@compiled
def unify_nans(out):
    """Every NaN of a flat array becomes the same."""
    _unify(out)


#: Elements of a block, which stays in the first-level cache until its NaNs were looked for.
_BLOCK = 1024


@njit(**INLINE)
def _repeated(x, n):
    """A block of the only element of an operand, where the result has more; else empty."""
    room = np.empty(_BLOCK if x.shape[0] == 1 and n > 1 else 0)
    room[:] = x[0]
    return room


@njit(**INLINE)
def _operand(x, repeated, start, end):
    return repeated[: end - start] if repeated.shape[0] else x[start:end]


@compiled
def operate(operation, x, y, out):
    """out = an operation of x and y, flat arrays of binary64; any other one copies x.

    An operand of one element goes with every one of the other; a root is that of x.
    """
    n = out.shape[0]
    all_x, all_y = _repeated(x, n), _repeated(y, n)
    for start in range(0, n, _BLOCK):
        end = min(start + _BLOCK, n)
        block = out[start:end]
        _combine(
            operation, _operand(x, all_x, start, end), _operand(y, all_y, start, end), block)
        _unify(block)
