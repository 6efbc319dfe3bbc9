"""Tiles in memory: signs of zeros, bases of rows, flags at their outputs (corners)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim.kernels.by_unit import tile_memory as t
from fpsim.kernels.compiling import compiled
from fpsim.kernels.lanes.memory import load_word, pointer, splat_item, store, store_low
from fpsim.kernels.lanes.vectors import as_bits, as_float, or_lanes, width_of

#: A tile has as many vectors as there are bases of rows.
ROWS = (0,) * 8
VECTORS = len(ROWS)
WIDTHS = pytest.mark.parametrize("width", [32, 64])


@compiled
def signs(before, tile, out, word):
    none = splat_item(word, 0)
    c = t.load_tile(pointer(tile), ROWS, none)
    t.put_tile(pointer(out), t.signed(c, pointer(before)))
    return or_lanes(t.largest_field(c, none))


@compiled
def copied(tile, out, word):
    none = splat_item(word, 0)
    t.put_tile(pointer(out), t.load_tile(pointer(tile), ROWS, none))


@compiled
def without_minus_zero(tile, out, word):
    none = splat_item(word, 0)
    lanes = 512 // width_of(none)
    x = as_float(load_word(pointer(tile), 0, none)), as_float(load_word(pointer(tile), lanes, none))
    c, d = t.positive(x)
    store(pointer(out), 0, as_bits(c))
    store(pointer(out), lanes, as_bits(d))


def tile_of(numbers, width):
    """Eight vectors."""
    return np.resize(np.array(numbers, f"f{width // 8}"), 4096 // width)


def bits(x):
    return x.view(f"u{x.itemsize}").tolist()


@WIDTHS
def test_a_tile_goes_there_and_back_with_plus_zero(width):
    """Every place of the tile has a number of its own; only -0 changes."""
    word = np.zeros(1, f"u{width // 8}")
    tile = tile_of(np.arange(1, 129), width)
    tile[::7] = -0.0
    tile[3] = -np.inf
    out = np.full_like(tile, 7)
    copied(tile, out, word)
    assert bits(out) == bits(tile + 0)
    out[:] = 7
    without_minus_zero(tile.view(word.dtype), out.view(word.dtype), word)
    n = 1024 // width
    assert bits(out) == bits(np.append(tile[:n] + 0, [7] * (len(tile) - n)).astype(tile.dtype))


@WIDTHS
def test_partials_get_the_sign_of_their_sums(width):
    """A rounding to zero loses the sign, a sum of -0 has none."""
    before = tile_of([1.5, -1.5, -(2.0**-100), 2.0**-100, -0.0, 0.0, -np.inf], width)
    rounded = tile_of([1.5, 1.5, 0.0, 0.0, 0.0, 0.0, np.inf], width)
    expected = tile_of([1.5, -1.5, -0.0, 0.0, 0.0, 0.0, -np.inf], width)
    out = np.zeros_like(before)
    signs(before.view(f"u{width // 8}"), rounded, out, np.zeros(1, f"u{width // 8}"))
    assert bits(out) == bits(expected)


@WIDTHS
@pytest.mark.parametrize("place", [0, 17, -1])
def test_the_largest_field_is_seen_in_every_place(width, place):
    tile = tile_of([1.5], width)
    tile[place] = -(2.0**90)
    field = signs(tile.view(f"u{width // 8}"), tile, tile.copy(), np.zeros(1, f"u{width // 8}"))
    shift, bias = (23, 127) if width == 32 else (52, 1023)
    # The other lanes hold the field of 1, whose digits are among those of this one.
    assert field >> shift == (bias + 90) | bias


@compiled
def bases_of(bases, block, out, word):
    b = t.row_bases_of(pointer(bases), block, VECTORS, splat_item(word, 0))
    for i, base in enumerate(b):
        out[i] = base


@pytest.mark.parametrize(("width", "rows"), [(32, range(8)), (64, [0, 0, 1, 1, 2, 2, 3, 3])])
def test_a_row_has_one_vector_or_two(width, rows):
    bases, out = np.arange(100, 120), np.zeros(8, np.int64)
    bases_of(bases, 5, out, np.zeros(1, f"u{width // 8}"))
    assert out.tolist() == [105 + r for r in rows]


@compiled
def raise_flags(flags, tile, places, row, column, m, n):
    t.merge_flags(pointer(flags), pointer(tile), pointer(places), row, column, m, n)


@compiled
def clear(tile, word):
    t.clear_flags(pointer(tile))
    store_low(pointer(tile), 128, splat_item(word, 0))


def test_flags_are_added_where_the_tile_has_outputs():
    """The rows of a tile may stand anywhere in the result."""
    flags, tile = np.zeros((5, 20), np.uint8), np.arange(128).astype(np.uint8)
    flags[2] = 128
    raise_flags(flags.reshape(-1), tile, np.array([0, 80, 40]), 1, 3, 2, 16)
    expected = np.zeros((5, 20), np.uint8)
    expected[2] = 128
    expected[[4, 2], 3:19] |= tile[:32].reshape(2, 16)
    assert np.array_equal(flags, expected)


def test_all_flags_of_a_tile_are_lowered_and_none_behind_it():
    tile = np.full(160, 3, np.uint8)
    clear(tile, np.full(1, 9, np.uint32))
    assert tile.tolist() == [0] * 128 + [9] * 16 + [3] * 16
