"""The ledger of products: rows by hand (golden), sums, and what leaves no row."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BINARY16, BINARY32, F143, FloatingPointTrap
from fpsim.records.evidence import Evidence
from ipu.machine import MK1, MK2_FP8, Device, FpCtl
from ipu.machine.cost.planner import Planner


def ones(device, rows, columns, fmt=BINARY16):
    return device.from_host(np.ones((rows, columns)), fmt)


def test_a_row_counts_whole_passes_and_useful_products():
    device = Device(partials=BINARY16)
    assert device.ledger.last is None
    device.matmul(ones(device, 5, 20), ones(device, 20, 9))
    row = device.ledger.last
    assert (row.verb, row.unit, row.instruction) == ("matmul", "AMP_F16_F16", "f16v4hihoamp")
    assert row.shape == "5×20 · 20×9 → 5×9"
    # Five rows of two blocks of eight columns: a tile each, two passes of sixteen channels.
    assert (row.tiles, row.passes, row.weight_loads, row.steps) == (10, 2, 2, 1)
    assert (row.macs, row.useful) == (5 * 32 * 16, 5 * 20 * 9)
    assert row.cycles == 2 * (4 + 32)
    assert (row.operand_bytes, row.result_bytes, row.partial_bytes) == (2 * (100 + 180), 90, 90)
    assert row.exchange_bytes == 0


def test_single_partials_cost_twice_the_cycles_and_bytes():
    device = Device("mk1")
    device.matmul(ones(device, 1, 16), ones(device, 16, 8), partials=BINARY32)
    row = device.ledger.last
    # The only pass leaves the half itself.
    assert (row.instruction, row.cycles) == ("f16v4sihoamp", 4 + 32)
    device.matmul(ones(device, 1, 17), ones(device, 17, 8), partials=BINARY32)
    assert device.ledger.last.instruction == "f16v4sisoamp"
    assert device.ledger.last.partial_bytes == 2 * device.ledger.last.result_bytes == 32
    assert device.target is MK1


def test_rows_of_one_tensor_add_up():
    device = Device()
    x, y = ones(device, 4, 16), ones(device, 16, 8)
    for _ in range(3):
        with device.naming("dense"):
            device.matmul(x, y)
    device.matmul(x, y, unit="AMP_F16_F16")
    total = device.ledger.rows["dense", "matmul", "AMP_F16_F32"]
    assert (total.products, total.macs) == (3, 3 * total.last.macs)
    assert len(device.ledger) == 2
    assert device.ledger.macs == 4 * (4 * 16 * 8)
    assert device.ledger.useful == 4 * (4 * 16 * 8)
    assert device.ledger.cycles == sum(t.cycles for t in device.ledger.rows.values())
    device.ledger.clear()
    assert (len(device.ledger), device.ledger.last, device.ledger.cycles) == (0, None, 0)


def test_the_table_says_what_it_rests_on():
    device = Device(planner=Planner(0.5, use_128bit_conv_unit_load=True))
    with device.naming("dense"):
        device.matmul(ones(device, 4, 16), ones(device, 16, 8))
    text = device.ledger.table()
    lines = text.splitlines()
    assert lines[1].split()[:4] == ["dense", "matmul", "AMP_F16_F32", "f16v4sihoamp"]
    assert "not time" in text
    assert "multiply-adds per cycle: 32 (DOCUMENTED: Tile Vertex Instruction Set)" in text
    assert "bytes of weights loaded per cycle: 16" in text
    assert device.ledger.facts["share of memory for temporary data"].value == 0.5
    assert device.ledger.facts["choice of the unit"].evidence is Evidence.ASSUMED


def test_a_trapped_product_leaves_no_row():
    device = Device(control=FpCtl(oflo=True))
    x = device.from_host([[60000.0, 60000.0]], BINARY16)
    with pytest.raises(FloatingPointTrap):
        device.matmul(x, x.T)
    assert device.ledger.last is None
    assert device.units_used == {}


def test_quarters_leave_the_unit_as_halves():
    """300 is a half; in quarters it saturates, by the cast."""
    device = Device(MK2_FP8)
    x = device.from_host([[15.0] * 2], F143)
    y = device.from_host([[10.0]] * 2, F143)
    assert device.matmul(x, y, to=BINARY16).values.tolist() == [[300.0]]
    assert device.matmul(x, y).values.tolist() == [[240.0]]
    assert device.status.oflo
    assert device.ledger.last.result_bytes == 2


@pytest.mark.parametrize(("nanoo", "expected"), [(False, 240.0), (True, np.nan)])
def test_half_partials_of_quarters_follow_nanoo(nanoo, expected):
    device = Device(MK2_FP8, FpCtl(nanoo=nanoo))
    x = device.from_host([[240.0] * 40], F143)
    np.testing.assert_array_equal(device.matmul(x, x.T).values, np.float32([[expected]]))


# K split over tiles ---------------------------------------------------------------------------


def test_a_split_k_goes_over_the_wires_and_is_added_in_single():
    """Six passes in four parts: two for the busiest; three parts of 5x9 halves travel."""
    device = Device(partials=BINARY16)
    x, y = ones(device, 5, 96), ones(device, 96, 9)
    complete = device.matmul(x, y)
    row = device.ledger.last
    parts = device.matmul(x, y, k_split=4)
    split = device.ledger.last
    assert (complete.codes() == parts.codes()).all()
    assert (split.tiles, split.passes, split.weight_loads) == (40, 6, 2)
    assert (split.macs, split.useful) == (row.macs, row.useful)
    assert (split.partial_bytes, split.exchange_bytes) == (4 * 90, 3 * 90)
    # Each of forty tiles receives 3 of the 90 bytes from three others, four per cycle.
    assert split.cycles == 2 * (4 + 32) + -(-3 * 3 // 4)
    assert row.exchange_bytes == 0
    assert "bytes of exchange per cycle and tile: 4 (INFERRED" in device.ledger.table()


def test_operands_from_other_tiles_and_a_split_that_is_not_computed_stand_beside_the_cycles():
    device = Device(partials=BINARY16)
    device.matmul(ones(device, 5, 960), ones(device, 960, 9))
    row = device.ledger.last
    # Ten tiles: each receives a row of halves and half the weights, four bytes per cycle.
    assert (row.tiles, row.operand_cycles) == (10, (960 * 2 + 960 * 9) // 4)
    assert row.cycles == 60 * (4 + 32)
    # Sixty passes in 32 parts: two for the busiest; 31 of its one byte of partials arrive.
    assert row.split_saving == row.cycles - (2 * (4 + 32) + -(-31 * 1 // 4))
    assert device.ledger.operand_cycles == row.operand_cycles
    assert device.ledger.split_saving == row.split_saving
    device.matmul(ones(device, 5, 960), ones(device, 960, 9), k_split=4)
    assert device.ledger.last.split_saving == 0


def test_a_split_k_rounds_elsewhere():
    """4096 halves of 1 + 2**-8: half partials lose less of shorter sums."""
    device = Device(partials=BINARY16)
    x = ones(device, 1, 4096)
    y = device.from_host(np.full((4096, 1), 1 + 2.0**-8), BINARY16)
    results = [device.matmul(x, y, k_split=parts).values.item() for parts in (1, 64)]
    assert results == [4100.0, 4112.0]
    total = device.ledger.rows["", "matmul", "AMP_F16_F16"]
    assert total.exchange_bytes == 63 * 2


def test_a_split_k_has_its_bounds():
    device = Device()
    with pytest.raises(
        ValueError, match="k_split=2000 is more than the 1472 tiles of mk2; use few"
    ):
        device.matmul(ones(device, 1, 16), ones(device, 16, 1), k_split=2000)
    with pytest.raises(ValueError, match="parts=3 of a K of 32"):
        device.matmul(ones(device, 1, 32), ones(device, 32, 1), k_split=3)
