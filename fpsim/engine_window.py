"""Products through windowed units by the kernel in binary64 lanes, where its conditions hold.

Source    docs/semantics.md §5; the bounds are derived at `_fits`.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fpsim.arithmetic import Carrier
from fpsim.formats import BINARY32, Format
from fpsim.kernels.elementwise import NO_WORDS
from fpsim.kernels.gemm_window import COLUMNS, ROWS, WindowVariant, pack, window_kernel
from fpsim.parallel import run_blocks
from fpsim.places import Places
from fpsim.product import Marks, Product
from fpsim.rounding import RTZ

__all__ = ["run_window"]

#: Random words of a block of rows, at most, and products below which one thread is enough.
_WORDS, _SMALLEST = 1 << 20, 1 << 19

_NO_CONSTANTS = np.zeros(64, np.uint64)

Packed = tuple[Carrier, NDArray[np.uint64]]


@lru_cache(maxsize=256)
def _kernel(product: Product) -> tuple[WindowVariant, NDArray[np.uint64], int] | None:
    """Compiled kernel, constants of the stores and window; None for records it does not know."""
    unit, store = product.unit, product.store
    if (
        unit.window is None
        or unit.cut != "truncate"
        or unit.join is not None
        or unit.order != "ascending"
        or unit.accumulator != BINARY32
        or unit.window + (unit.terms + 1).bit_length() > 50
    ):
        return None
    how = (store.wide.mode, False, store.wide.residual) if store else (0, False, 0)
    variant = WindowVariant(
        unit.terms, unit.calls, unit.rounding is RTZ, int(store is not None), *how
    )
    constants = store.wide.constants if store else _NO_CONSTANTS
    return variant, constants, unit.window


def run_window(
    product: Product, a: Carrier, b: Carrier, values: Carrier, marks: Marks, places: Places,
    first: int,
) -> bool:  # fmt: skip
    """One matrix product into values and marks; False if this kernel must not run it."""
    found = _kernel(product)
    if found is None:
        return False
    variant, constants, window = found
    loop = window_kernel(variant._replace(low=places.low))
    depth = product.passes(a.shape[1]) * product.unit.channels
    columns, low_b, high_b = _pack(b.T, COLUMNS, depth, product.b, np.float32, 0, 0)
    n, k = values.shape[1], a.shape[1]
    rows, low_a, high_a = _pack(a, ROWS, depth, product.a, np.float64, 1023, product.scale)
    if not _fits(low_a + low_b + product.scale, high_a + high_b + product.scale, k, window, values):
        return False
    passes = depth // product.unit.channels if places.active and product.store else 0
    step = max(1, _WORDS // (passes * n * ROWS)) if passes else values.shape[0]

    def work(begin: int, end: int) -> int:
        flags = 0
        for t in range(begin, end, step):
            stop = min(t + step, end)
            part = slice(t * ROWS, min(stop * ROWS, values.shape[0]))
            out = values[part]
            words = places.block(passes, first + part.start * n, out.size) if passes else _NO_WORDS
            flags |= loop(
                rows[0][t:stop],
                rows[1][t:stop],
                *columns,
                out,
                marks[part],
                words,
                constants,
                window,
            )
        return flags

    tiles = rows[0].shape[0]
    run_blocks(work, 0, tiles, max(1, _SMALLEST // max(1, n * k * ROWS)))
    return True


_NO_WORDS = NO_WORDS.reshape(1, -1)


def _pack(
    operand: Carrier, width: int, depth: int, fmt: Format, dtype: DTypeLike, bias: int, scale: int
) -> tuple[Packed, int, int]:
    """Rows of an operand as panels; smallest and largest exponent (huge if not finite)."""
    rows, k = operand.shape
    tiles = -(-rows // width)
    panels = np.zeros((tiles, depth, width), np.float32)
    whole = rows // width
    panels[:whole, :k] = operand[: whole * width].reshape(whole, width, k).swapaxes(1, 2)
    if whole < tiles:
        panels[whole, :k, : rows - whole * width] = operand[whole * width :].T
    values: Carrier = np.empty(panels.shape, dtype)
    exponents = np.empty(panels.shape, np.uint64)
    low, high, finite = pack(
        panels.view(np.uint32), values, exponents, bias + scale, fmt.emin, 2.0**scale
    )
    return (values, exponents), low, high if finite else _INFINITE


_INFINITE = 1 << 16


def _fits(low: int, high: int, k: int, window: int, start: Carrier) -> bool:
    """Whether no sum can overflow or be subnormal, the operands being finite.

    A product is below 2**(high + 2), and all sums are multiples of 2**(low - window) or of what the
    start is a multiple of.
    """
    most = float(np.abs(start).max(initial=0.0))
    if not most < 2.0**120 or high + 2 + k.bit_length() > 120 or low - window < -126:
        return False
    if most == 0:
        return True
    least = float(np.abs(start[start != 0]).min())
    return least >= 2.0 ** (window - 126)
