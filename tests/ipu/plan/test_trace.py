"""The trace-event format and the account as JSON (golden)."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import pytest

from ipu.machine.target import MK2
from ipu.plan.cycles import Rates, program_cycles, timeline
from ipu.plan.memory import StageFigures, lives
from ipu.plan.plan import Plan
from ipu.plan.trace import account, trace_events, write_json

OWN = [
    StageFigures(
        forward_cycles=1325, backward_cycles=2650, update_cycles=10, input_bytes=8, saved_bytes=9,
        output_bytes=640, state_bytes=4000, parameter_bytes=100, infeed_bytes=50 * (i == 0),
    )
    for i in range(2)
]


def stage(x):
    return x


def plan_of(**choices):
    return Plan([stage, stage], count=4, **choices)


def test_events_are_complete_and_in_microseconds():
    plan = plan_of(recompute=True)
    events = timeline(plan, OWN)
    trace = trace_events(events, lives(plan, OWN))
    rows = trace["traceEvents"]
    bars = [row for row in rows if row["ph"] == "X"]
    assert len(bars) == len(events)
    first = next(row for row in bars if row["cat"] == "forward")
    end = max(e.start + e.cycles for e in events)
    assert max(row["ts"] + row["dur"] for row in bars) == pytest.approx(end / 1325)
    assert first["name"] == "F0"
    assert first["dur"] == pytest.approx(1.0)
    assert first["args"] == {"stage": 0, "micro_batch": 0, "slot": 0, "cycles": 1325}
    assert {row["name"] for row in bars} == {
        "F0", "F1", "B0", "B1", "R0", "copy", "infeed", "state in", "state out", "update",
    }
    for row in bars:
        assert row["ts"] >= 0
        assert row["dur"] > 0
    lanes = [(row["pid"], row["tid"]) for row in bars]
    for lane in set(lanes):
        in_lane = [r for r in bars if (r["pid"], r["tid"]) == lane]
        intervals = sorted((r["ts"], r["ts"] + r["dur"]) for r in in_lane)
        assert all(end <= start + 1e-9 for (_, end), (start, _) in pairwise(intervals))


def test_ipus_lanes_slots_and_memory_have_their_rows():
    plan = plan_of()
    rows = trace_events(timeline(plan, OWN), lives(plan, OWN))["traceEvents"]
    names = {(r["name"], r["pid"], r["args"]["name"]) for r in rows if r["ph"] == "M"}
    assert ("process_name", 1, "IPU 1") in names
    assert ("thread_name", 0, "host") in names
    assert ("thread_name", 1, "host") not in names
    assert [r["name"] for r in rows if r["ph"] == "i"] == [
        f"slot {slot}" for slot in range(plan.slots + 1)
    ]
    memory = [r for r in rows if r["ph"] == "C" and r["pid"] == 0]
    assert len(memory) == plan.slots + 1
    assert len({tuple(r["args"]) for r in memory}) == 1, "every counter names every kind"
    assert memory[-1]["args"]["state"] == 4000
    assert memory[0]["args"]["state"] == 0
    assert trace_events(()) == {"traceEvents": [], "displayTimeUnit": "ns"}


def test_an_account_is_plain_json(tmp_path):
    plan = plan_of(recompute=True, offload=("state", "activations"))
    value = account(plan, OWN, Rates(MK2))
    write_json(tmp_path / "account.json", value)
    again = json.loads((tmp_path / "account.json").read_text(encoding="utf-8"))
    assert again["slots"] == plan.slots == 7
    assert again["stash"] == {"fifo": [2, 0], "held": [3, 1], "peak": [4, 2]}
    assert len(again["programs"]) == len(plan.programs)
    assert again["programs"][0] == {
        "slot": 0, "ipu": 0, "phase": "forward", "stage": 0, "micro_batch": 0, "branch": 0,
    }
    assert again["memory"]["remote"] == {"activations": 16, "state": 8000}
    assert [row["ipu"] for row in again["memory"]["peak"]] == [0, 1]
    assert {row["kind"] for row in again["transfers"]} == {"state", "activations"}
    assert {(row["source"], row["target"]) for row in again["copies"]} == {(0, 1), (1, 0)}
    assert [row["ipu"] for row in again["cycles"]] == [0, 1]
    assert 0 < again["remote_share"] < 1
    uneven = [OWN[0], replace(OWN[1], forward_cycles=9 * 1325)]
    busy = account(plan, uneven)["utilisation"]
    assert busy == plan.utilisation(program_cycles(plan, uneven)) != plan.utilisation()
    assert "ASSUMED" in again["evidence"][1]
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "bad.json", {"x": float("nan")})
    assert not (tmp_path / "bad.json").exists()
