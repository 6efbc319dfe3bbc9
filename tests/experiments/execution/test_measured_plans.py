"""Figures as rows (law), files beside a figure: valid, sorted, complete (differential)."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pytest

from ipu.experiments.execution.measured_plans import (
    BATCH,
    STAGES,
    Measured,
    figures_of_rows,
    measure,
    plan_files,
    rows_of_figures,
)
from ipu.experiments.lab.result import Result, rows_from_csv
from ipu.plan.memory import Holding, StageFigures
from ipu.plan.plan import Plan

OWN = StageFigures(
    parameter_bytes=400, state_bytes=8, state_tensors=(8,), accumulator_bytes=400, input_bytes=64,
    output_bytes=6400, saved_bytes=128, forward_cycles=1000, backward_cycles=2000, update_cycles=3,
    variables=(Holding(300, 300, (8,), 4, "kernel, all"), Holding(100, 100)),
    largest=(("dense/kernel, all", 400), ("bias", 8)),
)


def test_figures_survive_the_way_through_a_file():
    figures = (OWN, replace(OWN, recompute_cycles=7, state_bytes=0, state_tensors=()))
    text = Result(rows_of_figures(figures), "", "").to_csv()
    assert figures_of_rows(rows_from_csv(text)[::-1]) == figures


@pytest.fixture(scope="module")
def plans():
    return {
        "one": Measured(Plan([abs, abs], count=4, offload=()), (OWN, OWN)),
        "other": Measured(
            Plan([abs, abs], count=4, schedule="interleaved", recompute=True, replicas=2),
            (OWN, OWN),
        ),
    }


def test_the_trace_is_sorted_and_holds_every_event_of_every_plan(plans):
    trace = json.loads(plan_files(plans)["trace.json"])
    rows = trace["traceEvents"]
    named = [row["ph"] == "M" for row in rows]
    assert named == sorted(named, reverse=True), "names of processes come first"
    times = [row["ts"] for row in rows if row["ph"] != "M"]
    assert times == sorted(times)
    processes = {r["pid"]: r["args"]["name"] for r in rows if r["name"] == "process_name"}
    assert processes == {0: "one, IPU 0", 1: "one, IPU 1", 2: "other, IPU 0", 3: "other, IPU 1"}
    for first, measured in zip((0, 2), plans.values(), strict=True):
        bars = Counter(
            (row["pid"] - first, row["cat"], row["args"]["slot"], row["args"]["micro_batch"])
            for row in rows
            if row["ph"] == "X" and first <= row["pid"] < first + 2
        )
        assert bars == Counter((e.ipu, e.kind, e.slot, e.micro_batch) for e in measured.events)
        slots = [row for row in rows if row["ph"] == "i" and row["pid"] == first]
        assert len(slots) == len({event.slot for event in measured.events})
        assert {row["s"] for row in slots} == {"p"}


def test_slots_and_account_are_plain_json_and_share_nothing(plans):
    files = plan_files(plans)
    slots, accounts = json.loads(files["slots.json"]), json.loads(files["account.json"])
    for name, measured in plans.items():
        assert slots[name]["slots"] == measured.plan.slots
        assert len(slots[name]["programs"]) == len(measured.plan.programs)
        assert slots[name]["stash"]["fifo"] == list(measured.plan.stash.fifo)
        assert not slots[name].keys() & accounts[name].keys()
        assert sum(row["bytes"] for row in accounts[name]["memory"]["live"]) == sum(
            row.bytes for row in measured.lives
        )


def test_measuring_repeats_itself_and_the_digest_sees_the_seed():
    plan = Plan(STAGES, schedule="sequential", count=1, offload=())
    first, again, other = (measure(plan, seed) for seed in (1, 1, 2))
    assert (first.digest, first.loss) == (again.digest, again.loss)
    assert first.digest != other.digest
    assert first.figures == other.figures
    assert [figures.input_bytes for figures in first.figures] == [
        2 * BATCH * n for n in (64, 128, 128, 128)
    ]
    assert any(unit.name == "AMP_F16_F32" or "AMP" in unit.name for unit in first.units)
    assert {unit.evidence for unit in first.units} >= {"ASSUMED"}
