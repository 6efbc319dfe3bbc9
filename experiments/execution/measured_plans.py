"""Plans of one small network, each with the figures of a real step and a digest of its bits.

Six dense layers on the digits, cut into four stages of about equal work. Figures of stages travel
as rows, so that every picture is drawn from the stored data.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from ipu.experiments.lab.machine import units_of
from ipu.experiments.lab.result import Row, UnitUsed, Value
from ipu.experiments.training import digits
from ipu.learn.nn import dense, relu
from ipu.learn.optim import SGD, Optimizer
from ipu.learn.policy import FP16
from ipu.learn.tensor import Tensor
from ipu.machine import FpCtl
from ipu.plan.cycles import Event, Rates, timeline
from ipu.plan.memory import Holding, Live, StageFigures, lives
from ipu.plan.plan import Plan
from ipu.plan.trace import account, trace_events
from ipu.plan.trainer import PlanTrainer

__all__ = [
    "BATCH", "STAGES", "Measured", "figures_of_rows", "measure", "plan_files", "rows_of_figures",
]

#: Samples of a micro-batch, units of a hidden layer.
BATCH, WIDTH = 16, 128
RATE, MOMENTUM = 0.05, 0.9


def _first(x: Tensor) -> Tensor:
    return relu(dense(relu(dense(x, WIDTH, "dense0")), WIDTH, "dense1"))


def _second(x: Tensor) -> Tensor:
    return relu(dense(x, WIDTH, "dense2"))


def _third(x: Tensor) -> Tensor:
    return relu(dense(x, WIDTH, "dense3"))


def _last(x: Tensor) -> Tensor:
    return dense(relu(dense(x, WIDTH, "dense4")), digits.CLASSES, "output")


STAGES = (_first, _second, _third, _last)


@dataclass(frozen=True)
class Measured:
    """A plan, what its stages cost, what its training has computed, and what that rests on."""

    plan: Plan
    figures: tuple[StageFigures, ...]
    digest: str = ""
    loss: float = 0.0
    units: tuple[UnitUsed, ...] = ()

    @property
    def events(self) -> tuple[Event, ...]:
        """The timeline of one update."""
        return timeline(self.plan, self.figures)

    @property
    def lives(self) -> tuple[Live, ...]:
        """Bytes by slot, IPU and kind."""
        return lives(self.plan, self.figures)


def measure(plan: Plan, seed: int, steps: int = 1, optimizer: Optimizer | None = None) -> Measured:
    """Trains that many steps in FP16 with stochastic rounding; the digest holds every weight."""
    trainer = PlanTrainer(
        optimizer or SGD(RATE, MOMENTUM), plan=plan, policy=FP16, control=FpCtl(esr=True), seed=seed
    )
    data = digits.load()
    size = plan.samples(BATCH)
    losses = []
    for step in range(steps):
        samples = np.arange(step * size, (step + 1) * size) % len(data.labels)
        losses.append(trainer.step(data.images[samples], data.labels[samples]))
    assert trainer.figures is not None
    codes = [v.array.codes() for worker in trainer.workers for v in worker.variables.values()]
    hashed = hashlib.sha256(repr(losses).encode())
    for array in codes:
        hashed.update(np.ascontiguousarray(array).tobytes())
    units = (*units_of(trainer.device), *_rates())
    return Measured(plan, trainer.figures, f"d{hashed.hexdigest()[:12]}", losses[-1], units)


# Figures as rows --------------------------------------------------------------------------------


def rows_of_figures(figures: Sequence[StageFigures]) -> list[Row]:
    """A row a stage; the sizes of a state's tensors are one word, variables JSON.

    >>> figures = StageFigures(state_bytes=12, state_tensors=(8, 4), forward_cycles=3)
    >>> figures_of_rows(rows_of_figures([figures])) == (figures,)
    True
    """
    rows: list[Row] = []
    for stage, stage_figures in enumerate(figures):
        row: dict[str, Value] = {"stage": stage}
        for one in fields(stage_figures):
            row[one.name] = getattr(stage_figures, one.name)
        row["state_tensors"] = " ".join(["sizes", *map(str, stage_figures.state_tensors)])
        row["largest"] = json.dumps(stage_figures.largest)
        row["variables"] = json.dumps(stage_figures.variables)
        rows.append(row)
    return rows


def figures_of_rows(rows: Sequence[Row]) -> tuple[StageFigures, ...]:
    """The figures that `rows_of_figures` wrote."""
    read = []
    for row in sorted(rows, key=lambda row: int(str(row["stage"]))):
        numbers: dict[str, Any] = {
            one.name: row[one.name] for one in fields(StageFigures) if row.get(one.name) is not None
        }
        numbers["state_tensors"] = tuple(map(int, str(row["state_tensors"]).split()[1:]))
        numbers["largest"] = tuple((name, size) for name, size in json.loads(str(row["largest"])))
        numbers["variables"] = tuple(
            Holding(values, accumulator, tuple(state), itemsize, name)
            for values, accumulator, state, itemsize, name in json.loads(str(row["variables"]))
        )
        read.append(StageFigures(**numbers))
    return tuple(read)


def _rates() -> tuple[UnitUsed, ...]:
    """What the cycles of a timeline rest on."""
    names = ("clock, Hz", "link between IPUs, bytes/s", "remote memory, bytes/s",
             "host, bytes/s", "share of operands from other tiles",
             "share of products that split K")
    return tuple(
        UnitUsed(f"{name} = {fact.value:g}", str(fact.evidence), fact.source)
        for name, fact in zip(names, Rates().facts, strict=True)
    )


# Files beside the figure ------------------------------------------------------------------------


def plan_files(plans: Mapping[str, Measured]) -> dict[str, str]:
    """slots.json, account.json and trace.json of several plans, by their names.

    The trace holds all plans side by side, one process for each IPU of each; metadata come first,
    then everything in order of time.
    """
    accounts = {name: account(measured.plan, measured.figures) for name, measured in plans.items()}
    slots = {
        name: {key: value.pop(key) for key in ("slots", "stash", "programs")}
        for name, value in accounts.items()
    }
    values = {"slots.json": slots, "account.json": accounts, "trace.json": _trace(plans)}
    return {name: _as_json(value) for name, value in values.items()}


def _trace(plans: Mapping[str, Measured]) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    first = 0
    for name, measured in plans.items():
        for row in trace_events(measured.events, measured.lives)["traceEvents"]:
            moved = {**row, "pid": row["pid"] + first}
            if row["name"] == "process_name":
                moved["args"] = {"name": f"{name}, {row['args']['name']}"}
            if row["ph"] == "i":
                moved["s"] = "p"  # a slot starts in its own plan only
            rows.append(moved)
        first += max(measured.plan.ipus) + 1
    rows.sort(key=lambda row: (row["ph"] != "M", row.get("ts", 0.0), row["pid"]))
    return {"traceEvents": rows, "displayTimeUnit": "ns"}


def _as_json(value: object) -> str:
    return json.dumps(value, allow_nan=False, ensure_ascii=False) + "\n"
