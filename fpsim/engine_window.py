"""Products through windowed units by the kernel in binary64 lanes, where its conditions hold.

Source    docs/semantics.md §5; the bounds are derived at `_fits`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fpsim.arithmetic import Carrier
from fpsim.formats import BINARY32, Format
from fpsim.kernels.elementwise import NO_WORDS
from fpsim.kernels.gemm_window import (
    COLUMNS,
    CUT,
    NEAREST,
    ROWS,
    WHOLE,
    WindowVariant,
    pack,
    window_kernel,
)  # fmt: skip
from fpsim.parallel import run_blocks
from fpsim.places import Places
from fpsim.product import Marks, Product, nearest
from fpsim.rounding import RNE, RTZ

__all__ = ["NO_CONSTANTS", "Packed", "packed", "run_tiles", "run_window"]

#: Random words of a block of rows, at most, and products below which one thread is enough.
_WORDS, _SMALLEST = 1 << 20, 1 << 19

NO_CONSTANTS = np.zeros(64, np.uint64)

Words = NDArray[np.uint32]

#: Largest exponent of an operand that is not finite.
_INFINITE = 1 << 16

_NO_WORDS = NO_WORDS.reshape(1, -1)


class Packed(NamedTuple):
    """An operand in panels, and the smallest and largest exponent of its numbers."""

    values: Carrier
    exponents: NDArray[np.uint64]
    low: int
    high: int


class Plan(NamedTuple):
    """A record as the kernel takes it."""

    variant: WindowVariant
    constants: NDArray[np.uint64]
    window: int
    edge: np.uint64


@lru_cache(maxsize=256)
def _plan(product: Product) -> Plan | None:
    """How the kernel runs a product; None for records it does not know."""
    unit, store = product.unit, product.store
    if (
        unit.window is None
        or unit.cut != "truncate"
        or unit.join is not None
        or unit.order != "ascending"
        or unit.window + (unit.terms + 1).bit_length() > 50
    ):
        return None
    accumulator, edge, sums = unit.accumulator, 0, NEAREST
    if accumulator.emin == BINARY32.emin and unit.rounding is RTZ:
        sums, edge = CUT, (1 << 64) - (1 << (53 - accumulator.precision))
    elif accumulator == unit.partials and unit.chain == 1 and unit.rounding is RNE:
        if accumulator != BINARY32:
            sums, edge = WHOLE, (1023 + accumulator.emin) << 52
            store = nearest(accumulator)
    elif accumulator != BINARY32:
        return None
    how = (store.wide.mode, False, store.wide.residual) if store else (0, False, 0)
    variant = WindowVariant(unit.terms, unit.chain, sums, int(store is not None), *how)
    constants = store.wide.constants if store else NO_CONSTANTS
    return Plan(variant, constants, unit.window, np.uint64(edge))


def run_window(
    product: Product, a: Carrier, b: Carrier, values: Carrier, marks: Marks, places: Places
) -> bool:  # fmt: skip
    """One matrix product into values and marks; False if this kernel must not run it."""
    found = _plan(product)
    if found is None:
        return False
    variant, constants, window, edge = found
    loop = window_kernel(variant._replace(low=places.low and product.store is not None))
    depth = product.depth(a.shape[1])
    columns = packed(b.T, COLUMNS, depth, product.b, np.float32)
    rows = packed(a, ROWS, depth, product.a, np.float64, bias=1023, scale=product.scale)
    low = rows.low + columns.low + product.scale
    high = rows.high + columns.high + product.scale
    if not _fits(low, high, a.shape[1], window, values):
        return False

    def call(tiles: slice, out: Carrier, out_marks: Marks, words: Words) -> int:
        flags: int = loop(
            rows.values[tiles], rows.exponents[tiles], columns.values, columns.exponents, out,
            out_marks, words, constants, window, edge,
        )  # fmt: skip
        return flags

    run_tiles(product, call, rows, values, marks, places, a.shape[1])
    return True


def run_tiles(
    product: Product, call: Callable[[slice, Carrier, Marks, Words], int], rows: Packed,
    values: Carrier, marks: Marks, places: Places, k: int,
) -> None:  # fmt: skip
    """Blocks of rows on several threads, each with the random words of its stores."""
    n = values.shape[1]
    passes = product.passes(k) if places.active and product.store else 0
    step = max(1, _WORDS // (passes * n * ROWS)) if passes else values.shape[0]

    def work(begin: int, end: int) -> int:
        flags = 0
        for t in range(begin, end, step):
            stop = min(t + step, end)
            part = slice(t * ROWS, min(stop * ROWS, values.shape[0]))
            out = values[part]
            words = places.part(part.start).block(passes, out.shape) if passes else _NO_WORDS
            flags |= call(slice(t, stop), out, marks[part], words)
        return flags

    run_blocks(work, 0, rows.values.shape[0], max(1, _SMALLEST // max(1, n * k * ROWS)))


def packed(
    operand: Carrier, width: int, depth: int, fmt: Format, dtype: DTypeLike, *, bias: int = 0,
    scale: int = 0, tables: bool = True, even: bool = False,
) -> Packed:  # fmt: skip
    """Rows of an operand as panels (tiles, depth, width), padded with zeros."""
    rows, k = operand.shape
    tiles, whole = -(-rows // width), rows // width
    kept = tiles + tiles % 2 if even else tiles
    # Eight elements are packed at a time, which four rows of an odd depth may end in the middle of.
    made = kept + kept % 2 if depth * width % 8 else kept
    panels = np.zeros((made, depth, width), np.float32)
    panels[:whole, :k] = operand[: whole * width].reshape(whole, width, k).swapaxes(1, 2)
    if whole < tiles:
        panels[whole, :k, : rows - whole * width] = operand[whole * width :].T
    values: Carrier = np.empty(panels.shape, dtype)
    exponents = np.empty(panels.shape if tables else (0,), np.uint64)
    low, high, finite = pack(
        panels.view(np.uint32), values, exponents, bias + scale, fmt.emin, 2.0**scale
    )
    return Packed(values[:kept], exponents[:kept], low, high if finite else _INFINITE)


def _fits(low: int, high: int, k: int, window: int, start: Carrier) -> bool:
    """Whether no sum can overflow or be subnormal, the operands being finite.

    A product is below 2**(high + 2), and all sums are multiples of 2**(low - window) or of what the
    start is a multiple of.
    """
    if high + 2 + k.bit_length() > 120 or low - window < -126 or not np.isfinite(start).all():
        return False
    if not start.any():
        return True
    size = np.abs(start[start != 0])
    return bool(size.max() < 2.0**120 and size.min() >= 2.0 ** (window - 126))
