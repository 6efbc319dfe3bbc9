"""Slots, cycles and stashes against published tables (golden) and general formulas (law)."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu.plan.cycles import timeline
from ipu.plan.measures import (
    cycles,
    full_slots,
    guide_stash,
    held_between_slots,
    latency,
    peak_inside_slot,
    utilisation,
)
from ipu.plan.memory import StageFigures
from ipu.plan.plan import Plan
from ipu.plan.schedule import Phase, fifo_depths, n_slots, programs

F, B, R = Phase.FORWARD, Phase.BACKWARD, Phase.RECOMPUTE
NAMES = ("grouped", "popart", "interleaved", "sequential")
LINE = (0, 1, 2, 3)


def cost(program):
    return {F: 1, B: 2}.get(program.phase, 0)


def unbalanced(program):
    return cost(program) * (2 if program.stage == 1 else 1)


def by_column(name):
    return NAMES.index(name)


@pytest.mark.source("S0-33", "S0-34", "S0-35", "X-01", "X-11")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("count", "slots", "busy", "time", "share"),
    [
        (8, (15, 14, 22, 64), (9, 8, 10, 0), (33, 33, 40, 96), (0.727, 0.727, 0.600, 0.25)),
        (16, (23, 22, 38, 128), (17, 16, 26, 0), (57, 57, 72, 192), (0.842, 0.842, 0.667, 0.25)),
    ],
)
def test_known_answers_of_four_stages(name, count, slots, busy, time, share):
    column = by_column(name)
    work = programs(name, 4, LINE, count)
    assert work[-1].slot + 1 == n_slots(name, 4, LINE, count) == slots[column]
    assert len(full_slots(work)) == busy[column]
    assert cycles(work, cost) == time[column]
    assert utilisation(work, cost) == pytest.approx(share[column], abs=0.0005)


@pytest.mark.source("S3-02")
@pytest.mark.source("S3-05", "S3-06", "X-01")
@pytest.mark.parametrize(
    ("name", "first", "both", "depth", "held", "peak"),
    [
        ("grouped", 3, 7, (6, 4, 2, 0), (7, 5, 3, 1), (8, 6, 4, 2)),
        ("popart", 3, 6, (6, 4, 2, 0), (6, 4, 2, 0), (7, 5, 3, 1)),
        ("interleaved", 6, None, (3, 2, 1, 0), (4, 3, 2, 1), (4, 3, 2, 1)),
        ("sequential", None, None, (0, 0, 0, 0), (1, 1, 1, 1), (1, 1, 1, 1)),
    ],
)
def test_known_stash_and_first_full_slots_of_four_stages(name, first, both, depth, held, peak):
    work = programs(name, 4, LINE, 8)
    assert next(iter(full_slots(work)), None) == first
    assert next(iter(full_slots(work, both=True)), None) == both
    assert fifo_depths(name, 4) == depth
    assert held_between_slots(work) == held
    assert peak_inside_slot(work) == peak


@pytest.mark.source("S3-03", "S3-07")
def test_a_slot_is_as_long_as_its_busiest_ipu():
    times = {name: cycles(programs(name, 4, LINE, 16), unbalanced) for name in NAMES}
    assert (times["grouped"], times["interleaved"], times["sequential"]) == (101, 106, 240)
    assert cycles(programs("grouped", 4, LINE, 16), unbalanced, sync="group") == 105


def test_two_stages_on_an_ipu_share_its_slots():
    work = programs("grouped", 4, (0, 1, 1, 0), 8)
    assert work[-1].slot + 1 == 15
    assert cycles(work, cost) == 54


@pytest.mark.source("S2-03", "S3-05")
def test_the_guide_counts_what_is_held_with_one_stage_less():
    for n in range(2, 9):
        held = held_between_slots(programs("grouped", n, range(n), 2 * n))
        assert guide_stash("grouped", n - 1) == held[: n - 1]
        merged = peak_inside_slot(programs("popart", n, range(n), 2 * n))
        assert merged == held
    assert guide_stash("interleaved", 3) == (4, 4, 4)
    with pytest.raises(ValueError, match="the guide has no rule"):
        guide_stash("sequential", 3)
    # "after nine steps" of four IPUs: 3(N-1) columns of one phase before the first full slot.
    assert 3 * (4 - 1) == 2 * 4 + 1


@given(st.integers(1, 8), st.integers(0, 3))
def test_counts_equal_the_general_formulas(n, more):
    columns = 2 * n
    depth = tuple(range(columns - 2, -1, -2))
    grouped = programs("grouped", n, range(n), columns * (1 + more))
    assert fifo_depths("grouped", n) == depth
    assert held_between_slots(grouped) == tuple(d + 1 for d in depth)
    assert peak_inside_slot(grouped) == tuple(d + 2 for d in depth)
    popart = programs("popart", n, range(n), columns - 1 + more)
    assert held_between_slots(popart) == depth
    assert peak_inside_slot(popart) == tuple(d + 1 for d in depth)
    interleaved = programs("interleaved", n, range(n), n * (1 + more))
    assert held_between_slots(interleaved) == tuple(range(n, 0, -1))
    assert peak_inside_slot(interleaved) == tuple(range(n, 0, -1))
    assert latency(grouped) == latency(interleaved) == columns
    assert latency(popart) == columns - 1


def test_io_tiles_work_beside_the_others():
    work = programs("grouped", 2, (0, 1), 6, io_overlap=True)
    busy = cycles(work, cost)
    slow = cycles(work, lambda p: 100 if p.phase is Phase.INFEED else cost(p))
    assert busy == cycles(programs("grouped", 2, (0, 1), 8), cost) - 2 * 3
    assert slow == 600 + cycles([p for p in work if p.slot > 5], cost)


def test_recomputation_lengthens_slots_and_is_no_use():
    plain, again = (programs("grouped", 4, LINE, 8, recompute=mode) for mode in (None, "then"))

    def with_recomputation(program):
        return 1 if program.phase is R else cost(program)

    assert cycles(again, with_recomputation) > cycles(plain, cost)
    assert utilisation(again, with_recomputation) < utilisation(plain, cost)


def test_places_to_wait_are_two():
    with pytest.raises(ValueError, match="sync='never' is no place where IPUs wait"):
        cycles((), cost, sync="never")
    assert utilisation((), cost) == 0


@pytest.mark.source("S0-56")
def test_the_update_takes_a_share_of_the_cycles_that_falls_with_the_micro_batches():
    stage = StageFigures(forward_cycles=10, backward_cycles=20, update_cycles=300)
    shares = []
    for count in (8, 16, 64, 512):
        events = timeline(Plan([abs, abs], count=count), [stage, stage])
        total = max(event.start + event.cycles for event in events)
        updates = sum(e.cycles for e in events if e.kind == "update" and e.ipu == 0)
        assert updates == 300
        shares.append(updates / total)
    assert all(later < earlier for earlier, later in pairwise(shares))
