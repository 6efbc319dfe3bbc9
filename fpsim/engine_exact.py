"""Products through exact units by the kernel in binary64 lanes, where two limbs hold every sum.

Source    docs/semantics.md §5; the bounds are derived at `_unit`.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fpsim.arithmetic import Carrier
from fpsim.engine_window import NO_CONSTANTS, packed, run_tiles
from fpsim.formats import BINARY32
from fpsim.kernels.gemm_exact import ExactVariant, exact_kernel
from fpsim.kernels.gemm_window import ROWS
from fpsim.kernels.lane_math import HAS_FMA, HAS_INEXACT_FLAG
from fpsim.places import Places
from fpsim.product import Marks, Product
from fpsim.rounding import RNE

__all__ = ["run_exact"]


@lru_cache(maxsize=256)
def _kernel(product: Product) -> tuple[ExactVariant, NDArray[np.uint64]] | None:
    """Compiled kernel and constants of the stores; None for records it does not know."""
    unit, store = product.unit, product.store
    if (
        unit.window is not None
        or unit.join is not None
        or unit.order != "ascending"
        or unit.accumulator != BINARY32
        or unit.rounding is not RNE
        or product.a.precision + product.b.precision > 26
    ):
        return None
    how = (store.wide.mode, False, store.wide.residual) if store else (0, False, 0)
    variant = ExactVariant(
        unit.terms, unit.chain, int(store is not None), *how, HAS_INEXACT_FLAG, HAS_FMA
    )
    return variant, store.wide.constants if store else NO_CONSTANTS


def run_exact(
    product: Product, a: Carrier, b: Carrier, values: Carrier, marks: Marks, places: Places
) -> bool:  # fmt: skip
    """One matrix product into values and marks; False if this kernel must not run it."""
    found = _kernel(product)
    if found is None:
        return False
    variant, constants = found
    loop = exact_kernel(variant._replace(low=places.low))
    depth = product.depth(a.shape[1])
    columns = packed(b.T, 8, depth, product.b, np.float64, tables=False, even=True)
    rows = packed(a, ROWS, depth, product.a, np.float64, scale=product.scale, tables=False)
    unit = _unit(product, columns.low + rows.low, columns.high + rows.high, a.shape[1], values)
    if unit is None:
        return False

    def call(tiles: slice, out: Carrier, out_marks: Marks, words: NDArray[np.uint32]) -> int:
        flags: int = loop(
            rows.values[tiles], columns.values, out, out_marks, words, constants, unit
        )
        return flags

    run_tiles(product, call, rows, values, marks, places, a.shape[1])
    return True


def _unit(product: Product, low: int, high: int, k: int, start: Carrier) -> float | None:
    """1.5 * 2**52 units of the higher limb; None where two limbs do not hold every sum.

    Products are multiples of 2**last and sums below 2**top. The higher limb holds multiples of its
    unit u below 2**50 u; the lower one at most terms + 1 halves of u, in multiples of 2**last: 48
    digits leave room for 16 terms. Results must be normal numbers of binary32.
    """
    last = low + product.scale - (product.a.precision - 1) - (product.b.precision - 1)
    top = high + product.scale + 2 + k.bit_length()
    if not np.isfinite(start).all():
        return None
    if start.any():
        most = float(np.abs(start).max())
        if not most < 2.0**120:
            return None
        top = max(top, int(np.frexp(most)[1])) + 1
        last = min(last, int(np.frexp(np.abs(start[start != 0]).min())[1]) - 24)
    if top > 120 or last < -126 or top - last > 98:
        return None
    return float(1.5 * 2.0 ** (52 + max(last + 48, top - 50)))
