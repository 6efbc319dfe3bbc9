"""A plan's timeline and account as JSON: Chrome's trace-event format, and plain rows.

`trace_events` is what chrome://tracing and Perfetto open: one process for each IPU, one thread for
each lane, complete events ("X") in microseconds of the model's clock, memory as counters ("C"), and
the start of every slot as an instant event ("i"), where IPUs have waited for each other.

Source    Trace Event Format (Google, 2016): phases X, C, i, M and their fields.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ipu.plan.cycles import (
    LANES,
    Event,
    Rates,
    copies,
    program_cycles,
    remote_share,
    shares,
    timeline,
)
from ipu.plan.memory import (
    KINDS,
    Live,
    StageFigures,
    always_live,
    lives,
    peaks,
    remote_bytes,
    transfers,
)
from ipu.plan.plan import Plan

__all__ = ["account", "trace_events", "write_json", "write_profile"]

_SHORT = {"forward": "F", "backward": "B", "recompute": "R"}


def _name(event: Event) -> str:
    """F2 for a forward stage, else what happens."""
    if event.kind in _SHORT:
        return f"{_SHORT[event.kind]}{event.stage}"
    return event.kind


def trace_events(
    events: Sequence[Event], rows: Iterable[Live] = (), rates: Rates | None = None
) -> dict[str, Any]:
    """Events and memory in the trace-event format.

    Units     ts and dur in microseconds, memory in bytes.
    """
    clock = (rates or Rates()).target.clock.value / 1e6
    starts: dict[int, float] = {}
    for event in events:
        starts[event.slot] = min(event.start, starts.get(event.slot, event.start))
    records: list[dict[str, Any]] = []
    for ipu in sorted({event.ipu for event in events}):
        records.append(_meta("process_name", ipu, 0, f"IPU {ipu}"))
        lanes = {event.lane for event in events if event.ipu == ipu}
        records += [
            _meta("thread_name", ipu, LANES.index(lane), lane) for lane in LANES if lane in lanes
        ]
    for event in events:
        records.append({
            "name": _name(event), "cat": event.kind, "ph": "X", "ts": event.start / clock,
            "dur": event.cycles / clock, "pid": event.ipu, "tid": LANES.index(event.lane),
            "args": {"stage": event.stage, "micro_batch": event.micro_batch, "slot": event.slot,
                     "cycles": event.cycles},
        })
    records += [
        {"name": f"slot {slot}", "ph": "i", "s": "g", "ts": start / clock, "pid": 0, "tid": 0}
        for slot, start in sorted(starts.items())
    ]
    return {"traceEvents": records + _counters(rows, starts, clock), "displayTimeUnit": "ns"}


def _meta(name: str, ipu: int, lane: int, value: str) -> dict[str, Any]:
    return {"name": name, "ph": "M", "pid": ipu, "tid": lane, "args": {"name": value}}


def _counters(rows: Iterable[Live], starts: dict[int, float], clock: float) -> list[dict[str, Any]]:
    """Bytes by kind of every IPU; a kind that is absent is zero, else its curve would stay."""
    sums: dict[tuple[int, int], dict[str, int]] = {}
    rows = tuple(rows)
    kinds = [kind for kind in KINDS if any(row.kind == kind for row in rows)]
    for row in rows:
        sums.setdefault((row.slot, row.ipu), dict.fromkeys(kinds, 0))[row.kind] += row.bytes
    return [
        {"name": "memory", "ph": "C", "ts": starts[slot] / clock, "pid": ipu, "args": by_kind}
        for (slot, ipu), by_kind in sorted(sums.items())
        if slot in starts
    ]


def account(
    plan: Plan, figures: Sequence[StageFigures], rates: Rates | None = None
) -> dict[str, Any]:
    """Slots, memory, transfers and cycles of one update, as plain values.

    Units     bytes and cycles; `evidence` says what the cycles rest on.
    """
    rates = rates or Rates()
    events = timeline(plan, figures, rates)
    rows = lives(plan, figures)
    return {
        "plan": str(plan).splitlines(),
        "slots": plan.slots,
        "stash": {k: list(v) for k, v in plan.stash._asdict().items()},
        "utilisation": plan.utilisation(program_cycles(plan, figures)),
        "programs": [
            {**p._asdict(), "phase": p.phase.value} for p in plan.programs
        ],
        "memory": {
            "live": [row._asdict() for row in rows],
            "peak": [peak._asdict() for peak in peaks(rows).values()],
            "always_live": {str(ipu): n for ipu, n in always_live(rows).items()},
            "remote": remote_bytes(plan, figures),
        },
        "remote_share": remote_share(events),
        "transfers": [
            {"slot": m.program.slot, "ipu": m.program.ipu, "kind": m.kind, "direction": m.direction,
             "bytes": m.bytes}
            for m in transfers(plan, figures)
        ],
        "copies": [
            {"slot": c.program.slot, "source": c.program.ipu, "target": c.target, "bytes": c.bytes}
            for c in copies(plan, figures)
        ],
        "cycles": [share._asdict() for share in shares(events).values()],
        "evidence": [str(fact) for fact in rates.facts],
    }


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Writes a JSON file; no number in it is infinite or NaN."""
    path.write_text(json.dumps(value, allow_nan=False, ensure_ascii=False) + "\n", "utf-8")


def write_profile(folder: Path, plan: Plan, figures: Sequence[StageFigures]) -> list[Path]:
    """schedule.json, account.json and trace.json, in a folder that is created if it is not there.

    The schedule has the programs by slot; the account the memory by slot and kind, copies,
    transfers and cycles; the trace opens in Perfetto.
    """
    folder.mkdir(parents=True, exist_ok=True)
    everything = account(plan, figures)
    programs = everything.pop("programs")
    files: dict[str, dict[str, Any]] = {
        "schedule.json": {"plan": everything["plan"], "slots": plan.slots, "programs": programs},
        "account.json": everything | {"figures": [asdict(stage) for stage in figures]},
        "trace.json": trace_events(timeline(plan, figures), lives(plan, figures)),
    }
    for name, value in files.items():
        write_json(folder / name, value)
    return [folder / name for name in files]
