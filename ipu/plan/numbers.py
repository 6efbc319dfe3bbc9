"""A search in numbers: what the sentences of its page follow from, as one JSON file holds it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ipu.plan.binding import bounds, peaks_of
from ipu.plan.memory import code_bytes
from ipu.plan.search import PlanRow, Search
from ipu.plan.written import constants, update_cycles

__all__ = ["search_numbers"]


def search_numbers(search: Search) -> dict[str, Any]:
    """Plans of the front, the peaks of their IPUs, limits of the best one, constants of times.

    Units    bytes; cycles of an update with the clock in Hz, by the fastest and the slowest rates.
    """
    best = search.best
    return {
        "target": search.target.name, "ipus": search.space.ipus,
        "micro_batches": search.space.micro_batches, "tried": search.tried,
        "excluded": search.excluded, "of_all": search.of_all, "room": search.room,
        "front": [_plan(search, row) for row in search.rows],
        "limits": [] if best is None else [bound._asdict() for bound in bounds(search, best)],
        "constants": [
            {"name": name, "fast": _fact(asdict(fast)), "slow": _fact(asdict(slow))}
            for name, fast, slow in constants(search)
        ],
    }


def _plan(search: Search, row: PlanRow) -> dict[str, Any]:
    """A plan with its account."""
    plan = row.plan
    fast, slow = (
        {"cycles": cycles, "clock": clock} for cycles, clock in update_cycles(search, row))
    return {
        "cycles": float(row.cycles), "fast": fast, "slow": slow, "bytes": int(row.bytes),
        "code": dict(zip(("least", "most"), code_bytes(plan), strict=True)),
        "ipus": plan.n_ipus, "replicas": plan.replicas, "micro_batches": plan.count,
        "schedule": str(getattr(plan.schedule, "value", plan.schedule)),
        "recomputed": plan.recomputation or "", "remote": sorted(plan.offloaded),
        "shards_state": plan.shard_state, "slots": plan.slots,
        "stages": [{"stage": entry.stage, "ipu": entry.ipu} for entry in plan.entries],
        "begin_with": [search.chain.layers[cut].name for cut in row.cuts],
        "peaks": [
            {"ipu": peak.ipu, "slot": peak.slot,
             "bytes_by_kind": {kind: int(size) for kind, size in peak.by_kind.items()}}
            for peak in peaks_of(search, row)
        ],
    }


def _fact(fact: dict[str, Any]) -> dict[str, Any]:
    return fact | {"evidence": str(fact["evidence"])}
