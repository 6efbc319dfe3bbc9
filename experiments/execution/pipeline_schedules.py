"""Four schedules of one pipeline: when its IPUs work, what they hold, what the documents print.

Cycles and bytes are those of the declared model, for the figures of one real training step. Beside
them stand unit costs (F = 1, B = 2 cycles), whose answers are known. The maker's guide prints how
many activations a schedule stores without saying what its N is; the table reports its rule beside
what the programs hold (row X-01 of docs/sources.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ipu.experiments.execution.measured_plans import (
    BATCH,
    STAGES,
    Measured,
    figures_of_rows,
    measure,
    plan_files,
    rows_of_figures,
)
from ipu.experiments.lab.result import Collected, Result, Row, Table
from ipu.learn.policy import FP16
from ipu.machine import MK2
from ipu.plan.cycles import program_cycles
from ipu.plan.measures import full_slots, guide_stash
from ipu.plan.memory import peaks
from ipu.plan.plan import Plan

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

QUESTION = (
    "Which schedule keeps the IPUs of a pipeline busiest, and how much does it store for that?"
)
BUDGET = 40
DEFAULT = False

SCHEDULES = ("grouped", "popart", "interleaved", "sequential")
#: Micro-batches of the pictures, of the known answers, of the curves.
COUNT, KNOWN = 8, (8, 16)
FEW, MANY = (8, 16, 32, 64), (8, 16, 32, 64, 128, 256, 512)


def plan_of(schedule: str, count: int = COUNT) -> Plan:
    """The network's plan; its state stays on the chip, so that only the schedule differs."""
    return Plan(STAGES, schedule=schedule, count=count, offload=())


def run(quick: bool, seed: int) -> Result:
    collected = Collected()
    plans = {name: measure(plan_of(name), seed) for name in SCHEDULES}
    collected.add(_tutorial_rows(), (), part="known")
    collected.add(_stash(), (), part="stash")
    for name, measured in plans.items():
        collected.add([_measured(measured)], measured.units, part="measured", schedule=name)
        collected.add(rows_of_figures(measured.figures), (), part="figures", schedule=name)
        curve = _curve(measured, FEW if quick else MANY)
        collected.add(curve, (), part="utilisation", schedule=name)
    parameters = {"network": "64-128-128-128-128-128-10 dense, relu", "policy": str(FP16),
                  "stages": len(STAGES), "micro-batch": BATCH, "G of the pictures": COUNT,
                  "target": MK2.name}
    rows = collected.rows
    return Result(
        rows, _answer(rows), f"{FP16}, stochastic rounding", parameters, collected.units,
        files=plan_files(plans),
    )


def _tutorial_rows() -> list[Row]:
    """Slots, cycles and utilisation with F = 1 and B = 2 cycles."""
    rows: list[Row] = []
    for name in SCHEDULES:
        for count in KNOWN:
            plan = plan_of(name, count)
            full, both = full_slots(plan.programs), full_slots(plan.programs, both=True)
            rows.append({
                "schedule": name, "count": count, "slots": plan.slots,
                "cycles": int(plan.cycles()), "utilisation": plan.utilisation(),
                "full_slots": len(full), "first_full": full[0] if full else None,
                "first_both": both[0] if both else None,
            })
    return rows


def _stash() -> list[Row]:
    """Micro-batches kept by each stage, beside the guide's rule."""
    rows: list[Row] = []
    for name in SCHEDULES:
        fifo, held, peak = plan_of(name).stash
        guide = guide_stash(name, len(STAGES)) if name != "sequential" else [None] * len(STAGES)
        columns = {"fifo": fifo, "held": held, "peak": peak, "guide": guide}
        rows += [
            {"schedule": name, "stage": stage, **{key: row[stage] for key, row in columns.items()}}
            for stage in range(len(STAGES))
        ]
    return rows


def _measured(measured: Measured) -> Row:
    cost = program_cycles(measured.plan, measured.figures)
    held = peaks(measured.lives)
    worst = max(held.values(), key=lambda peak: peak.bytes)
    end = max(event.start + event.cycles for event in measured.events)
    return {
        "slots": measured.plan.slots, "cycles": int(measured.plan.cycles(cost)), "end": end,
        "utilisation": measured.plan.utilisation(cost), "peak_bytes": worst.bytes,
        "peak_ipu": worst.ipu,
        "bytes_of_all": sum(peak.bytes for peak in held.values()), "digest": measured.digest,
        "loss": measured.loss,
    }


def _curve(measured: Measured, counts: tuple[int, ...]) -> list[Row]:
    """Utilisation against G, with unit costs and with measured ones."""
    schedule = str(measured.plan.schedule.value)  # type: ignore[union-attr]
    plans = {count: plan_of(schedule, count) for count in counts}
    return [
        {
            "count": count, "unit": plan.utilisation(),
            "real": plan.utilisation(program_cycles(plan, measured.figures)),
        }
        for count, plan in plans.items()
    ]


# Answer, table and figures ----------------------------------------------------------------------


def _answer(rows: list[Row]) -> str:
    table = Result(rows, "", "")
    measured = {str(row["schedule"]): row for row in table.select(part="measured")}
    share = {name: float(str(row["utilisation"])) for name, row in measured.items()}
    size = {name: float(str(row["bytes_of_all"])) / 1e3 for name, row in measured.items()}
    best = max(share, key=lambda name: share[name])
    ties = [name for name in SCHEDULES if share[name] == share[best]]
    least = min(size, key=lambda name: size[name])
    held = " ".join(str(row["held"]) for row in table.select(part="stash", schedule="grouped"))
    rule = " ".join(str(row["guide"]) for row in table.select(part="stash", schedule="grouped"))
    same = len({row["digest"] for row in measured.values()}) == 1
    others = ", ".join(
        f"{name} {share[name]:.1%} and {size[name]:.0f} kB"
        for name in SCHEDULES if name not in ties
    )
    return (
        f"{' and '.join(ties).capitalize()}: with {COUNT} micro-batches the IPUs compute "
        f"{share[best]:.1%} of the time and hold "
        f"{' and '.join(f'{size[name]:.0f}' for name in ties)} kB at their peaks; {others}. "
        f"Least is held by {least}. Grouped stages hold {held} micro-batches between slots; the "
        f"guide's 2N + 1 with N = 4 would be {rule}, and agrees with N = 3, the later stages. "
        f"The weights of all schedules are {'the same bits' if same else 'different bits'}."
    )


def tables(result: Result) -> list[Table]:
    lines = []
    for name in SCHEDULES:
        rows = result.select(part="stash", schedule=name)
        cells = [
            " ".join("–" if row.get(key) is None else str(row[key]) for row in rows)
            for key in ("fifo", "held", "peak", "guide")
        ]
        printed = {"interleaved": "N+1", "sequential": "–"}.get(name, "2N+1, 2(N−1)+1, …")
        lines.append([name, *cells[:3], printed, cells[3] if name != "sequential" else "–"])
    tutorial_cells = [
        [name, *(
            f"{row['slots']}, {row['cycles']}, {row['utilisation']:.3f}"
            for row in result.select(part="known", schedule=name)
        )]
        for name in SCHEDULES
    ]
    return [
        Table(
            "Micro-batches stored by stages 0 … 3",
            ["schedule", "depth of the queue (FIFO)", "held between slots", "peak inside a slot",
             "the guide prints", "that is, with N = 4"],
            lines,
            "X-01: the guide does not define N. With N = 3, the stages behind the first, its rule "
            "is what grouped stages hold between slots and what PopART's hold at their peak.",
        ),
        Table(
            "Slots, cycles and utilisation, F = 1 and B = 2 cycles",
            ["schedule", *(f"G = {count}" for count in KNOWN)], tutorial_cells,
        ),
    ]


def _plans(result: Result) -> dict[str, Measured]:
    return {
        name: Measured(plan_of(name), figures_of_rows(result.select(part="figures", schedule=name)))
        for name in SCHEDULES
    }


def plot(result: Result) -> Figure:
    from ipu.experiments.pictures.gantt import draw_gantt
    from ipu.experiments.pictures.looks import DOES, legend_below, patches, what
    from ipu.run.pages.drawing import new_figure

    figure, axes = new_figure(
        12, 12.5, mosaic="AA;BB;CC;DD;EF", height_ratios=[1, 1, 1, 1, 1.9]
    )
    plans = _plans(result)
    every = [event for measured in plans.values() for event in measured.events]
    for panel, (name, measured) in zip(axes[:4], plans.items(), strict=True):
        draw_gantt(panel, measured.events, title=_title(result, name), inches=11)
        panel.set_xlabel("cycles of the declared model; dotted lines: IPUs wait for each other")
    _plot_curves(axes[4], result, "unit", "Unit costs, F = 1 and B = 2 cycles")
    _plot_curves(axes[5], result, "real", "Measured costs")
    kinds = {what(event.kind) for event in every if event.lane in ("compute", "exchange")}
    legend_below(figure, [*patches(kinds, DOES), *axes[5].get_legend_handles_labels()[0]], 3)
    return figure


def _title(result: Result, name: str) -> str:
    (row,) = result.select(part="measured", schedule=name)
    cycles = f"{row['cycles']:,}".replace(",", " ")
    busy = f"{row['utilisation']:.1%} busy"
    return f"{name}: {row['slots']} slots, {cycles} cycles without copies, {busy}"


def _plot_curves(axes: Axes, result: Result, column: str, title: str) -> None:
    from ipu.experiments.pictures.utilisation import UtilisationCurve, draw_utilisation

    curves: Mapping[str, UtilisationCurve] = {
        name: UtilisationCurve(
            result.column("count", part="utilisation", schedule=name).tolist(),
            result.column(column, part="utilisation", schedule=name).tolist(),
        )
        for name in SCHEDULES
    }
    draw_utilisation(axes, curves, len(STAGES), title=title, legend=False)


def pictures(result: Result) -> dict[str, Figure]:
    from ipu.experiments.pictures.sheet import draw_sheet

    return {
        f"Schedule {name}: who runs what, what moves, what is held": draw_sheet(
            measured.plan, measured.figures
        )
        for name, measured in _plans(result).items()
    }
