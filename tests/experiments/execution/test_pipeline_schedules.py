"""Schedules of one pipeline: golden (known answers, X-01), law (equal bits), differential."""

from __future__ import annotations

import json

import pytest
from matplotlib import pyplot as plt

from ipu.experiments.execution import pipeline_schedules as schedules
from ipu.experiments.execution.measured_plans import figures_of_rows
from ipu.plan.cycles import timeline
from tests.experiments.figures import assert_panels


@pytest.fixture(scope="module")
def quick():
    return schedules.run(quick=True, seed=1)


@pytest.mark.source("S0-33", "S0-34", "S0-35", "S3-07")
def test_unit_costs_have_their_known_answers(quick):
    """The table for four stages, F = 1 and B = 2 cycles, G = 8 and 16."""
    expected = {
        "grouped": ((15, 33, 0.727, 9, 3, 7), (23, 57, 0.842, 17, 3, 7)),
        "popart": ((14, 33, 0.727, 8, 3, 6), (22, 57, 0.842, 16, 3, 6)),
        "interleaved": ((22, 40, 0.600, 10, 6, None), (38, 72, 0.667, 26, 6, None)),
        "sequential": ((64, 96, 0.25, 0, None, None), (128, 192, 0.25, 0, None, None)),
    }
    columns = ("slots", "cycles", "utilisation", "full_slots", "first_full", "first_both")
    for name, answers in expected.items():
        rows = quick.select(part="known", schedule=name)
        assert [row["count"] for row in rows] == [8, 16]
        for row, answer in zip(rows, answers, strict=True):
            assert [row[c] for c in columns] == [pytest.approx(x, abs=5e-4) for x in answer]


@pytest.mark.source("X-01", "S3-05", "S3-06")
def test_what_stages_store_stands_beside_what_the_guide_prints(quick):
    def column(name, schedule):
        return [row[name] for row in quick.select(part="stash", schedule=schedule)]

    assert column("fifo", "grouped") == column("fifo", "popart") == [6, 4, 2, 0]
    assert column("held", "grouped") == column("peak", "popart") == [7, 5, 3, 1]
    assert column("peak", "grouped") == [8, 6, 4, 2]
    assert column("guide", "grouped") == [9, 7, 5, 3]
    assert column("held", "interleaved") == column("peak", "interleaved") == [4, 3, 2, 1]
    assert column("guide", "interleaved") == [5, 5, 5, 5]
    assert column("guide", "sequential") == [None] * 4
    stored, _ = schedules.tables(quick)
    assert stored.lines[0] == [
        "grouped", "6 4 2 0", "7 5 3 1", "8 6 4 2", "2N+1, 2(N−1)+1, …", "9 7 5 3",
    ]
    assert all(len(line) == len(stored.heads) for line in stored.lines)


@pytest.mark.source("S0-36")
def test_schedules_train_the_same_bits(quick):
    rows = quick.select(part="measured")
    assert [row["schedule"] for row in rows] == list(schedules.SCHEDULES)
    assert len({(row["digest"], row["loss"]) for row in rows}) == 1
    assert quick.answer.endswith("the same bits.")


def test_cycles_are_added_up_a_second_time(quick):
    """Slot by slot from the programs: the busiest IPU of each."""
    for name in schedules.SCHEDULES:
        (row,) = quick.select(part="measured", schedule=name)
        figures = figures_of_rows(quick.select(part="figures", schedule=name))
        slots: dict[int, dict[int, int]] = {}
        for program in schedules.plan_of(name).programs:
            cycles = {"forward": figures[program.stage].forward_cycles,
                      "backward": figures[program.stage].backward_cycles}
            by_ipu = slots.setdefault(program.slot, {})
            by_ipu[program.ipu] = by_ipu.get(program.ipu, 0) + cycles[program.phase.value]
        busiest = [max(by_ipu.values()) for by_ipu in slots.values()]
        work = 8 * sum(x.forward_cycles + x.backward_cycles for x in figures)
        assert row["cycles"] == sum(busiest)
        assert row["utilisation"] == pytest.approx(work / (4 * sum(busiest)))
        assert row["slots"] == len(slots)


def test_the_sentence_is_computed_a_second_time(quick):
    rows = {row["schedule"]: row for row in quick.select(part="measured")}
    best = max(row["utilisation"] for row in rows.values())
    assert f"the IPUs compute {best:.1%} of the time" in quick.answer
    smallest = min(rows, key=lambda name: rows[name]["bytes_of_all"])
    assert f"Least is held by {smallest}." in quick.answer
    assert "hold 7 5 3 1 micro-batches" in quick.answer


def test_other_bits_are_told(quick):
    rows = [dict(row) for row in quick.rows]
    next(row for row in rows if row["part"] == "measured")["digest"] = "d0"
    assert schedules._answer(rows).endswith("different bits.")


def test_every_panel_shows_data(quick):
    figure = schedules.plot(quick)
    bars = [len(axes.patches) for axes in figure.get_axes()[:4]]
    for name, n in zip(schedules.SCHEDULES, bars, strict=True):
        figures = figures_of_rows(quick.select(part="figures", schedule=name))
        events = timeline(schedules.plan_of(name), figures)
        assert n == sum(event.lane in ("compute", "exchange") for event in events)
    assert_panels(figure, 6)


def test_there_is_a_picture_to_zoom_for_every_schedule(quick):
    pictures = schedules.pictures(quick)
    assert [title.split()[1].strip(":") for title in pictures] == list(schedules.SCHEDULES)
    for figure in pictures.values():
        assert len(figure.get_axes()) == 2 + 4 + 1
        plt.close(figure)


def test_files_describe_every_schedule(quick):
    assert set(quick.files) == {"slots.json", "account.json", "trace.json"}
    slots, accounts = (json.loads(quick.files[f"{name}.json"]) for name in ("slots", "account"))
    assert set(slots) == set(accounts) == set(schedules.SCHEDULES)
    for name in schedules.SCHEDULES:
        assert len(slots[name]["programs"]) == 2 * 4 * 8
        (row,) = quick.select(part="measured", schedule=name)
        peaks = [peak["bytes"] for peak in accounts[name]["memory"]["peak"]]
        assert max(peaks) == row["peak_bytes"]
        assert sum(peaks) == row["bytes_of_all"]
