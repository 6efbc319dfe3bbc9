"""Tiles on their way between memory and the eight vectors of lanes that hold them.

Source    docs/semantics.md §5.
"""

from __future__ import annotations

from numba import njit

from fpsim.kernels.by_unit.terms import COLUMNS
from fpsim.kernels.compiling import INLINE
from fpsim.kernels.lanes.arithmetic import item, plus
from fpsim.kernels.lanes.formula import formula
from fpsim.kernels.lanes.memory import copy_item, load, load_float, store_float
from fpsim.kernels.lanes.vectors import as_bits, as_float, infinity_like, sign_like, umax, width_of

__all__ = [
    "clear_marks", "fetch", "keep", "largest_field", "load_tile", "positive", "put_tile",
    "raise_marks", "row_places", "signed",
]  # fmt: skip


@njit(**INLINE)
def fetch(tile, array, first, stride, m, n, none):
    """tile = m rows of n numbers of an array, zeros around them."""
    lanes = 512 // width_of(none)
    for r in range(lanes // 2):
        for c in range(0, COLUMNS, lanes):
            if r < m and n >= c + lanes:
                x = load_float(array, first + r * stride + c, none)
                store_float(tile, r * COLUMNS + c, as_bits(x))
                continue
            store_float(tile, r * COLUMNS + c, none)
            for i in range(c, min(n, c + lanes) if r < m else 0):
                copy_item(tile, r * COLUMNS + i, array, first + r * stride + i)


@njit(**INLINE)
def keep(array, tile, first, stride, m, n, wide, none):
    """The other way, from a tile of so many columns."""
    lanes = 512 // width_of(none)
    for r in range(m):
        for c in range(0, wide, lanes):
            if n >= c + lanes:
                x = load_float(tile, r * wide + c, none)
                store_float(array, first + r * stride + c, as_bits(x))
                continue
            for i in range(c, min(n, c + lanes)):
                copy_item(array, first + r * stride + i, tile, r * wide + i)


@formula
def positive(c):
    """A tile with +0 for -0: a sum of zero is +0."""
    return tuple(acc + 0.0 for acc in c)


@formula
def load_tile(tile, none):
    """A tile out of memory, with +0 for -0."""
    lanes = 512 // width_of(none)
    return tuple(load_float(tile, i * lanes, none) + 0.0 for i in range(8))


@formula
def put_tile(tile, c):
    """A tile into memory, of floats or of their bits."""
    lanes = 512 // width_of(c[0])
    for i, acc in enumerate(c):
        store_float(tile, i * lanes, as_bits(acc))
    return c[0]


@formula
def signed(c, before):
    """Partials with the sign of the sums; a sum of zero is +0."""
    lanes = 512 // width_of(c[0])
    signed = []
    for i, acc in enumerate(c):
        bits = as_bits(as_float(load(before, i * lanes)) + 0.0)
        signed.append(as_float(as_bits(acc) | (bits & sign_like(bits))))
    return tuple(signed)


@formula
def row_places(bases, block, none):
    """Where the row of each vector begins."""
    lanes = 512 // width_of(none)
    return tuple(item(bases, plus(block, i * lanes // COLUMNS)) for i in range(8))


@formula
def largest_field(c, none):
    """At least as large as every exponent field of a tile."""
    for acc in c:
        none = umax(none, as_bits(acc) & infinity_like(none))
    return none


@njit(**INLINE)
def clear_marks(marks):
    """No flags in a tile."""
    for i in range(128):
        marks[i] = 0


@njit(**INLINE)
def raise_marks(marks, tile, first, stride, m, n):
    """Flags of a tile into the marks of its outputs."""
    for r in range(m):
        for c in range(n):
            at = first + r * stride + c
            marks[at] = marks[at] | tile[r * COLUMNS + c]
