"""Products through exact units in binary64 lanes, where two limbs hold every sum.

Source    docs/semantics.md §5; the bounds are derived at `_unit`.
"""

from __future__ import annotations

import numpy as np

from fpsim.elementwise.apply import Carrier
from fpsim.kernels.by_unit.panels import PLAIN
from fpsim.kernels.by_unit.tiles import EXACT, FLAG, UNGUARDED
from fpsim.kernels.lanes.arithmetic import HAS_INEXACT_FLAG
from fpsim.products.by_unit.operands import Operands
from fpsim.products.by_unit.product import Marks, Product
from fpsim.products.by_unit.task import Table, Task, variant
from fpsim.products.by_unit.tiles import run_tiles
from fpsim.records.formats import BINARY32
from fpsim.records.rounding import RNE
from fpsim.state.draws import Places

__all__ = ["run_exact"]

#: Terms of a call for which the lower of two limbs has room (see `_unit`).
_TERMS = 16


def _knows(product: Product) -> bool:
    unit = product.unit
    return (
        unit.window is None
        and unit.join is None
        and unit.order == "ascending"
        and unit.accumulator == BINARY32
        and unit.rounding == RNE
        and unit.terms <= _TERMS
        and product.a.precision + product.b.precision <= 26
    )


def run_exact(
    product: Product, operands: Operands, values: Carrier, marks: Marks, places: Places
) -> bool:
    """One matrix product into values and marks; False if this kernel must not run it."""
    if not _knows(product):
        return False
    unit = _unit(product, operands)
    if unit is None:
        return False
    scaled = PLAIN._replace(factor=2.0**product.scale)
    guard = FLAG if HAS_INEXACT_FLAG else UNGUARDED
    made, constants = variant(EXACT, product, product.store, places.low, 64, guard=guard)
    task = Task(
        made, 64, constants, np.array([unit] * 3).view(np.uint64), Table(64, 0, scaled),
        Table(64, 0, PLAIN),
    )  # fmt: skip
    run_tiles(product, task, operands, values, marks, places)
    return True


def _unit(product: Product, operands: Operands) -> float | None:
    """1.5 * 2**52 units of the higher limb; None where two limbs do not hold every sum.

    Products are multiples of 2**last and sums below 2**top. The higher limb holds multiples of its
    unit u below 2**50 u; the lower one at most terms + 1 halves of u, in multiples of 2**last: 48
    digits leave room for _TERMS terms. Results must be normal numbers of binary32.
    """
    if not operands.finite:
        return None
    low, high = operands.exponents(product)
    last = low - (product.a.precision - 1) - (product.b.precision - 1)
    top = high + 2 + len(operands.a.offsets).bit_length()
    start = operands.reach_start
    if start.most:
        top = max(top, int(np.frexp(start.most)[1])) + 1
        last = min(last, int(np.frexp(start.least)[1]) - 24)
    if top > 120 or last < -126 or top - last > 98:
        return None
    return float(1.5 * 2.0 ** (52 + max(last + 48, top - 50)))
