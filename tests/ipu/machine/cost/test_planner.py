"""The cost model against splits tried one by one (differential), and its laws."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from fpsim.records.evidence import Fact
from fpsim.records.units import find_unit
from ipu.machine import MK1, MK2
from ipu.machine.cost.planner import (
    Planner,
    ProductMemory,
    exchanged,
    multiply_adds,
    price,
    split_price,
)
from ipu.machine.cost.work import Work, of_matmul

NOTHING = ProductMemory(0, 0, 0)


WIDE = MK2.instruction(find_unit("AMP_F16_F16"))


def cheapest(work, instruction, tiles, load):
    """Every split of columns, rows as far as the tiles go: the fewest cycles."""
    results = []
    for across in range(1, work.blocks + 1):
        for down in range(1, work.positions + 1):
            if across * down <= tiles:
                rows, blocks = math.ceil(work.positions / down), math.ceil(work.blocks / across)
                results.append(blocks * work.passes * (rows * instruction.cycles + load))
    return min(results)


@pytest.mark.parametrize("work", [Work(1, 1, 1, 0), Work(7, 3, 5, 0), Work(40, 2, 9, 0),
                                  Work(3, 4, 50, 0)])
@pytest.mark.parametrize("tiles", [1, 2, 7, 12, 1000])
def test_no_split_is_cheaper(work, tiles):
    got = price(work, NOTHING, WIDE, MK2, tiles=tiles)
    assert got.cycles == cheapest(work, WIDE, tiles, load=64)
    assert got.tiles <= tiles
    assert multiply_adds(work, WIDE) == math.prod(work[:3]) * 16 * 16


@pytest.mark.source("poplibs: PerformanceEstimation.hpp")
@pytest.mark.parametrize(
    ("unit", "target", "cycles"),
    [("AMP_F16_F16", MK1, 32), ("AMP_F16_F16", MK2, 64), ("AMP_F16_F32", MK2, 32),
     ("AMP_F32_F32", MK1, 32), ("AMP_F32_F32", MK2, 64)],
)
def test_a_load_of_weights_takes_units_times_32_bytes_at_8_or_16_per_cycle(unit, target, cycles):
    instruction = target.instruction(find_unit(unit))
    for wide, share in ((False, 1), (True, 2)):
        got = price(Work(1, 1, 1, 0), NOTHING, instruction, target, Planner(1, wide))
        assert got.cycles - instruction.cycles == cycles / share


@pytest.mark.source("S3-01")
def test_more_temporary_memory_means_fewer_steps():
    small = replace(MK2, tile_memory=Fact(10_000, *_known(MK2.tile_memory)))
    work, memory = Work(1000, 4, 4, 0), ProductMemory(64_000, 4096, 64_000)
    got = [
        price(work, memory, WIDE, small, Planner(share), tiles=4) for share in (0.1, 0.3, 0.6, 1)
    ]
    steps = [p.steps for p in got]
    assert steps == sorted(steps, reverse=True)
    assert steps[0] > steps[-1] > 1
    assert [p.weight_loads for p in got] == [4 * s for s in steps]
    assert got[0].cycles > got[-1].cycles
    assert price(work, memory, WIDE, MK2, Planner(0.6), tiles=4).steps == 1


@pytest.mark.source("S3-01")
def test_less_memory_never_takes_more_temporary_bytes_also_where_no_split_fits():
    """With a thousandth of a tile no split fits; the fastest of all would need the most."""
    unit = MK2.instruction(find_unit("AMP_F32_F32"))
    work, memory = Work(64, 8, 64, 0), ProductMemory(131_072, 1_048_576, 131_072)
    got = [price(work, memory, unit, MK2, Planner(share)) for share in (1e-3, 5e-3, 0.05, 0.6)]
    needed = [p.tiles * p.temporary for p in got]
    assert needed == sorted(needed)
    assert needed[0] < needed[-1]
    assert [p.cycles for p in got] == sorted((p.cycles for p in got), reverse=True)


def _known(fact):
    return fact.evidence, fact.source


@pytest.mark.parametrize("share", [0, -1, 1.5])
def test_a_share_of_memory_is_a_share(share):
    with pytest.raises(
        ValueError, match=r"available_memory_proportion=.* is out of range; use more"
    ):
        Planner(share)


def test_nothing_costs_nothing():
    assert price(Work(0, 3, 2, 0), NOTHING, WIDE, MK2) == (0, 0, 0, 0, 0, 0)


def test_stacks_of_matrices_are_groups():
    assert of_matmul((5, 4, 20), (20, 30), WIDE) == (20, 2, 2, 5 * 4 * 20 * 30)
    assert of_matmul((5, 4, 20), (5, 20, 30), WIDE) == (4, 2, 10, 5 * 4 * 20 * 30)
    assert of_matmul((4, 20), (5, 20, 30), WIDE) == (4, 2, 10, 5 * 4 * 20 * 30)
    assert of_matmul((1, 4, 20), (0, 20, 30), WIDE) == (4, 2, 0, 0)


def test_parts_of_a_reduction_travel_once_and_are_added_everywhere():
    """Eight copies of 1024 bytes on 32 tiles: each adds 32 bytes and gets them seven times."""
    assert exchanged(1024, 1, 32, MK2) == (0, 0)
    assert exchanged(1024, 8, 32, MK2) == (7 * 1024, 7 * 32 / 4)
    assert exchanged(1000, 8, 32, MK2) == (7 * 1000, 7 * 32 / 4)


@pytest.mark.source("S4-02")
@pytest.mark.parametrize(("unit", "rate"), [("F16_F16", 64), ("F16_F32", 32), ("F32_F32", 16)])
def test_large_products_come_near_the_peak(unit, rate):
    """2048 rows of one block on each tile: a load is 64 cycles in 8256, 32 of 16.32 the same."""
    instruction = MK2.instruction(find_unit(f"AMP_{unit}"))
    work = of_matmul((2048, 64), (64, 1472 * instruction.columns), instruction)
    got = price(work, NOTHING, instruction, MK2)
    assert got.tiles == 1472
    assert work.useful / got.cycles / 1472 == pytest.approx(rate, rel=0.01)


@pytest.mark.parametrize("work", [Work(16, 64, 1, 0), Work(100, 3, 20, 0), Work(5, 1, 1, 0)])
def test_k_is_split_where_that_is_cheaper_with_its_reduction(work):
    memory = ProductMemory(32 * work.positions * work.passes, 512 * work.passes, 4096)
    whole = price(work, memory, WIDE, MK2).cycles
    halves = []
    for parts in (2, 4, 8, 16, 32, 64):
        if parts <= work.passes:
            share = work._replace(passes=math.ceil(work.passes / parts))
            cost = price(share, memory.share(parts), WIDE, MK2, tiles=1472 // parts)
            wires = exchanged(4096, parts, parts * cost.tiles, MK2)
            halves.append(cost.cycles + wires.cycles)
    assert split_price(work, memory, WIDE, MK2) == min([whole, *halves])
    assert (split_price(work, memory, WIDE, MK2) < whole) == (work.passes > 1)


def test_a_tile_receives_its_part_of_the_operands():
    """Two rows and two columns of tiles: half of the left operand, half of the weights."""
    got = price(Work(2, 1, 2, 0), ProductMemory(640, 1024, 64), WIDE, MK2, tiles=4)
    assert (got.tiles, got.operands) == (4, 320 + 512)
    alone = price(Work(2, 1, 2, 0), ProductMemory(640, 1024, 64), WIDE, MK2, tiles=1)
    assert alone.operands == 640 + 1024
