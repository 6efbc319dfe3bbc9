"""Sums and products of binary64 numbers with what their rounding loses.

Source    Knuth, The Art of Computer Programming 2, §4.2.2 (sum); Dekker, Numerische Mathematik 18
          (1971) (product, without overflow or underflow).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["two_product", "two_sum"]

Wide = NDArray[np.float64]

_SPLIT = 134217729.0


def two_sum(x: Wide | float, y: Wide) -> tuple[Wide, Wide]:
    """x + y exactly, as its nearest number and the rest.

    >>> two_sum(1.0, np.array([2.0**-60]))
    (array([1.]), array([8.67361738e-19]))
    """
    total: Any = x + y
    back = total - x
    return total, (x - (total - back)) + (y - back)


def two_product(x: Wide, y: Wide | float) -> tuple[Wide, Wide]:
    """x y exactly, as its nearest number and the rest.

    >>> two_product(np.array([1 + 2.0**-30]), 1 + 2.0**-30)[1]
    array([8.67361738e-19])
    """
    product = x * y
    split, other = x * _SPLIT, y * _SPLIT
    a, c = split - (split - x), other - (other - y)
    b, d = x - a, y - c
    return product, ((a * c - product) + a * d + b * c) + b * d
