"""Offload, recomputation and sharded state: bytes on the chip, bytes that move, cycles, equal bits.

One plan of four stages, trained with Adam. Each way moves something else away from the chip, and
the account says what that costs by the declared rates. Two real steps of every way show that the
weights stay the same bits: with as many replicas, for more replicas learn from more samples.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ipu.experiments.execution.measured_plans import (
    BATCH,
    STAGES,
    Measured,
    figures_of_rows,
    measure,
    plan_files,
    rows_of_figures,
)
from ipu.experiments.lab.result import Collected, Result, Row, Table, Value
from ipu.learn.optim import Adam
from ipu.learn.policy import FP16
from ipu.machine import MK2
from ipu.plan.cycles import remote_share
from ipu.plan.memory import always_live, peaks, remote_bytes, transfers
from ipu.plan.plan import Plan

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

QUESTION = (
    "What do offload, recomputation and sharded state save on the chip, and what do they cost?"
)
BUDGET = 60
DEFAULT = False

COUNT, STEPS = 8, 2
#: FP16 rounds Adam's usual epsilon to zero.
RATE, EPSILON = 0.002, 1e-4

#: Arguments of `Plan` for each way.
WAYS: dict[str, dict[str, Any]] = {
    "all on the chip": {},
    "state offloaded": {"offload": ("state",)},
    "activations offloaded": {"offload": ("activations",)},
    "accumulators offloaded": {"offload": ("accumulators",)},
    "weights offloaded": {"offload": ("weights",)},
    "recomputation": {"recompute": True},
    "2 replicas": {"replicas": 2},
    "2 replicas, state offloaded": {"replicas": 2, "offload": ("state",)},
    "2 replicas, state sharded": {"replicas": 2, "offload": ("state",), "shard_state": True},
    "4 replicas": {"replicas": 4},
    "4 replicas, state offloaded": {"replicas": 4, "offload": ("state",)},
    "4 replicas, state sharded": {"replicas": 4, "offload": ("state",), "shard_state": True},
}
#: Ways whose timelines are worth a picture.
SHOWN = (
    "state offloaded", "activations offloaded", "recomputation", "2 replicas, state sharded",
)
PLAIN = next(iter(WAYS))


def plan_of(way: str) -> Plan:
    """The plan of a way; nothing is offloaded unless it says so, and shards need offload."""
    return Plan(STAGES, count=COUNT, **{"offload": (), **WAYS[way]})


def run(quick: bool, seed: int) -> Result:
    collected = Collected()
    steps = STEPS if quick else 4 * STEPS
    optimizer = Adam(RATE, epsilon=EPSILON)
    plans = {way: measure(plan_of(way), seed, steps, optimizer) for way in WAYS}
    for way, measured in plans.items():
        where: dict[str, Value] = {"way": way, "replicas": measured.plan.replicas}
        collected.add([_account(measured)], measured.units, part="account", **where)
        collected.add(_kinds(measured), (), part="kinds", **where)
        collected.add(rows_of_figures(measured.figures), (), part="figures", **where)
    parameters = {"network": "64-128-128-128-128-128-10 dense, relu", "policy": str(FP16),
                  "optimiser": f"Adam, rate {RATE}, epsilon {EPSILON}", "stages": len(STAGES),
                  "micro-batch": BATCH, "G": COUNT, "steps": steps, "target": MK2.name,
                  "schedule": "grouped"}
    rows = collected.rows
    return Result(
        rows, _answer(rows), f"{FP16}, stochastic rounding", parameters, collected.units,
        files=plan_files(plans),
    )


def _account(measured: Measured) -> Row:
    """Sums over the IPUs of one replica; cycles of one update."""
    moved = transfers(measured.plan, measured.figures)
    return {
        "chip_bytes": sum(peak.bytes for peak in peaks(measured.lives).values()),
        "always_bytes": sum(always_live(measured.lives).values()),
        "remote_bytes": sum(remote_bytes(measured.plan, measured.figures).values()),
        "transfers": len(moved), "moved_bytes": sum(move.bytes for move in moved),
        "cycles": max(event.start + event.cycles for event in measured.events),
        "remote_share": remote_share(measured.events), "digest": measured.digest,
        "loss": measured.loss,
    }


def _kinds(measured: Measured) -> list[Row]:
    """Bytes by kind at the peaks of the IPUs, added up."""
    sums: dict[str, int] = {}
    for peak in peaks(measured.lives).values():
        for kind, size in peak.by_kind.items():
            sums[kind] = sums.get(kind, 0) + size
    return [{"kind": kind, "bytes": size} for kind, size in sums.items()]


# Answer, table and figures ----------------------------------------------------------------------


def _by_way(rows: list[Row]) -> dict[str, dict[str, Any]]:
    return {str(row["way"]): dict(row) for row in rows if row["part"] == "account"}


def equal_bits(rows: list[Row]) -> bool:
    """All ways with as many replicas have trained the same weights."""
    digests: dict[Any, set[Any]] = {}
    for row in _by_way(rows).values():
        digests.setdefault(row["replicas"], set()).add(row["digest"])
    return all(len(of_seed) == 1 for of_seed in digests.values())


def _answer(rows: list[Row]) -> str:
    ways = _by_way(rows)
    plain = ways[PLAIN]
    one = [way for way, row in ways.items() if row["replicas"] == 1 and way != PLAIN]
    parts = []
    for way in one:
        saved = 1 - ways[way]["chip_bytes"] / plain["chip_bytes"]
        more = ways[way]["cycles"] / plain["cycles"] - 1
        parts.append(f"{way} saves {saved:.0%} for {more:+.0%} of the cycles")
    shards = []
    for n in (2, 4):
        whole, shard = (ways[f"{n} replicas, state {how}"] for how in ("offloaded", "sharded"))
        less = 1 - shard["moved_bytes"] / whole["moved_bytes"]
        shards.append(f"{less:.0%} with {n} ({shard['cycles'] / whole['cycles'] - 1:+.0%} cycles)")
    worst = max(one, key=lambda way: ways[way]["remote_share"])
    bits = "the same bits" if equal_bits(rows) else "different bits"
    return (
        f"Of {plain['chip_bytes'] / 1e3:.0f} kB on the chip: {'; '.join(parts)}. Sharding the "
        f"offloaded state over replicas moves less: {' and '.join(shards)}. Remote memory takes up "
        f"to {ways[worst]['remote_share']:.0%} of an IPU's cycles ({worst}). With as many replicas "
        f"the trained weights are {bits}."
    )


def tables(result: Result) -> list[Table]:
    heads = [
        "way", "kB on the chip", "kB always live", "kB in remote memory", "transfers", "kB moved",
        "cycles", "StreamCopyMidRemoteBuffer", "digest of losses and weights",
    ]
    lines = [
        [way, f"{row['chip_bytes'] / 1e3:.1f}", f"{row['always_bytes'] / 1e3:.1f}",
         f"{row['remote_bytes'] / 1e3:.1f}",
         str(row["transfers"]), f"{row['moved_bytes'] / 1e3:.1f}", f"{row['cycles']:.0f}",
         f"{row['remote_share']:.1%}", row["digest"]]
        for way, row in _by_way(list(result.rows)).items()
    ]
    note = ("Of one replica and one update; peaks of its IPUs added up. The share is the largest "
            "of an IPU, of the cycles from the start of the update to its end.")
    return [Table("Bytes and cycles of every way", heads, lines, note)]


def plot(result: Result) -> Figure:
    from ipu.experiments.pictures.looks import HOLDS, legend_below, patches
    from ipu.run.pages.drawing import new_figure

    figure, (held, moved, time) = new_figure(
        12.5, 6.6, mosaic="ABC", width_ratios=[2.1, 1, 1.3], sharey=True
    )
    ways = _by_way(list(result.rows))
    _plot_held(held, result, ways)
    _plot_bars(moved, [row["moved_bytes"] / 1e3 for row in ways.values()], "Moved", "kB an update")
    notes = [f"{row['remote_share']:.0%} remote" * bool(row["moved_bytes"])
             for row in ways.values()]
    cycles = [row["cycles"] / 1e3 for row in ways.values()]
    _plot_bars(time, cycles, "Time", "1000 cycles an update", notes)
    handles = patches({str(row["kind"]) for row in result.select(part="kinds")}, HOLDS)
    legend_below(figure, [*handles, _remote_patch()])
    return figure


def _remote_patch() -> Any:
    from matplotlib.patches import Patch

    return Patch(facecolor="white", edgecolor="#444444", hatch="////", label="in remote memory")


def _plot_held(axes: Axes, result: Result, ways: dict[str, dict[str, Any]]) -> None:
    """Bytes on the chip by kind, and those in remote memory behind them."""
    from ipu.experiments.pictures.looks import HOLDS

    for place, (way, row) in enumerate(ways.items()):
        left = 0.0
        sizes = {str(r["kind"]): float(str(r["bytes"])) / 1e3
                 for r in result.select(part="kinds", way=way)}
        for kind, colour in HOLDS.items():
            if kind in sizes:
                axes.barh([place], [sizes[kind]], left=[left], height=0.7, color=colour)
                left += sizes[kind]
        if row["remote_bytes"]:
            axes.barh([place], [row["remote_bytes"] / 1e3], left=[left], height=0.7,
                      color="white", edgecolor="#444444", hatch="////", linewidth=0.5)
        remote = row["remote_bytes"] / 1e3
        words = f"{row['chip_bytes'] / 1e3:.0f}" + (f" + {remote:.0f}" if remote else "")
        axes.annotate(words, (left + remote, place), xytext=(4, 0), textcoords="offset points",
                      va="center", fontsize=9)
    axes.set_yticks(range(len(ways)), list(ways))
    axes.set(title="Held, of one replica: on the chip + remote", xlabel="kB at the IPUs' peaks",
             ylim=(len(ways) - 0.4, -0.6))
    axes.set_xlim(
        0, 1.2 * max(row["chip_bytes"] + row["remote_bytes"] for row in ways.values()) / 1e3
    )
    axes.grid(False, axis="y")


def _plot_bars(
    axes: Axes, values: list[float], title: str, label: str, notes: list[str] | None = None
) -> None:
    from ipu.run.pages.drawing import BLUE

    bars = axes.barh(range(len(values)), values, height=0.7, color=BLUE)
    words = [f"{value:.0f}" + (f", {note}" if note else "")
             for value, note in zip(values, notes or [""] * len(values), strict=True)]
    axes.bar_label(bars, words, padding=4, fontsize=9)
    axes.set(title=title, xlabel=label, xlim=(0, max(values) * (1.75 if notes else 1.3)))
    axes.grid(False, axis="y")


def pictures(result: Result) -> dict[str, Figure]:
    from ipu.experiments.pictures.sheet import draw_sheet

    return {
        f"With {way}: who runs what, what moves, what is held": draw_sheet(
            plan_of(way), figures_of_rows(result.select(part="figures", way=way))
        )
        for way in SHOWN
    }
