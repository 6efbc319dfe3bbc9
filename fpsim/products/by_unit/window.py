"""Products through windowed units by the loop of tiles, where its conditions hold.

In 32-bit lanes twice as many outputs stand side by side; they serve windows of few digits and
exponents that are not far apart.

Source    docs/semantics.md §5; the bounds are derived at `_fits` and `_narrow`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fpsim.elementwise.apply import Carrier
from fpsim.kernels.by_unit.panels import Shift
from fpsim.kernels.by_unit.tiles import WINDOW_32, WINDOW_64
from fpsim.kernels.by_unit.window import CUT, NEAREST, WHOLE
from fpsim.products.by_unit.operands import Operands
from fpsim.products.by_unit.product import Marks, Product, Store, nearest
from fpsim.products.by_unit.task import Table, Task, variant
from fpsim.products.by_unit.tiles import run_tiles
from fpsim.records.formats import BINARY32
from fpsim.records.rounding import RNE, RTZ
from fpsim.state.draws import Places

__all__ = ["run_window"]

#: Exponent fields of lanes: bits below them, bias, and what a zero of the left and of the right
#: operand counts with: below every other, alone or together with a number.
_FIELDS = {32: (23, 127, -60, -190), 64: (52, 1023, 623, -400)}

#: Largest exponent of a number in lanes of 32 bits.
_FAR = 60

#: Terms of a call up to which it is written out in the loop.
_TERMS = 32


class Sums(NamedTuple):
    """How the sums of a unit's calls are rounded."""

    how: int
    precision: int  # CUT: digits that stay
    emin: int  # WHOLE: of subnormal accumulators
    store: Store | None


@lru_cache(maxsize=256)
def _sums(product: Product) -> Sums | None:
    """None for records that the loop does not know."""
    unit, accumulator = product.unit, product.unit.accumulator
    if (
        unit.window is None
        or unit.cut != "truncate"
        or unit.join is not None
        or unit.order != "ascending"
        or unit.terms > _TERMS
        or unit.window + (unit.terms + 1).bit_length() > 50
    ):
        return None
    if accumulator.emin == BINARY32.emin and unit.rounding == RTZ:
        return Sums(CUT, accumulator.precision, 0, product.store)
    if accumulator == BINARY32:
        return Sums(NEAREST, 24, 0, product.store)
    if accumulator == unit.partials and unit.chain == 1 and unit.rounding == RNE:
        return Sums(WHOLE, 24, accumulator.emin, nearest(accumulator))
    return None


def run_window(
    product: Product, operands: Operands, values: Carrier, marks: Marks, places: Places
) -> bool:
    """One matrix product into values and marks; False if this kernel must not run it."""
    sums = _sums(product)
    if sums is None or not _fits(product, operands):
        return False
    width = 32 if _narrow(product, operands, sums) else 64
    run_tiles(product, _task(product, width, places.low), operands, values, marks, places)
    return True


@lru_cache(maxsize=256)
def _task(product: Product, width: int, low: bool) -> Task:
    """What the loop of tiles is given; R stands in the `low` bits of random words."""
    sums = _sums(product)
    assert sums is not None
    kind = WINDOW_32 if width == 32 else WINDOW_64
    made, constants = variant(kind, product, sums.store, low, width, sums=sums.how)
    own = width == 32 and product.scale == 0
    return Task(
        made, width, constants, _numbers(product, sums, width),
        Table(0 if own else width, width, _shift(product, width, left=True)),
        Table(32, width, _shift(product, width, left=False)),
    )  # fmt: skip


def _numbers(product: Product, sums: Sums, width: int) -> Carrier:
    """The fields that undo the window, up and down, and the edge of the sums."""
    assert product.unit.window is not None
    place, bias, _, _ = _FIELDS[width]
    all_ones, down = (1 << width) - 1, product.unit.window << place
    edge = all_ones >> (place + 1 - sums.precision) << (place + 1 - sums.precision)
    if sums.how == WHOLE:
        edge = (bias + sums.emin) << place
    up = (2 * bias << place) + down
    return np.array([n & all_ones for n in (up, down, edge)], f"u{width // 8}")


def _shift(product: Product, width: int, *, left: bool) -> Shift:
    """Exponents as the lanes count them; those of the left operand carry bias and scale."""
    _, bias, zero_left, zero_right = _FIELDS[width]
    if left:
        return Shift(bias + product.scale, zero_left, product.a.emin, 2.0**product.scale, False)
    return Shift(0, zero_right, product.b.emin, 1.0, False)


def _fits(product: Product, operands: Operands) -> bool:
    """Whether all is finite and no sum can overflow or be subnormal.

    A product is below 2**(high + 2), and all sums are multiples of 2**(low - window) or of what the
    start is a multiple of.
    """
    window = product.unit.window
    assert window is not None
    if not operands.finite:
        return False
    low, high = operands.exponents(product)
    if high + 2 + len(operands.a.offsets).bit_length() > 120 or low - window < -126:
        return False
    start = operands.reach_start
    return not start.most or (start.most < 2.0**120 and start.least >= 2.0 ** (window - 126))


def _narrow(product: Product, operands: Operands, sums: Sums) -> bool:
    """Whether lanes of 32 bits serve: products exact, their sums below 2**31, exponents in a field.

    A product has a significand below 4, cut to `window` digits. The
    scale 2**(window - emax) must be a normal number; emax is at least low - window.
    """
    unit, window = product.unit, product.unit.window
    assert window is not None
    if product.a.precision + product.b.precision > 24 or 4 * unit.terms > 2 ** (31 - window):
        return False
    if sums.store is not None and sums.store.chosen.constants.dtype != np.uint32:
        return False
    high = max(
        operands.reach_a.exponents(product.a.emin)[1] + product.scale,
        operands.reach_b.exponents(product.b.emin)[1],
    )
    low, _ = operands.exponents(product)
    least = low - window
    if operands.reach_start.most:
        least = min(least, int(np.frexp(operands.reach_start.least)[1]) - 1)
    return high <= _FAR and window > 1 and least + 126 > window
