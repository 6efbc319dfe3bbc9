"""Shapes of matrix products, and what an output is computed from."""

from __future__ import annotations

import numpy as np

from fpsim.records.types import Carrier, Index, Shape

__all__ = ["result_shape", "row_and_column"]


def result_shape(a: Shape, b: Shape) -> Shape:
    """Of a product of matrices, leading dimensions broadcast.

    >>> result_shape((5, 1, 2, 3), (4, 3, 7))
    (5, 4, 2, 7)
    """
    if len(a) < 2 or len(b) < 2:
        raise ValueError(
            f"a has shape {a}, b has shape {b}; give matrices (..., M, K) and (..., K, N), a "
            "vector as a matrix of one row or column"
        )
    if a[-1] != b[-2]:
        raise ValueError(
            f"a has shape {a}, b has shape {b}; the last dimension of a must equal the last but "
            "one of b"
        )
    if len(a) == len(b) == 2:
        return (a[0], b[1])
    try:
        batch = np.broadcast_shapes(a[:-2], b[:-2])
    except ValueError:
        raise ValueError(
            f"a has shape {a}, b has shape {b}; leading dimensions do not broadcast"
        ) from None
    return (*batch, a[-2], b[-1])


def row_and_column(a: Carrier, b: Carrier, index: Index) -> tuple[Carrier, Carrier]:
    """What one element of a product is computed from: a row of a and a column of b."""
    *batch, i, j = index
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    rows = np.broadcast_to(a, (*lead, *a.shape[-2:]))
    columns = np.broadcast_to(b, (*lead, *b.shape[-2:]))
    return rows[(*batch, i)], columns[tuple(batch)][:, j]
