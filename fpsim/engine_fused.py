"""Products of binary32 operands through chains of fused multiply-adds.

Source    docs/semantics.md §5.
"""

from __future__ import annotations

import numpy as np

from fpsim.arithmetic import Carrier
from fpsim.flags import Flags
from fpsim.formats import BINARY32
from fpsim.kernels.gemm_fused import COLUMNS, ROWS, fused_kernel
from fpsim.kernels.lane_math import HAS_FMA
from fpsim.parallel import run_blocks
from fpsim.places import Places
from fpsim.product import Marks, Product
from fpsim.rounding import RNE

__all__ = ["panels", "run_fused"]

#: Products below which one thread is enough.
_SMALLEST = 1 << 21

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
        and unit.rounding is RNE
        and product.scale == 0
    )


def run_fused(
    product: Product, a: Carrier, b: Carrier, values: Carrier, marks: Marks, places: Places
) -> bool:  # fmt: skip
    """One matrix product into values and marks; False if this kernel must not run it."""
    if not _knows(product):
        return False
    depth = product.depth(a.shape[1])
    flush = product.policy == "flush_both"
    rows, low_a, high_a = panels(a, ROWS, depth, flush)
    columns, low_b, high_b = panels(b.T, COLUMNS, depth, flush)
    if not (high_a < np.inf and high_b < np.inf and np.isfinite(values).all()):
        return False
    start = values.any()
    # Sums are multiples of the last digit of the smallest product: normal, or exactly zero.
    checked = bool(start) or low_a * low_b * 2.0**-46 < 2.0**-126
    limit = 0 if product.policy == "keep" else _NORMAL
    loop = fused_kernel(HAS_FMA, checked)
    result = values.copy() if checked else values
    if flush and start:
        result[np.abs(result) < 2.0**-126] = 0.0

    def work(begin: int, end: int) -> int:
        part = slice(begin * ROWS, end * ROWS)
        return int(loop(rows[begin:end], columns, result[part], limit))

    n, k = values.shape[1], a.shape[1]
    doubt = run_blocks(work, 0, rows.shape[0], max(1, _SMALLEST // max(1, n * k * ROWS)))
    if doubt:
        return False
    if checked:
        values[...] = result
    if high_a * high_b * k * 2.0 >= 2.0**127 or start:
        marks[np.isinf(values)] |= np.uint8(Flags.OVERFLOW)
    return True


def panels(operand: Carrier, width: int, depth: int, flush: bool) -> tuple[Carrier, float, float]:
    """Rows of an operand as panels padded with zeros; bounds below and above its numbers."""
    rows, k = operand.shape
    tiles, whole = -(-rows // width), rows // width
    packed = np.zeros((tiles, depth, width), np.float32)
    packed[:whole, :k] = operand[: whole * width].reshape(whole, width, k).swapaxes(1, 2)
    if whole < tiles:
        packed[whole, :k, : rows - whole * width] = operand[whole * width :].T
    size = np.abs(packed)
    if flush:
        packed[size < 2.0**-126] = 0.0
    most = float(size.max())
    least = float(size.min(where=packed != 0, initial=np.inf))
    low = 2.0 ** (np.frexp(least)[1] - 1) if least < np.inf else 1.0
    return packed, float(low), 2.0 * most if most == most else np.inf
