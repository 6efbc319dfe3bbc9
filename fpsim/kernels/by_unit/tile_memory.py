"""Tiles of a matrix unit: eight vectors of lanes, their rows, signs and flags.

Source    docs/semantics.md §5.
"""

from __future__ import annotations

from numba import njit

from fpsim.kernels.by_unit.terms import COLUMNS
from fpsim.kernels.compiling import INLINE
from fpsim.kernels.lanes.arithmetic import again, item, plus
from fpsim.kernels.lanes.formula import formula
from fpsim.kernels.lanes.memory import load_few, load_float, load_raw, store_few, store_float
from fpsim.kernels.lanes.vectors import (
    as_bits,
    as_float,
    infinity_like,
    lanes_of,
    sign_like,
    umax,
)

__all__ = [
    "clear_flags", "fetch_rows", "keep_rows", "lanewise_bases_of", "largest_field", "load_tile",
    "merge_flags", "positive", "put_tile", "read_apart", "row_bases_of",
    "signed",
]


@formula
def positive(c):
    """A tile with +0 for -0: a sum of zero is +0."""
    return tuple(acc + 0.0 for acc in c)


@formula
def load_tile(tile, rows, none):
    """A tile out of memory, as many vectors as there are rows of them, with +0 for -0."""
    lanes = lanes_of(none)
    return tuple(load_float(tile, i * lanes, none) + 0.0 for i in range(len(rows)))


@formula
def put_tile(tile, c):
    """A tile into memory, of floats or of their bits."""
    lanes = lanes_of(c[0])
    for i, acc in enumerate(c):
        store_float(tile, i * lanes, as_bits(acc))
    return c[0]


@formula
def signed(c, before):
    """Partials with the sign of the sums; a sum of zero is +0."""
    lanes = lanes_of(c[0])
    signed = []
    for i, acc in enumerate(c):
        bits = as_bits(as_float(load_raw(before, i * lanes, c[0])) + 0.0)
        signed.append(as_float(as_bits(acc) | (bits & sign_like(bits))))
    return tuple(signed)


@formula
def row_bases_of(bases, block, vectors, none):
    """Where the row of each vector begins."""
    lanes = lanes_of(none)
    return tuple(item(bases, plus(block, i * lanes // COLUMNS)) for i in range(vectors))


@formula
def read_apart(x, none):
    """Where rows begin, hidden for the second vector of a row: it reads its left factors itself.

    A broadcast that is not part of a product takes time from sums that do not wait for products.
    """
    lanes = lanes_of(none)
    return tuple(again(row) if i * lanes % COLUMNS else row for i, row in enumerate(x))


@formula
def lanewise_bases_of(bases, block, column, vectors, none):
    """Where the row of each vector begins, and in it the left factors of the vector's columns."""
    lanes = lanes_of(none)
    rows = [item(bases, plus(block, i * lanes // COLUMNS)) for i in range(vectors)]
    return tuple(plus(x, plus(column, i * lanes % COLUMNS)) for i, x in enumerate(rows))


@formula
def largest_field(c, none):
    """At least as large as every exponent field of a tile."""
    for acc in c:
        none = umax(none, as_bits(acc) & infinity_like(none))
    return none


@njit(**INLINE)
def clear_flags(element_flags):
    """Lower all flags of a tile."""
    for i in range(128):
        element_flags[i] = 0


@njit(**INLINE)
def merge_flags(element_flags, tile, places, row, column, m, n):
    """Raise the flags of a tile at its outputs: n columns of the rows at places[row:row + m]."""
    for r in range(m):
        for c in range(n):
            at = places[row + r] + column + c
            element_flags[at] = element_flags[at] | tile[r * COLUMNS + c]


@njit(**INLINE)
def fetch_rows(tile, array, places, row, column, m, n, height, none):
    """A tile, `height` rows = n columns of the rows of an array at places[row:row + m], else 0."""
    lanes = lanes_of(none)
    for r in range(height):
        for c in range(0, COLUMNS, lanes):
            bits = none
            if r < m and n >= c + lanes:
                bits = as_bits(load_float(array, places[row + r] + column + c, none))
            elif r < m and n > c:
                bits = as_bits(load_few(array, places[row + r] + column + c, n - c, none))
            store_float(tile, r * COLUMNS + c, bits)


@njit(**INLINE)
def keep_rows(array, tile, places, row, column, m, n, none):
    """n columns of the rows of an array at places[row:row + m] = those of a tile."""
    lanes = lanes_of(none)
    for r in range(m):
        at = places[row + r] + column
        for c in range(0, COLUMNS, lanes):
            if n >= c + lanes:
                x = load_float(tile, r * COLUMNS + c, none)
                store_float(array, at + c, as_bits(x))
            elif n > c:
                x = load_float(tile, r * COLUMNS + c, none)
                store_few(array, at + c, n - c, as_bits(x))
