"""Sums and products of binary64 in ascending order, by the processor's own arithmetic.

Source    docs/semantics.md §4 (order).
"""

from __future__ import annotations

import numpy as np

from fpsim.kernels.compiling import compiled

__all__ = ["ascending_product", "ascending_sums"]


@compiled
def ascending_sums(rows, out):
    """out[i] = ((rows[i, 0] + rows[i, 1]) + rows[i, 2]) …; +0 of nothing."""
    for i in range(rows.shape[0]):
        total = rows[i, 0] if rows.shape[1] else 0.0
        for j in range(1, rows.shape[1]):
            total += rows[i, j]
        out[i] = np.nan if total != total else total


@compiled
def ascending_product(a, b, out):
    """out = a b: the terms of an element one after another, the first one as it is."""
    for i in range(a.shape[0]):
        for k in range(a.shape[1]):
            factor = a[i, k]
            for j in range(b.shape[1]):
                term = factor * b[k, j]
                out[i, j] = term if k == 0 else out[i, j] + term
        for j in range(b.shape[1]):
            if a.shape[1] == 0:
                out[i, j] = 0.0
            elif out[i, j] != out[i, j]:
                out[i, j] = np.nan
