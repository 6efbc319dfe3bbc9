"""Products of binary32 operands through chains of fused multiply-adds.

Source    docs/semantics.md §5.
"""

from __future__ import annotations

import numpy as np

from fpsim.elementwise.apply import Carrier
from fpsim.kernels.by_unit.panels import PLAIN
from fpsim.kernels.by_unit.tiles import FUSED, SUMS
from fpsim.products.by_unit.operands import Operands
from fpsim.products.by_unit.product import Marks, Product
from fpsim.products.by_unit.task import Table, Task, variant
from fpsim.products.by_unit.tiles import run_tiles
from fpsim.records.flags import Flags
from fpsim.records.formats import BINARY32
from fpsim.records.rounding import RNE
from fpsim.state.draws import Places

__all__ = ["run_fused"]

#: Code of the smallest normal number, and of -0's magnitude.
_NORMAL = 0x00800000


def _knows(product: Product) -> bool:
    unit = product.unit
    return (
        unit.terms == 1
        and unit.window is None
        and unit.join is None
        and unit.inputs == (BINARY32,)
        and unit.accumulator == unit.partials == BINARY32
        and unit.rounding == RNE
        and product.scale == 0
    )


def run_fused(
    product: Product, operands: Operands, values: Carrier, marks: Marks, places: Places
) -> bool:
    """One matrix product into values and marks; False if this kernel must not run it."""
    if not _knows(product) or not operands.finite:
        return False
    flush = product.policy == "flush_both"
    start = operands.reach_start.most > 0
    (low_a, _), (low_b, _) = operands.reach_a, operands.reach_b
    # Sums are multiples of the last digit of the smallest product: normal, or exactly zero.
    checked = start or _last(low_a, flush) * _last(low_b, flush) < 2.0**-126
    made, constants = variant(FUSED, product, None, places.low, 32, guard=SUMS if checked else 0)
    limit = 0 if product.policy == "keep" else _NORMAL
    shift = PLAIN._replace(flush=flush)
    task = Task(
        made, 32, constants, np.full(3, limit, np.uint32),
        Table(32 if flush and low_a < 2.0**-126 else 0, 0, shift), Table(32, 0, shift),
    )  # fmt: skip
    result = values.copy() if checked else values
    if flush and start:
        result[np.abs(result) < 2.0**-126] = 0.0
    if run_tiles(product, task, operands, result, marks, places):
        return False
    if checked:
        values[...] = result
    k, most = len(operands.a.offsets), operands.reach_a.most * operands.reach_b.most
    if most * k * 2.0 >= 2.0**127 or start:
        marks[np.isinf(values)] |= np.uint8(Flags.OVERFLOW)
    return True


def _last(least: float, flush: bool) -> float:
    """The last digit of the smallest number."""
    if flush:
        least = max(least, 2.0**-126)
    return float(2.0 ** (np.frexp(least)[1] - 24)) if least < np.inf else 1.0
