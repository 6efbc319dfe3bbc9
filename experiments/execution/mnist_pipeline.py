"""The pipelining tutorial's four variants: pipelined or sharded, with the state on chip or off.

The tutorial's network in PyTorch runs through the PopTorch front end; one update is measured for
each variant. Time and memory are those of the declared model; the bits are the same in all four.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from ipu.experiments.execution.measured_plans import (
    Measured,
    figures_of_rows,
    plan_files,
    rows_of_figures,
)
from ipu.experiments.lab.machine import units_of
from ipu.experiments.lab.result import Collected, Result, Row, Table
from ipu.plan.cycles import program_cycles
from ipu.plan.memory import peaks, remote_bytes
from ipu.plan.plan import Plan

if TYPE_CHECKING:
    from matplotlib.figure import Figure

QUESTION = (
    "What does a pipeline gain over sharding for the MNIST tutorial, and what does offloading the "
    "optimiser's state cost?"
)
BUDGET = 40
DEFAULT = False
NEEDS = "torch"

#: Variants by name: strategy, and whether the optimiser's state lives in remote memory.
VARIANTS = {
    f"{strategy}{', state offloaded' if offload else ''}": (strategy, offload)
    for strategy in ("pipelined", "sharded") for offload in (False, True)
}
#: The tutorial's micro-batches of an update, images of a micro-batch, rate.
COUNT, BATCH, RATE, STAGES = 10, 40, 0.001, 4


def plan_of(strategy: str, offload: bool) -> Plan:
    """The plan that PopTorch makes of a variant."""
    pipelined = strategy == "pipelined"
    return Plan(
        [abs] * STAGES, schedule="popart" if pipelined else "sequential", count=COUNT,
        reduction="mean", recompute=True if pipelined else None,
        offload=("state",) if offload else (), check_memory=False,
    )


def run(quick: bool, seed: int) -> Result:
    collected = Collected()
    plans = {}
    for name, variant in VARIANTS.items():
        measured = plans[name] = _measure(*variant, seed, updates=1 if quick else 5)
        collected.add([_row(measured)], measured.units, variant=name)
        collected.add(rows_of_figures(measured.figures), (), part="figures", variant=name)
    rows = collected.rows
    parameters = {"network": "the tutorial's: two convolutions, two dense layers; AdamW 0.001",
                  "micro-batch": BATCH, "G": COUNT, "IPUs": STAGES}
    return Result(
        rows, _answer(rows), "f32", parameters, collected.units, files=plan_files(plans)
    )


def _measure(strategy: str, offload: bool, seed: int, updates: int) -> Measured:
    """Some updates of the tutorial's training; the digest holds every weight."""
    from ipu.experiments.execution import mnist_network as tutorial

    images = tutorial.set_of(tutorial.load().learn, updates * COUNT * BATCH)
    options = tutorial.options(
        strategy, iterations=1, accumulation=COUNT, offload=offload, seed=seed
    )
    model = tutorial.training(tutorial.network(seed), options, RATE)
    loss: Any = None
    for batch in tutorial.loader(options, images, BATCH, shuffle=False):
        _, loss = model(*batch)
    expected = plan_of(strategy, offload)
    assert (model.plan.programs, str(model.plan)) == (expected.programs, str(expected))
    hashed = hashlib.sha256(repr(loss.tolist()).encode())
    for values in model.state_dict().values():
        hashed.update(values.numpy().tobytes())
    units = units_of(model.device)
    digest = f"d{hashed.hexdigest()[:12]}"
    return Measured(model.plan, model.profile_figures, digest, float(loss.mean()), units)


def _row(measured: Measured) -> Row:
    cost = program_cycles(measured.plan, measured.figures)
    held = peaks(measured.lives)
    worst = max(held.values(), key=lambda peak: peak.bytes)
    return {
        "slots": measured.plan.slots, "cycles": int(measured.plan.cycles(cost)),
        "end": max(event.start + event.cycles for event in measured.events),
        "utilisation": measured.plan.utilisation(cost), "peak_ipu": worst.ipu,
        "peak_bytes": worst.bytes, "bytes_of_all": sum(peak.bytes for peak in held.values()),
        "remote_bytes": sum(remote_bytes(measured.plan, measured.figures).values()),
        "digest": measured.digest, "loss": measured.loss,
    }


# Answer, table and pictures ---------------------------------------------------------------------


def _numbers(rows: list[Row], name: str) -> dict[str, float]:
    return {str(row["variant"]): float(str(row[name])) for row in rows if name in row}


def _answer(rows: list[Row]) -> str:
    end, held = _numbers(rows, "end"), _numbers(rows, "bytes_of_all")
    busy = _numbers(rows, "utilisation")
    fast, slow = "pipelined", "sharded"
    away = f"{fast}, state offloaded"
    same = len({row["digest"] for row in rows if "digest" in row}) == 1
    return (
        f"Pipelined, an update takes {end[fast] / end[slow]:.2f} of the sharded one's cycles "
        f"({busy[fast]:.0%} against {busy[slow]:.0%} of the IPUs' time computing) and "
        f"{held[fast] / held[slow]:.1f} times its memory. Offloading the state takes "
        f"{end[away] / end[fast] - 1:.1%} more cycles and {1 - held[away] / held[fast]:.1%} less "
        f"memory. The weights of all four are {'the same bits' if same else 'different bits'}."
    )


def tables(result: Result) -> list[Table]:
    heads = ["variant", "slots", "cycles of an update", "IPUs compute", "peak bytes (IPU)",
             "bytes of all IPUs", "in remote memory"]
    lines = [
        [str(row["variant"]), str(row["slots"]), f"{float(str(row['end'])):.0f}",
         f"{float(str(row['utilisation'])):.1%}", f"{row['peak_bytes']} ({row['peak_ipu']})",
         str(row["bytes_of_all"]), str(row["remote_bytes"])]
        for row in result.rows if "digest" in row
    ]
    return [Table("One update of ten micro-batches of 40 images", heads, lines)]


def _plans(result: Result) -> dict[str, Measured]:
    return {
        name: Measured(
            plan_of(*variant), figures_of_rows(result.select(part="figures", variant=name))
        )
        for name, variant in VARIANTS.items()
    }


def plot(result: Result) -> Figure:
    """Gantt charts of the four variants on one axis of cycles."""
    from ipu.experiments.pictures.gantt import draw_gantt
    from ipu.experiments.pictures.looks import DOES, legend_below, patches, what
    from ipu.run.pages.drawing import new_figure

    plans = _plans(result)
    figure, axes = new_figure(12, 11, mosaic=[[name] for name in plans], height_ratios=[1] * 4)
    end = max(float(str(row["end"])) for row in result.rows if "end" in row)
    kinds = set()
    for panel, (name, measured) in zip(axes, plans.items(), strict=True):
        (row,) = [row for row in result.select(variant=name) if "digest" in row]
        busy, size = float(str(row["utilisation"])), int(str(row["bytes_of_all"]))
        title = f"{name}: {busy:.0%} busy, {size / 1e6:.1f} MB on all IPUs"
        draw_gantt(panel, measured.events, title=title, inches=11)
        panel.set_xlim(0, end)
        kinds |= {what(e.kind) for e in measured.events if e.lane in ("compute", "exchange")}
    axes[-1].set_xlabel("cycles of the declared model, from the start of the update")
    legend_below(figure, patches(kinds, DOES))
    return figure


def pictures(result: Result) -> dict[str, Figure]:
    from ipu.experiments.pictures.sheet import draw_sheet

    return {
        f"{name}: who runs what, what moves, what is held":
            draw_sheet(measured.plan, measured.figures)
        for name, measured in _plans(result).items()
    }
