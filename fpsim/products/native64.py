"""Sums and products in binary64, the native reference: in ascending order, without flags.

Source    docs/semantics.md §4 (order).
"""

from __future__ import annotations

import math

import numpy as np

from fpsim.kernels.by_operation.native64 import ascending_product, ascending_sums
from fpsim.products.jobs.shapes import result_shape
from fpsim.records.types import Carrier

__all__ = ["native_product", "native_sums"]


def native_sums(rows: Carrier, *, divide: bool) -> Carrier:
    """Sums of rows (outputs, elements), or means.

    >>> native_sums(np.array([[1.0, 2.0**-53, 2.0**-53]]), divide=False).tolist()
    [1.0]
    """
    sums = np.empty(len(rows))
    ascending_sums(np.ascontiguousarray(rows), sums)
    if divide:
        with np.errstate(all="ignore"):
            sums /= rows.shape[1]
    return sums


def native_product(a: Carrier, b: Carrier) -> Carrier:
    """a @ b of matrices, leading dimensions broadcast; every operation rounded.

    >>> native_product(np.array([[1.0, 2.0**-53, 2.0**-53]]), np.ones((3, 1))).tolist()
    [[1.0]]
    """
    shape = result_shape(a.shape, b.shape)
    batch = shape[:-2]
    left = np.ascontiguousarray(np.broadcast_to(a, (*batch, *a.shape[-2:])))
    right = np.ascontiguousarray(np.broadcast_to(b, (*batch, *b.shape[-2:])))
    n = math.prod(batch)
    out = np.empty((n, *shape[-2:]))
    lefts, rights = left.reshape(n, *a.shape[-2:]), right.reshape(n, *b.shape[-2:])
    for i in range(n):
        ascending_product(lefts[i], rights[i], out[i])
    return out.reshape(shape)
