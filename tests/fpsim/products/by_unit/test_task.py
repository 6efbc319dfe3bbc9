"""What the loop of tiles gets: memory, variants and their constants (corners)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import fpsim as fp
from fpsim.kernels.by_unit.panels import PLAIN
from fpsim.kernels.by_unit.terms import COLUMNS
from fpsim.kernels.by_unit.tiles import EXACT, PARTIALS, UNGUARDED
from fpsim.kernels.target import PRODUCT_BITS
from fpsim.products.by_unit import task as tasks
from fpsim.products.by_unit.task import OperandTable, TileTask, tile_variant
from fpsim.products.by_unit.unit_settings import UnitSettings
from fpsim.records.units import MatrixUnit

UNIT = MatrixUnit("TEST_F16_F16", "none", (fp.BINARY16,), fp.BINARY16, terms=4, calls=2, window=23)


def settings(unit=UNIT, **choices):
    context = fp.Context(unit.partials, **choices)
    return UnitSettings(unit, fp.BINARY16, fp.BINARY16, context.core.settings)


@pytest.mark.parametrize(
    ("values", "exponents", "kinds"),
    [
        (32, 32, (np.float32, np.uint32)),
        (64, 0, (np.float64, np.uint32)),
        (0, 64, (np.float32, np.uint64)),
        (64, 64, (np.float64, np.uint64)),
    ],
)
def test_a_table_has_room_for_what_it_holds(values, exponents, kinds):
    table = OperandTable(values, exponents, PLAIN)
    assert table.bytes == (values + exponents) // 8
    rooms = table.room("test", (3, 5))
    for room, bits, kind in zip(rooms, (values, exponents), kinds, strict=True):
        assert room.shape == ((3, 5) if bits else (0, 0))
        assert room.dtype == kind
        room[...] = 1  # writable, and no memory of the other
    assert not np.shares_memory(*rooms)


def test_a_room_that_is_not_large_is_the_same_again():
    table = OperandTable(64, 0, PLAIN)
    first, _ = table.room("again", (8, 8))
    second, _ = table.room("again", (4, 4))
    assert np.shares_memory(first, second)
    assert not np.shares_memory(first, table.room("other", (8, 8))[0])
    large = 1100, 1000  # more than is kept
    assert not np.shares_memory(table.room("large", large)[0], table.room("large", large)[0])


@pytest.mark.parametrize("width", [32, 64])
def test_a_tile_is_as_high_as_its_lanes_are_narrow(width):
    variant, constants = tile_variant(EXACT, settings(), settings().store, False, width)
    table = OperandTable(0, 0, PLAIN)
    task = TileTask(variant, width, constants, np.zeros(3), table, table)
    assert task.height * COLUMNS * width == variant.vectors * PRODUCT_BITS
    assert task.zero.tolist() == [0]
    assert task.zero.dtype.itemsize * 8 == width
    assert constants.dtype.itemsize * 8 == width


def test_a_variant_has_the_record_and_the_store():
    one = settings(rounding=fp.SR(9))
    variant, constants = tile_variant(EXACT, one, one.store, True, 32, guard=UNGUARDED)
    assert variant[:3] == (EXACT, 4, 2)
    assert (variant.store, variant.supplied, variant.wide) == (True, True, False)
    assert variant.mode == one.store.narrow.mode
    assert variant.guard == UNGUARDED | PARTIALS
    assert constants is one.store.narrow.constants
    _, wide = tile_variant(EXACT, one, one.store, True, 64)
    assert wide is one.store.wide.constants
    tile, _ = tile_variant(EXACT, one, one.store, False, 32)
    assert not tile.supplied
    long = settings(rounding=fp.SR(20))
    assert tile_variant(EXACT, long, long.store, False, 64)[0].wide


def test_random_words_are_for_stores_that_round_stochastically():
    nearest = settings()
    variant, _ = tile_variant(EXACT, nearest, nearest.store, True, 32)
    assert (variant.store, variant.supplied, variant.wide) == (True, False, False)
    none = settings(replace(UNIT, partials=fp.BINARY32))
    variant, constants = tile_variant(EXACT, none, none.store, True, 32)
    assert not variant.store
    assert not constants.any()


def test_stores_that_flush_are_not_guarded():
    flushed = settings(subnormals="flush_results")
    assert tile_variant(EXACT, flushed, flushed.store, False, 32)[0].guard & PARTIALS == 0
    gradual = settings()
    assert tile_variant(EXACT, gradual, gradual.store, False, 32)[0].guard & PARTIALS


def test_a_thread_keeps_memory_by_name_and_no_views_of_memory_that_was_too_small():
    first = tasks.room("test", (3, 4), np.float32)
    assert tasks.room("test", (3, 4), np.float32) is first
    assert np.shares_memory(tasks.room("test", (5,), np.int64), first)
    assert not np.shares_memory(tasks.room("another test", (3, 4), np.float32), first)
    larger = tasks.room("test", (1000,), np.float64)
    assert not np.shares_memory(larger, first)
    assert np.shares_memory(tasks.room("test", (3, 4), np.float32), larger)
    assert tasks.room("test", (0, 16), np.float32).shape == (0, 16)
    for n in range(1, 600):
        tasks.room("test", (n,), np.float32)
    assert len(tasks._rooms.__dict__) <= tasks._MOST_VIEWS + 1


def test_much_memory_is_not_kept():
    size = tasks._KEPT + 1
    assert tasks.room("much", (size,), np.uint8) is not tasks.room("much", (size,), np.uint8)
