"""Operations in binary64 by the processor's own arithmetic, with one NaN for all.

Of two NaNs a vector instruction passes on the one, the elements behind it perhaps the other; so
every NaN becomes the same.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from fpsim.kernels.compiling import INLINE, compiled
from fpsim.kernels.elementwise.special import (
    ADD,
    DIVIDE,
    MULTIPLY,
    OPERATIONS,
    SQRT,
    SUBTRACT,
)

__all__ = [
    "SQUARED_DIFFERENCE", "combine", "operand", "operate", "repeated", "unify", "unify_nans",
]

#: Beside the operations of arithmetic.
SQUARED_DIFFERENCE = len(OPERATIONS)


@njit(**INLINE)
def unify(out):
    """Every NaN of a flat array becomes the same."""
    nans = 0
    for i in range(out.shape[0]):
        nans |= out[i] != out[i]
    if nans != 0:
        for i in range(out.shape[0]):
            if out[i] != out[i]:
                out[i] = np.nan


@njit(**INLINE)
def combine(operation, x, y, out):
    """out = an operation in binary64 of numbers of any kind; any other one copies x."""
    n = out.shape[0]
    if operation == ADD:
        for i in range(n):
            out[i] = np.float64(x[i]) + np.float64(y[i])
    elif operation == SUBTRACT:
        for i in range(n):
            out[i] = np.float64(x[i]) - np.float64(y[i])
    elif operation == MULTIPLY:
        for i in range(n):
            out[i] = np.float64(x[i]) * np.float64(y[i])
    elif operation == DIVIDE:
        for i in range(n):
            out[i] = np.float64(x[i]) / np.float64(y[i])
    elif operation == SQUARED_DIFFERENCE:
        for i in range(n):
            difference = np.float64(x[i]) - np.float64(y[i])
            out[i] = difference * difference
    elif operation == SQRT:
        for i in range(n):
            out[i] = np.sqrt(np.float64(x[i]))
    else:
        for i in range(n):
            out[i] = x[i]


@njit(**INLINE)
def repeated(x, n):
    """n times the only element of an operand; empty for one that has others."""
    room = np.empty(n if x.shape[0] == 1 else 0, x.dtype)
    room[:] = x[0]
    return room


@njit(**INLINE)
def operand(x, only, start, end):
    """Elements of an operand, or of its only one (`repeated`)."""
    return only[: end - start] if only.shape[0] else x[start:end]


@compiled
def unify_nans(out):
    """`unify`."""
    unify(out)


#: Elements of a block, which stays in the first-level cache until its NaNs were looked for.
_BLOCK = 1024


@compiled
def operate(operation, x, y, out):
    """out = an operation of x and y, flat arrays of binary64; any other one copies x.

    An operand of one element goes with every one of the other; a root is that of x.
    """
    n = out.shape[0]
    few = min(n, _BLOCK)
    only_x, only_y = repeated(x, few), repeated(y, few)
    for start in range(0, n, _BLOCK):
        end = min(start + _BLOCK, n)
        block = out[start:end]
        combine(operation, operand(x, only_x, start, end), operand(y, only_y, start, end), block)
        unify(block)
