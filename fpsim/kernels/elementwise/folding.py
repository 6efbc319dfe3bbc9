"""Sums and products so far, and into rows, in index order by the processor's own binary32.

Each step is an operation of two binary32 numbers, which the processor rounds under the status that
the caller gives (see `native`). A NaN is made canonical after each of them.

Source    docs/semantics.md §6 (orders).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numba import njit

from fpsim.kernels.compiling import INLINE, compiled
from fpsim.kernels.elementwise.special import ADD
from fpsim.kernels.rounding.direction import raised, set_modes

__all__ = ["folding_kernel", "running_kernel"]

#: Below so many columns each is one chain; from there on rows are combined, column by column.
_CHAINS = 8


@njit(**INLINE)
def _step(is_sum, x, y, nan, has_nan):
    """One operation: the result, and whether it is a NaN, or one was before."""
    result = x + y if is_sum else x * y
    is_nan = result != result
    return nan if is_nan else result, has_nan | is_nan


@cache
def running_kernel(operation: int) -> Any:
    """flags = running(x, out, shape, reverse, exclusive, start, status, nan, nan_flags)."""
    # Only numbers are captured, so that another process recognises the kernel.
    IS_SUM, CHAINS = operation == ADD, _CHAINS

    @compiled
    def running(x, out, shape, reverse, exclusive, start, status, nan, nan_flags):
        """out[o, i] = x[o, 0] ∘ … ∘ x[o, i], from the last i if reversed.

        x, out       flat, of this shape: outer, along the axis, inner.
        exclusive    without x[o, i]; out[o, 0] is `start` then.
        nan          what a NaN becomes; one raises nan_flags.
        """
        outer, n, inner = shape
        has_nan = False
        set_modes(status)
        for o in range(outer):
            first, by = o * n * inner, inner
            if reverse:
                first, by = first + (n - 1) * inner, -inner
            ahead = by if exclusive else 0
            if exclusive:
                for j in range(inner):
                    out[first + j] = start
            many = n - exclusive
            if many <= 0:
                continue
            if inner < CHAINS:
                for j in range(inner):
                    total = x[first + j]
                    out[first + ahead + j] = total
                    for i in range(1, many):
                        at = first + i * by + j
                        total, has_nan = _step(IS_SUM, total, x[at], nan, has_nan)
                        out[at + ahead] = total
                continue
            before = out[first + ahead : first + ahead + inner]
            row = x[first : first + inner]
            for j in range(inner):
                before[j] = row[j]
            for i in range(1, many):
                at = first + i * by
                row, after = x[at : at + inner], out[at + ahead : at + ahead + inner]
                for j in range(inner):
                    after[j], has_nan = _step(IS_SUM, before[j], row[j], nan, has_nan)
                before = after
        flags = raised()
        return np.int64(flags | nan_flags) if has_nan else np.int64(flags)

    return running


@cache
def folding_kernel(operation: int) -> Any:
    """flags = folding(total, values, rows, before, status, nan, nan_flags)."""
    IS_SUM = operation == ADD

    @compiled
    def folding(total, values, rows, before, status, nan, nan_flags):
        """total[rows[p]] ∘= values[p] for one p after the other; before[p] is what was there.

        total, values    rows of numbers; before as values, or empty.
        nan              what a NaN becomes; one raises nan_flags.
        """
        has_nan, is_told = False, before.shape[0] > 0
        n, width = values.shape
        set_modes(status)
        for p in range(n):
            at = rows[p]
            old, value = total[at], values[p]
            if is_told:
                for k in range(width):
                    before[p, k] = old[k]
            for k in range(width):
                old[k], has_nan = _step(IS_SUM, old[k], value[k], nan, has_nan)
        flags = raised()
        return np.int64(flags | nan_flags) if has_nan else np.int64(flags)

    return folding
