"""Tiles of rows: every lane has its row, wherever that lies (exhaustive over small cases)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim.kernels.by_operation.rows import TILE, clear_tile, put_columns, put_tile, row_start
from fpsim.kernels.compiling import compiled
from fpsim.kernels.lanes.memory import pointer


@compiled
def tile_of(source, starts, step, m, tile):
    data, out = pointer(source), pointer(tile)
    clear_tile(out, 4)
    for lane in range(starts.shape[0]):
        put_tile(out, 4, lane, data, starts[lane], step, m)


@compiled
def columns_of(source, few, step, m, tile):
    data, out = pointer(source), pointer(tile)
    clear_tile(out, 4)
    put_columns(out, 4, few, data, 0, step, m)


@compiled
def start_of(row, parts, output_step, part_step):
    return row_start(row, parts, output_step, part_step)


@pytest.mark.parametrize("few", [1, 3, 4])
def test_lanes_are_rows_and_the_others_zeros(few):
    x = np.arange(1, 4 * TILE + 1, dtype=np.float32).reshape(4, TILE)
    tile = np.full(4 * TILE, np.nan, np.float32)
    tile_of(x.reshape(-1), np.arange(few) * TILE, 1, TILE, tile)
    wanted = np.where(np.arange(4)[:, None] < few, x, 0)
    assert np.array_equal(tile.reshape(TILE, 4), wanted.T)
    tile_of(np.ascontiguousarray(x.T).reshape(-1), np.arange(few), 4, TILE, tile)
    assert np.array_equal(tile.reshape(TILE, 4), wanted.T)
    columns_of(np.ascontiguousarray(x.T).reshape(-1), few, 4, TILE, tile)
    assert np.array_equal(tile.reshape(TILE, 4), wanted.T)


def test_parts_of_outputs_lie_one_after_the_other():
    places = [int(start_of(row, 3, 100, 7)) for row in range(7)]
    assert places == [0, 7, 14, 100, 107, 114, 200]
