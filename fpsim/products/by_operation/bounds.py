"""How large and how small the numbers of a product get, and the lanes that hold them all.

Source    docs/semantics.md §1 and §4; the bounds are derived where they stand.
"""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fpsim.elementwise.constants import LANES, Lane
from fpsim.kernels.by_operation.results import STRETCH
from fpsim.products.by_operation.rules import MacRules
from fpsim.records.flags import Flags
from fpsim.records.types import Carrier

__all__ = ["ProductRange", "block_lows", "find_lane", "measure"]

_INEXACT, _UNDERFLOW, _OVERFLOW = map(int, (Flags.INEXACT, Flags.UNDERFLOW, Flags.OVERFLOW))

#: Numbers of an operand that are looked at together; they stay in the cache.
_CHUNK = 1 << 16


class ProductRange:
    """A product of finite matrices and the range of what it is made of.

    least    the smallest product of two of its numbers that is not zero; lows holds more of them
    last     all products are multiples of a power of two that is at least this
    largest  no product of two numbers exceeds it
    most     no sum or product exceeds it, rounding errors included
    small    a result below the smallest normal number may be inexact
    checked  something may overflow
    """

    def __init__(
        self, rules: MacRules, a: Carrier, b: Carrier, lows: NDArray[np.float64], largest: float,
        most: float,
    ) -> None:
        self.rules, self.a, self.b, self.lows = rules, a, b, lows
        self.largest, self.most = largest, most
        self.least = float(np.minimum.reduce(lows))
        self.last = self.least * 2.0 ** (-2 * rules.precision)
        self.small = rules.fused or self.least < rules.smallest_normal
        self.checked = not most < rules.largest

    @cached_property
    def calm(self) -> float:
        """The largest sum from which nothing overflows for a stretch of terms, else zero.

        Backwards: a sum that is no larger than a number of the format is not rounded beyond it.
        """
        rules, limit = self.rules, self.rules.largest
        precision = rules.precision
        term = self.largest * (1 + 2.0 ** (1 - precision)) + rules.smallest_subnormal
        for _ in range(STRETCH):
            fraction, exponent = math.frexp(max(limit - term, 0.0))
            limit = math.floor(math.ldexp(fraction, precision)) * 2.0 ** (exponent - precision)
        return limit if limit >= rules.smallest_normal else 0.0

    @property
    def certain(self) -> int:
        """Flags that are raised for sure: one of these products is not in the format."""
        rules = self.rules
        rounded = self.lows[: 1 if rules.fused else None]  # of a fused sum only the first one
        rounded = rounded[rounded < math.inf]
        flags = 0
        if np.logical_or.reduce(np.frexp(rounded)[0] * 2.0**rules.precision % 1 != 0):
            flags |= _INEXACT
        tiny = rounded[rounded < rules.smallest_normal / 2]
        if np.logical_or.reduce(tiny / rules.smallest_subnormal % 1 != 0):
            flags |= _UNDERFLOW | _INEXACT
        return flags

    @property
    def possible(self) -> int:
        """Flags that only a look at every operation can tell of."""
        flags, rules = _INEXACT, self.rules
        if self.small and self.last < rules.smallest_subnormal:
            flags |= _UNDERFLOW
        return flags | _OVERFLOW if self.checked and not rules.shows_overflow else flags


def measure(rules: MacRules, a: Carrier, b: Carrier) -> ProductRange | None:
    """The product with its bounds; None if an operand is not finite."""
    (low_a, high_a), (low_b, high_b) = _bounds(a, 0), _bounds(b, 1)
    if not (high_a < math.inf and high_b < math.inf):
        return None
    k = a.shape[1]
    # Each rounding makes a magnitude at most 1 + u times larger, or moves it by a quantum.
    steps = (1 if rules.fused else 2) * k
    unit = 2.0 ** ((not rules.to_nearest) - rules.precision)
    growth = math.exp(min(steps * unit, 700.0)) * 1.01
    drift = steps * rules.smallest_subnormal
    most = (k * high_a * high_b + drift) * growth
    if not most < rules.largest:
        columns = np.maximum.reduce(np.add.reduce(np.abs(b), axis=0, dtype=np.float64))
        most = (high_a * float(columns) + drift) * growth
    return ProductRange(rules, a, b, low_a * low_b, high_a * high_b, most)


def _bounds(x: Carrier, axis: int) -> tuple[NDArray[np.float64], float]:
    """The smallest magnitudes along an axis that are not zero, else infinity; the largest."""
    step = max(1, _CHUNK // x.shape[1])
    if len(x) <= step:
        low, high = _bounds_of(x, axis)
        return low.astype(np.float64), high
    parts = [_bounds_of(x[i : i + step], axis) for i in range(0, len(x), step)]
    lows = [low for low, _ in parts]
    low = np.minimum.reduce(lows) if axis == 0 else np.concatenate(lows)
    return low.astype(np.float64), float(np.maximum.reduce([high for _, high in parts]))  # NaN wins


def _bounds_of(x: Carrier, axis: int) -> tuple[Carrier, float]:
    size = np.abs(x)
    codes = size.view(f"u{x.itemsize}")
    least = np.minimum.reduce(codes - 1, axis=axis)  # zero wraps around to the largest code
    infinity = np.array(math.inf, x.dtype).view(codes.dtype)
    low: Carrier = (np.minimum(least, infinity - 1) + 1).view(x.dtype)
    return low, float(np.maximum.reduce(size, axis=None))


def block_lows(x: Carrier, rows: int, columns: int) -> NDArray[np.float64]:
    """The smallest magnitudes that are not zero of blocks of x, infinity where there is none.

    >>> block_lows(np.array([[-2.0, 0.0, 0.0], [1.0, 3.0, 0.0]]), 2, 2).tolist()
    [[1.0, inf]]
    """
    kind = np.dtype(f"u{x.itemsize}")
    infinity = np.array(math.inf, x.dtype).view(kind)
    m, n = -(-x.shape[0] // rows), -(-x.shape[1] // columns)
    codes = np.full((m * rows, n * columns), infinity - 1, kind)
    # Zero wraps around to the largest code.
    np.subtract(np.abs(x).view(kind), 1, out=codes[: x.shape[0], : x.shape[1]])
    lows = codes.reshape(m, rows, -1).min(axis=1).reshape(m, n, columns).min(axis=2)
    result: NDArray[np.float64] = (np.minimum(lows, infinity - 1) + 1).view(x.dtype).astype(float)
    return result


def find_lane(product: ProductRange) -> Lane | None:
    """The narrower lanes in which every product and sum is exact enough, in range and normal."""
    rules = product.rules
    top = product.most
    if product.checked:
        top = 2.0 * (rules.largest + product.largest)
    for width, lane in LANES.items():
        # The number that rounds by being added is 2**(digits - p + 1) times larger.
        reach = lane.bias - (lane.digits - rules.precision) - 2
        if (
            (width == 64 or rules.narrow)
            and rules.need <= lane.digits
            # Below the smallest normal number R is the digits of a number after the first one.
            and rules.random_most < lane.digits
            and product.last >= 2.0 ** (1 - lane.bias)
            and top < 2.0**reach
        ):
            return lane
    return None
