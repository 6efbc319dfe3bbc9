"""How large and how small the numbers of a product get, and the lanes that hold them all.

Source    docs/semantics.md §1 and §4; the bounds are derived where they stand.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpsim.elementwise.constants import LANES, Lane, exact_width, mode_number
from fpsim.kernels.by_operation.lane_rounding import DIRECTIONS
from fpsim.kernels.by_operation.results import STRETCH
from fpsim.kernels.rounding.direction import NEAREST
from fpsim.records.flags import Flags
from fpsim.records.settings import Settings
from fpsim.records.types import Carrier

__all__ = ["Product", "block_lows", "find_lane", "measure"]

#: Numbers of an operand that are looked at together; they stay in the cache.
_CHUNK = 1 << 16


class Product(NamedTuple):
    """A product of finite matrices and the range of what it is made of.

    least    the smallest product of two of its numbers that is not zero; lows holds more of them
    last     all products are multiples of a power of two that is at least this
    largest  no product of two numbers exceeds it
    most     no sum or product exceeds it, rounding errors included
    """

    settings: Settings
    fused: bool
    a: Carrier
    b: Carrier
    lows: NDArray[np.float64]
    largest: float
    most: float

    @property
    def least(self) -> float:
        return float(self.lows.min())

    @property
    def last(self) -> float:
        return self.least * 2.0 ** (-2 * self.settings.format.precision)

    @property
    def small(self) -> bool:
        """Whether a result below the smallest normal number may be inexact."""
        return self.fused or self.least < self.settings.format.smallest_normal

    @property
    def checked(self) -> bool:
        """Whether something may overflow."""
        return not self.most < self.settings.format.max

    @property
    def calm(self) -> float:
        """The largest sum from which nothing overflows for a stretch of terms, else zero.

        Backwards: a sum that is no larger than a number of the format is not rounded beyond it.
        """
        fmt, limit = self.settings.format, self.settings.format.max
        term = self.largest * (1 + 2.0 ** (1 - fmt.precision)) + fmt.smallest_subnormal
        for _ in range(STRETCH):
            fraction, exponent = math.frexp(max(limit - term, 0.0))
            limit = math.floor(math.ldexp(fraction, fmt.precision)) * 2.0 ** (
                exponent - fmt.precision
            )
        return limit if limit >= fmt.smallest_normal else 0.0

    @property
    def certain(self) -> Flags:
        """Flags that are raised for sure: one of these products is not in the format."""
        fmt = self.settings.format
        rounded = self.lows[: 1 if self.fused else None]  # of a fused sum only the first one
        rounded = rounded[rounded < math.inf]
        flags = Flags.NONE
        if (np.frexp(rounded)[0] * 2.0**fmt.precision % 1).any():
            flags |= Flags.INEXACT
        tiny = rounded[rounded < fmt.smallest_normal / 2]
        if (tiny / fmt.smallest_subnormal % 1).any():
            flags |= Flags.UNDERFLOW | Flags.INEXACT
        return flags

    @property
    def possible(self) -> Flags:
        """Flags that only a look at every operation can tell of."""
        flags, fmt = Flags.INEXACT, self.settings.format
        if self.small and self.last < fmt.smallest_subnormal:
            flags |= Flags.UNDERFLOW
        return flags | Flags.OVERFLOW if self.checked and not self.shows_overflow else flags

    @property
    def shows_overflow(self) -> bool:
        """Whether overflow leaves an infinity or NaN behind, which no later term removes."""
        stops = any(self.settings.rounding.stops_at_largest(sign) for sign in (False, True))
        return self.settings.overflow != "saturate" and not stops

    @property
    def to_nearest(self) -> bool:
        """Whether the processor rounds to nearest beneath the mode."""
        return DIRECTIONS[mode_number(self.settings.rounding)] == NEAREST


def measure(settings: Settings, fused: bool, a: Carrier, b: Carrier) -> Product | None:
    """The product with its bounds; None if an operand is not finite."""
    (low_a, high_a), (low_b, high_b) = _bounds(a, 0), _bounds(b, 1)
    if not (high_a < math.inf and high_b < math.inf):
        return None
    fmt, k = settings.format, a.shape[1]
    # Each rounding makes a magnitude at most 1 + u times larger, or moves it by a quantum.
    nearest = DIRECTIONS[mode_number(settings.rounding)] == NEAREST
    steps = (1 if fused else 2) * k
    unit = 2.0 ** ((not nearest) - fmt.precision)
    growth = math.exp(min(steps * unit, 700.0)) * 1.01
    drift = steps * fmt.smallest_subnormal
    most = (k * high_a * high_b + drift) * growth
    if not most < fmt.max:
        columns = np.abs(b).sum(axis=0, dtype=np.float64).max()
        most = (high_a * float(columns) + drift) * growth
    return Product(settings, fused, a, b, low_a * low_b, high_a * high_b, most)


def _bounds(x: Carrier, axis: int) -> tuple[NDArray[np.float64], float]:
    """The smallest magnitudes along an axis that are not zero, else infinity; the largest."""
    step = max(1, _CHUNK // x.shape[1])
    parts = [_bounds_of(x[i : i + step], axis) for i in range(0, len(x), step)]
    lows = [low for low, _ in parts]
    low = np.minimum.reduce(lows) if axis == 0 else np.concatenate(lows)
    return low.astype(np.float64), float(np.max([high for _, high in parts]))  # NaN wins


def _bounds_of(x: Carrier, axis: int) -> tuple[Carrier, float]:
    size = np.abs(x)
    codes = size.view(f"u{x.itemsize}")
    least = (codes - 1).min(axis=axis)  # zero wraps around to the largest code
    infinity = np.array(math.inf, x.dtype).view(codes.dtype)
    low: Carrier = (np.minimum(least, infinity - 1) + 1).view(x.dtype)
    return low, float(size.max())


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


def find_lane(product: Product) -> Lane | None:
    """The narrower lanes in which every product and sum is exact enough, in range and normal."""
    settings = product.settings
    fmt = settings.format
    p = fmt.precision
    need = 2 * p
    if product.fused:
        need = max(need, p + 2)
    if product.to_nearest and not product.fused:
        need = 2 * p + 2
    if settings.rounding.stochastic:
        need = max(need, p + settings.random_bits)
    top = product.most
    if product.checked:
        top = 2.0 * (fmt.max + product.largest)
    for width, lane in LANES.items():
        fits = width == 64 or exact_width("convert", settings, product.a.itemsize) == 32
        # The number that rounds by being added is 2**(digits - p + 1) times larger.
        reach = lane.bias - (lane.digits - p) - 2
        if (
            fits
            and need <= lane.digits
            # Below the smallest normal number R is the digits of a number after the first one.
            and settings.random_most < lane.digits
            and product.last >= 2.0 ** (1 - lane.bias)
            and top < 2.0**reach
        ):
            return lane
    return None
