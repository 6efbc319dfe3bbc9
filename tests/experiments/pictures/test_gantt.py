"""Gantt charts and lanes: every event is one bar at its place (differential, law)."""

from __future__ import annotations

import pytest
from matplotlib import pyplot as plt

from ipu.experiments.pictures.gantt import draw_gantt, draw_lanes, slot_starts
from ipu.experiments.pictures.looks import DOES, what
from ipu.plan.cycles import timeline
from ipu.run.pages.drawing import new_figure
from tests.experiments.pictures.plans import FIGURES, plan_of


@pytest.fixture
def axes():
    figure, (axes,) = new_figure(10, 3)
    yield axes
    plt.close(figure)


def bars(axes):
    """Place, size and colour of each bar."""
    return [
        (bar.get_x(), bar.get_width(), bar.get_y() + bar.get_height() / 2, bar.get_facecolor())
        for bar in axes.patches
    ]


def expected(events, row_of):
    from matplotlib.colors import to_rgba

    return [(e.start, e.cycles, row_of(e), to_rgba(DOES[what(e.kind)])) for e in events]


@pytest.mark.parametrize(
    "options",
    [{}, {"recompute": True}, {"replicas": 2}, {"offload": ("state", "activations")},
     {"schedule": "popart"}, {"schedule": "sequential", "mapping": [0, 0]}],
)
def test_every_program_copy_sum_and_update_is_a_bar_of_its_ipu(options, axes):
    events = timeline(plan_of(**options), FIGURES)
    draw_gantt(axes, events, title="T", inches=9)
    shown = [e for e in events if e.lane in ("compute", "exchange")]
    ipus = sorted({e.ipu for e in events})
    wanted = expected(shown, lambda e: ipus.index(e.ipu))
    assert [pytest.approx(row[:3]) for row in wanted] == [row[:3] for row in bars(axes)]
    assert [row[3] for row in wanted] == [row[3] for row in bars(axes)]
    assert [label.get_text() for label in axes.get_yticklabels()] == [str(i) for i in ipus]
    low, high = axes.get_xlim()
    assert (low, high) == (0, max(e.start + e.cycles for e in events))
    assert axes.yaxis_inverted()


def test_numbers_are_those_of_the_micro_batches_and_stand_in_their_bars(axes):
    events = timeline(plan_of(), FIGURES)
    draw_gantt(axes, events, title="T", inches=9)
    placed = {(t.get_position(), t.get_text()) for t in axes.texts}
    work = [e for e in events if e.kind in ("forward", "backward")]
    assert len(work) == len(axes.texts) == 16
    for e in work:
        assert ((e.start + e.cycles / 2, e.ipu), str(e.micro_batch)) in placed


def test_a_number_that_does_not_fit_is_smaller_or_left_out(axes):
    events = timeline(plan_of(), FIGURES)
    draw_gantt(axes, events, title="T", inches=0.3)
    assert not axes.texts
    draw_gantt(axes, events, title="T", inches=0.3, smallest=0.5)
    assert axes.texts
    end = max(e.start + e.cycles for e in events)
    for text in axes.texts:
        (event,) = [
            e for e in events
            if (e.start + e.cycles / 2, e.ipu) == text.get_position() and e.lane == "compute"
        ]
        assert 0.62 * text.get_fontsize() <= 0.3 * 72 * event.cycles / end


def test_lines_stand_where_slots_start_and_u_is_the_update(axes):
    plan = plan_of()
    events = timeline(plan, FIGURES)
    draw_gantt(axes, events, title="T", inches=9)
    starts = slot_starts(events)
    assert list(starts) == list(range(plan.slots + 1))
    lines = [line.get_xdata()[0] for line in axes.lines]
    assert lines == list(starts.values())[1:]
    assert lines == sorted(lines)
    for before, start in zip([0, *lines], lines, strict=False):
        assert before < start
        running = [e for e in events if e.start < start < e.start + e.cycles]
        assert not running, "IPUs wait for each other between slots"
    (above,) = axes.child_axes
    names = [label.get_text() for label in above.get_xticklabels()]
    assert names[0] == "0"
    assert names[-1] == "U"


def test_lanes_hold_what_moves_and_only_lanes_that_are_used(axes):
    events = timeline(plan_of(offload=("state",)), FIGURES)
    draw_lanes(axes, events, title="T", inches=9)
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names == ["exchange, IPU 0", "remote, IPU 0", "host, IPU 0", "exchange, IPU 1",
                     "remote, IPU 1"]
    moved = [e for e in events if e.lane != "compute"]
    wanted = expected(moved, lambda e: names.index(f"{e.lane}, IPU {e.ipu}"))
    assert [pytest.approx(row[:3]) for row in wanted] == [row[:3] for row in bars(axes)]
    assert [row[3] for row in wanted] == [row[3] for row in bars(axes)]


def test_a_tooltip_says_who_what_and_how_long(axes):
    draw_gantt(axes, timeline(plan_of(recompute=True), FIGURES), title="T", inches=9)
    tips = [bar.get_gid() for bar in axes.patches]
    assert tips[0] == "tip IPU 0, F0, micro-batch 0, slot 0, 1000 cycles"
    assert any("recompute F0" in tip for tip in tips)
    assert tips[-1] == "tip IPU 1, update, slot 7, 300 cycles"
