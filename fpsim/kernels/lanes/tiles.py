"""Tiles of outputs on their way between memory and a room of whole vectors.

A tile is some rows of outputs, each `wide` columns: one vector of lanes or two. At the edges of the
array it reaches over the last row or column, and only what lies inside is copied.
"""

from __future__ import annotations

from numba import njit

from fpsim.kernels.compiling import INLINE
from fpsim.kernels.lanes.memory import copy_item, load_float, store_float
from fpsim.kernels.lanes.vectors import as_bits, lanes_of

__all__ = ["fetch", "keep"]


@njit(**INLINE)
def fetch(tile, array, first, stride, m, n, height, wide, none):
    """tile (height, wide) = m rows of n numbers of an array, zeros around them."""
    lanes = lanes_of(none)
    for r in range(height):
        for c in range(0, wide, lanes):
            if r < m and n >= c + lanes:
                x = load_float(array, first + r * stride + c, none)
                store_float(tile, r * wide + c, as_bits(x))
                continue
            store_float(tile, r * wide + c, none)
            for i in range(c, min(n, c + lanes) if r < m else 0):
                copy_item(tile, r * wide + i, array, first + r * stride + i)


@njit(**INLINE)
def keep(array, tile, first, stride, m, n, wide, none):
    """m rows of n numbers of an array = those of a tile of `wide` columns."""
    lanes = lanes_of(none)
    for r in range(m):
        for c in range(0, wide, lanes):
            if n >= c + lanes:
                x = load_float(tile, r * wide + c, none)
                store_float(array, first + r * stride + c, as_bits(x))
                continue
            for i in range(c, min(n, c + lanes)):
                copy_item(array, first + r * stride + i, tile, r * wide + i)
