"""Reference numbers that are the same on every machine, as a judge for those of machines.

BLAS sums in an order of its processor, and numpy's logarithms and powers have other last digits
with AVX-512 than without. What is computed here is either exact and rounded once, or has decimal
digits to spare before it is rounded.

Source    K. Ozaki, T. Ogita, S. Oishi and S. M. Rump, Error-free transformations of matrix
          multiplication by using fast routines of matrix multiplication and its applications,
          Numer. Algorithms 59 (2012) (products of slices).
"""

from __future__ import annotations

import decimal
import math
from collections.abc import Iterator
from decimal import Decimal

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["fitted_slope", "geometric", "inner_products", "logarithms", "norm", "powers_of_ten",
           "product"]

Wide = NDArray[np.float64]

#: Columns of a at a time: slices need memory.
_PART = 1 << 13
#: More digits than binary64 has, for logarithms and powers.
_DIGITS = decimal.Context(prec=25)


def inner_products(a: NDArray[np.floating], b: NDArray[np.floating]) -> tuple[Wide, Wide]:
    """a @ b, and the sums of magnitudes Σ|a·b|, both correctly rounded to binary64.

    >>> inner_products(np.array([[1e8, 1.0, -1e8]]), np.ones((3, 1)))
    (array([[1.]]), array([[2.00000001e+08]]))
    """
    return product(a, b), product(np.abs(a), np.abs(b))


def product(a: NDArray[np.floating], b: NDArray[np.floating]) -> Wide:
    """a @ b, correctly rounded to binary64 where nothing overflows or underflows.

    BLAS multiplies slices of so few bits that every sum of their products is exact in any order.

    >>> product(np.array([[1e100, 0.1, -1e100]]), np.array([[1.0], [0.1], [1.0]]))
    array([[0.01]])
    """
    left, right = np.asarray(a, np.float64), np.asarray(b, np.float64)
    exact = []
    for k in range(0, left.shape[1], _PART):
        rows, columns = left[:, k : k + _PART], right[k : k + _PART].T
        bits = (53 - rows.shape[1].bit_length()) // 2
        slices = list(_slices(columns, bits))
        exact += [(one @ other.T).ravel() for one in _slices(rows, bits) for other in slices]
    shape = (left.shape[0], right.shape[1])
    if not exact:
        return np.zeros(shape)
    return np.reshape([math.fsum(terms) for terms in np.transpose(exact).tolist()], shape)


def _slices(x: Wide, bits: int) -> Iterator[Wide]:
    """Matrices whose sum is x; rows are whole numbers of so many bits, times a power of two."""
    while x.any():
        unit = np.frexp(np.abs(x).max(axis=1, keepdims=True))[1] - bits
        part = np.ldexp(np.rint(np.ldexp(x, -unit)), unit)
        yield part
        x = x - part


def norm(x: ArrayLike) -> float:
    """The root of the sum of squares; each square is rounded, their sum is exact.

    >>> norm([3.0, 4.0])
    5.0
    """
    wide = np.asarray(x, np.float64).ravel()
    return math.sqrt(math.fsum((wide * wide).tolist()))


def powers_of_ten(x: Wide) -> Wide:
    """10**x.

    >>> powers_of_ten(np.array([-1.0, 0.5]))
    array([0.1       , 3.16227766])
    """
    ten = _DIGITS.ln(Decimal(10))
    powers = [float(_DIGITS.exp(_DIGITS.multiply(ten, Decimal(v)))) for v in x.ravel().tolist()]
    return np.reshape(powers, x.shape)


def logarithms(x: Wide) -> Wide:
    """Natural logarithms.

    >>> logarithms(np.array([1.0, 2.0]))
    array([0.        , 0.69314718])
    """
    return np.reshape([float(_DIGITS.ln(Decimal(v))) for v in x.ravel().tolist()], x.shape)


def geometric(first: float, last: float, n: int) -> Wide:
    """n numbers from first to last, each the same multiple of the one before.

    >>> geometric(1e-5, 0.1, 5)
    array([1.e-05, 1.e-04, 1.e-03, 1.e-02, 1.e-01])
    """
    start = _DIGITS.ln(Decimal(first))
    step = _DIGITS.divide(_DIGITS.subtract(_DIGITS.ln(Decimal(last)), start), Decimal(n - 1))
    places = [_DIGITS.fma(step, Decimal(i), start) for i in range(n)]
    return np.array([first, *(float(_DIGITS.exp(place)) for place in places[1:-1]), last])


def fitted_slope(x: Wide, y: Wide) -> tuple[float, float]:
    """The slope of the least-squares line, and its standard error.

    >>> fitted_slope(np.array([0.0, 1.0, 2.0]), np.array([1.0, 3.0, 5.0]))
    (2.0, 0.0)
    """
    across, up = (v - math.fsum(v) / v.size for v in (x, y))
    width = math.fsum(across * across)
    rise = math.fsum(across * up) / width
    left = up - rise * across
    return rise, math.sqrt(math.fsum(left * left) / (x.size - 2) / width)
