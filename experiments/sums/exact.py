"""Inner products without rounding errors, as a judge for those of machines."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

__all__ = ["inner_products"]


def inner_products(
    a: NDArray[np.floating], b: NDArray[np.floating]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """a @ b, and the sums of magnitudes Σ|a·b|, both correctly rounded to binary64.

    Every product must be exact in binary64, as those of operands of up to 26 digits are.

    >>> inner_products(np.array([[1e8, 1.0, -1e8]]), np.ones((3, 1)))
    (array([[1.]]), array([[2.00000001e+08]]))
    """
    exact, size = np.empty((a.shape[0], b.shape[1])), np.empty((a.shape[0], b.shape[1]))
    for i, j in np.ndindex(exact.shape):
        products = a[i].astype(np.float64) * b[:, j].astype(np.float64)
        exact[i, j], size[i, j] = math.fsum(products), math.fsum(np.abs(products))
    return exact, size
