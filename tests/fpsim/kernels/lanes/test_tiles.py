"""Tiles in and out of memory; nothing beyond their edge is read or written (law)."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from fpsim.kernels.lanes.memory import pointer, splat_item
from fpsim.kernels.lanes.tiles import fetch, keep


@pytest.mark.parametrize(("m", "n"), [(4, 16), (3, 16), (4, 9), (1, 8), (2, 1)])
def test_a_tile_goes_there_and_back(m, n):
    @njit
    def loop(array, tile, out, one, m, n):
        none = splat_item(one, 0)
        fetch(pointer(tile), pointer(array), 2, 20, m, n, 4, 16, none)
        keep(pointer(out), pointer(tile), 2, 20, m, n, 16, none)

    array = np.arange(1, 101, dtype=np.float32)
    tile, out = np.full(64, -1, np.float32), np.full(100, -1, np.float32)
    loop(array, tile, out, np.zeros(1, np.uint64), m, n)
    expected_tile, expected = np.zeros((4, 16)), np.full(100, -1.0)
    for r in range(m):
        row = slice(2 + 20 * r, 2 + 20 * r + n)
        expected_tile[r, :n], expected[row] = array[row], array[row]
    assert np.array_equal(tile.reshape(4, 16), expected_tile)
    assert np.array_equal(out, expected)
