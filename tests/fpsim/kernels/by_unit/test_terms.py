"""Which numbers the vectors of a tile read, and in which order (law), against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim.kernels.by_unit.terms import COLUMNS, exponents, values
from fpsim.kernels.by_unit.tile_memory import load_tile, put_tile, row_bases_of
from fpsim.kernels.compiling import compiled
from fpsim.kernels.lanes.formula import formula
from fpsim.kernels.lanes.memory import pointer, splat_item
from fpsim.kernels.lanes.vectors import as_float

TERMS, DEPTH, VECTORS = 3, 7, 8


@formula
def chained(c, a, x, o, b, y):
    """acc = 2 acc + u v / 2 term by term: every order of the terms gives another number."""
    for factors in values(TERMS, c, a, x, o, b, y):
        c = [acc + acc + u * v * 0.5 for acc, (u, v) in zip(c, factors, strict=True)]
    return tuple(c)


@formula
def fields(c, a, x, o, b, y):
    """The same of the exponent fields, as bits."""
    totals = None
    for terms in exponents(TERMS, c, a, x, o, b, y):
        if totals is None:
            totals = terms
        else:
            totals = [t + t + field for t, field in zip(totals, terms, strict=True)]
    return tuple(as_float(total) for total in totals)


@compiled
def loop(left, right, bases, block, offsets, first, tile, products, sums):
    a = pointer(left[0]), pointer(left[1])
    b = pointer(right[0]), pointer(right[1])
    none = splat_item(left[1], 0) ^ splat_item(left[1], 0)
    x = row_bases_of(pointer(bases), block, VECTORS, none)
    c, o, y = load_tile(pointer(tile), x, none), (pointer(offsets), first), first * COLUMNS
    put_tile(pointer(products), chained(c, a, x, o, b, y))
    put_tile(pointer(sums), fields(c, a, x, o, b, y))


@pytest.mark.parametrize("width", [32, 64])
@pytest.mark.parametrize("first", [0, 4])
def test_terms_stand_at_row_bases_and_offsets_and_rows_of_the_panel(width, first):
    rng = np.random.default_rng(width + first)
    dtype, word, height = f"f{width // 8}", f"u{width // 8}", 256 // width
    a, b = (rng.integers(-9, 9, n).astype(dtype) for n in (60, DEPTH * COLUMNS))
    u, v = (rng.integers(0, 1000, n).astype(word) for n in (60, DEPTH * COLUMNS))
    bases = rng.integers(0, 40, height)
    offsets = rng.permutation(20)[:DEPTH]
    tile = rng.integers(-9, 9, height * COLUMNS).astype(dtype)
    products, sums = np.zeros_like(tile), np.zeros(tile.size, word)
    loop((a, u), (b, v), bases, 0, offsets, first, tile, products, sums)
    expected, counts = tile.reshape(-1, COLUMNS).copy(), np.zeros((height, COLUMNS), word)
    for t in range(first, first + TERMS):
        at = bases + offsets[t]
        row = slice(t * COLUMNS, (t + 1) * COLUMNS)
        expected = 2 * expected + np.outer(a[at], b[row]) / 2
        counts = 2 * counts + np.add.outer(u[at], v[row])
    assert np.array_equal(products.reshape(-1, COLUMNS), expected)
    assert np.array_equal(sums.reshape(-1, COLUMNS), counts)
