"""Rows of numbers, wherever they lie in memory, as tiles: element by element, lanes are rows.

A matrix of rows is a pointer and steps, so that no row is ever copied whole. Row r is part
r mod `parts` of output r div `parts`.
"""

from __future__ import annotations

from numba import njit

from fpsim.kernels.compiling import INLINE
from fpsim.kernels.lanes.memory import copy_item

__all__ = ["TILE", "clear_tile", "put_columns", "put_tile", "row_start"]

#: Elements of each row in a tile; even, so that neighbours of a pair are in one tile.
TILE = 64


@njit(**INLINE)
def row_start(row, parts, output_step, part_step):
    """Where a row begins, in elements from the first one."""
    return row // parts * output_step + row % parts * part_step


@njit(**INLINE)
def clear_tile(tile, lanes):
    """Zeros everywhere: lanes without a row keep them."""
    for i in range(TILE * lanes):
        tile[i] = 0


@njit(**INLINE)
def put_tile(tile, lanes, lane, source, start, step, m):
    """One lane of a tile = m elements of a row from source[start] on."""
    for k in range(m):
        copy_item(tile, k * lanes + lane, source, start + k * step)


@njit(**INLINE)
def put_columns(tile, lanes, few, source, start, step, m):
    """`few` lanes of a tile where rows lie side by side, m elements of each."""
    for k in range(m):
        for lane in range(few):
            copy_item(tile, k * lanes + lane, source, start + k * step + lane)
