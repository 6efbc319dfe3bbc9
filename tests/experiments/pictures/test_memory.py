"""Liveness and the tiles' memory: heights are the bytes of the account (differential)."""

from __future__ import annotations

import pytest
from matplotlib import pyplot as plt

from ipu.experiments.pictures.memory import draw_liveness, draw_tile_memory, in_bytes
from ipu.machine import MK2
from ipu.plan.memory import Live, capacity, lives, peaks
from ipu.run.pages.drawing import new_figure
from tests.experiments.pictures.plans import FIGURES, plan_of


@pytest.fixture
def axes():
    figure, (axes,) = new_figure(8, 3)
    yield axes
    plt.close(figure)


def test_the_stack_is_as_high_as_the_bytes_of_every_slot(axes):
    plan = plan_of(recompute=True, offload=("state",))
    rows = lives(plan, FIGURES)
    slots = range(plan.slots + 1)
    edges = {slot: 10.0 * slot for slot in slots}
    draw_liveness(axes, rows, 0, edges=edges, end=10.0 * len(slots), update=plan.slots)
    sums = {slot: sum(r.bytes for r in rows if r.slot == slot and r.ipu == 0) for slot in slots}
    outline = axes.lines[0]
    assert outline.get_xdata().tolist() == [*edges.values(), 10.0 * len(slots)]
    assert [1e3 * y for y in outline.get_ydata()] == pytest.approx([*sums.values(), sums[7]])
    kinds = {r.kind for r in rows if r.ipu == 0}
    assert len(axes.collections) == len(kinds)
    (words,) = axes.texts
    # weights 400, accumulators 400, queue 2 · 64, two more inputs of 64, tape 128, infeed 640
    assert max(sums.values()) == sums[3] == 1824
    assert words.get_text() == "peak 1 824 B in slot 3"
    assert axes.get_ylim()[1] > 1.824


def test_a_peak_in_the_update_is_called_so(axes):
    plan = plan_of(offload=("state",))
    rows = [row for row in lives(plan, FIGURES) if row.kind in ("weights", "state")]
    edges = {slot: float(slot) for slot in range(plan.slots + 1)}
    draw_liveness(axes, rows, 1, edges=edges, end=9.0, update=plan.slots)
    assert axes.texts[0].get_text() == "peak 1 200 B in the update"


def test_the_peak_names_its_slot(axes):
    rows = [Live(0, 1, "fifo", 5), Live(1, 1, "fifo", 1234567), Live(1, 0, "fifo", 9999999)]
    draw_liveness(axes, rows, 1, edges={0: 0.0, 1: 1.0}, end=2.0, update=2)
    assert axes.texts[0].get_text() == "peak 1 234 567 B in slot 1"
    assert axes.get_ylabel() == "IPU 1\nkB"


@pytest.mark.parametrize("io_tiles", [0, 32])
def test_a_bar_stands_beside_the_size_of_the_tiles(io_tiles, axes):
    plan = plan_of(io_tiles=io_tiles, count=6) if io_tiles else plan_of()
    rows = lives(plan, FIGURES)
    draw_tile_memory(axes, plan, rows, MK2, title="T")
    room = capacity(plan, MK2)
    held = [peak.bytes for peak in peaks(rows).values()]
    assert [bar.get_width() for bar in axes.patches] == [room, held[0], room, held[1]]
    assert f"{1472 - io_tiles} tiles × 624 KiB" in axes.get_xlabel()
    assert room == (1472 - io_tiles) * 624 * 1024
    assert axes.texts[0].get_text().startswith(in_bytes(held[0]))
    assert axes.get_xlim()[0] < min(held) < room < axes.get_xlim()[1]
    assert axes.get_xlim() == (1e3, 2 * room)  # the scale of bytes does not follow the plan
