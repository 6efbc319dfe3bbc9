"""What of a pipeline reaches the bits of a training: no plan, but the sum of its micro-batches.

Plans: one network of four stages, trained in FP16 with stochastic rounding, dropout, momentum and a
loss scale, for every schedule, cut into one, two or four stages, with recomputation and with
another mapping. A digest covers the losses of all steps and all parameters. Trainings with another
seed, another number of micro-batches or another order of the micro-batches show that the digest
sees what it should.

Accumulators: FP16 gradients of G micro-batches of a trained digits network, accumulated in each
way, beside the same gradients summed exactly: FP16 numbers are multiples of 2^-24 below 2^16, so
sums of 64 are exact in binary64. At the highest loss scale, at which no gradient of a micro-batch
overflows yet, their sums do; the device saturates them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain, count, islice, product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpsim import BINARY16
from ipu.experiments.execution.accumulated_gradients import ACCUMULATORS, compared
from ipu.experiments.execution.digit_gradients import NETWORK, MicroBatches
from ipu.experiments.lab.machine import units_of
from ipu.experiments.lab.processes import in_processes
from ipu.experiments.lab.result import Collected, Result, Row, UnitUsed
from ipu.experiments.training import digits
from ipu.learn import nn
from ipu.learn.accumulate import Reduction
from ipu.learn.loss_scale import StaticLossScale
from ipu.learn.optim import SGD
from ipu.learn.policy import FP16
from ipu.learn.tensor import Tensor
from ipu.machine import FpCtl
from ipu.plan.plan import Plan
from ipu.plan.trainer import PlanTrainer
from ipu.run.verdict import Effect, over_seeds, verdict

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

QUESTION = "Does a plan change the bits of a training, and what do FP16 accumulators lose?"
BUDGET = 90
DEFAULT = False

# Plans ------------------------------------------------------------------------------------------

WIDTH, DROPPED = 32, 0.25
#: Micro-batches of an update, their samples, and the training.
COUNT, SAMPLES, RATE, MOMENTUM, SCALE = 8, 4, 0.05, 0.9, 64.0
SCHEDULES = ("grouped", "interleaved", "sequential", "popart")
#: Stages and the IPU of each; None is one IPU for each stage.
CUTS: dict[str, tuple[int, list[int] | None]] = {
    "1 stage": (1, None), "2 stages": (2, None), "4 stages": (4, None),
    "4 stages on 2 IPUs": (4, [0, 1, 1, 0]),
}
#: Trainings that must have other bits: seed, micro-batches, order of the micro-batches.
CONTROLS = {"another seed": (1, COUNT, 1), "twice the micro-batches": (0, 2 * COUNT, 1),
            "micro-batches in reverse": (0, COUNT, -1)}


def _first(x: Tensor) -> Tensor:
    return nn.dropout(nn.relu(nn.dense(x, WIDTH, "first")), DROPPED)


def _second(x: Tensor) -> Tensor:
    return nn.relu(nn.dense(x, WIDTH, "second"))


def _third(x: Tensor) -> Tensor:
    return nn.dropout(nn.relu(nn.dense(x, WIDTH, "third")), DROPPED)


def _fourth(x: Tensor) -> Tensor:
    return nn.dense(x, digits.CLASSES, "fourth")


LAYERS = (_first, _second, _third, _fourth)


@dataclass(frozen=True)
class LayerStage:
    """Neighbouring layers as one stage."""

    layers: tuple[Callable[[Tensor], Tensor], ...]

    def __call__(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


class PlanJob(NamedTuple):
    """One training under a plan; control names what differs beside the plan."""

    reduction: str
    cut: str
    schedule: str
    recompute: bool
    control: str
    seed: int
    steps: int


def plan_of(job: PlanJob, micro_batches: int) -> Plan:
    """The plan of a job."""
    n, mapping = CUTS[job.cut]
    size = len(LAYERS) // n
    stages = [LayerStage(LAYERS[i : i + size]) for i in range(0, len(LAYERS), size)]
    return Plan(stages, mapping=mapping, schedule=job.schedule, count=micro_batches,
                recompute=job.recompute or None, reduction=job.reduction)


def _jobs(seed: int, steps: int) -> list[PlanJob]:
    """Every plan that exists; Interleaved refuses two stages on one IPU."""
    plans = [
        PlanJob(r.name, cut, schedule, recompute, "", seed, steps)
        for r, cut, schedule, recompute in product(Reduction, CUTS, SCHEDULES, (False, True))
        if not (schedule == "interleaved" and CUTS[cut][1])
    ]
    controls = [
        PlanJob(r.name, "4 stages", "grouped", False, control, seed, steps)
        for r, control in product(Reduction, CONTROLS)
    ]
    return plans + controls


def _train(job: PlanJob) -> tuple[Row, tuple[UnitUsed, ...]]:
    """The digest of one training, and what its plan says of itself."""
    further, micro_batches, direction = CONTROLS.get(job.control, (0, COUNT, 1))
    plan = plan_of(job, micro_batches)
    trainer = PlanTrainer(
        SGD(RATE, MOMENTUM), plan=plan, policy=FP16, control=FpCtl(esr=True),
        loss_scale=StaticLossScale(SCALE), seed=job.seed + further,
    )
    data = digits.load()
    learn, _ = data.split(job.seed)
    epochs = (digits.batches(learn, COUNT * SAMPLES, job.seed, epoch) for epoch in count(1))
    digest, loss = hashlib.sha256(), 0.0
    for batch in islice(chain.from_iterable(epochs), job.steps):
        samples = batch.reshape(COUNT, SAMPLES)[::direction].reshape(-1)
        loss = trainer.step(data.images[samples], data.labels[samples])
        digest.update(np.float64(loss).tobytes())
    for variable in trainer.variables.values():
        digest.update(variable.array.codes().tobytes())
    row: Row = {
        "part": "plan", "reduction": job.reduction, "cut": job.cut, "schedule": job.schedule,
        "recompute": plan.recomputation is not None, "control": job.control or "none",
        "slots": plan.slots, "utilisation": plan.utilisation(), "loss": loss,
        "digest": f"x{digest.hexdigest()[:12]}",
    }
    return row, units_of(trainer.device)


# Accumulators -----------------------------------------------------------------------------------

COUNTS = (1, 2, 4, 8, 16, 32, 64)
BATCH = 16
#: Smaller relative errors are drawn here.
FLOOR = 1e-8
NO_SCALE, HIGHEST = "loss scale 1", "highest loss scale"


class GradientJob(NamedTuple):
    """The gradients of one network, accumulated in all ways."""

    seed: int
    steps: int


def _accumulations(job: GradientJob) -> tuple[list[Row], tuple[UnitUsed, ...]]:
    network = MicroBatches.of(FP16, job.seed, max(COUNTS), BATCH, job.steps)
    scale, large = highest_scale(network)
    rows: list[Row] = [
        {"part": "accumulator", "gradients": kind, "loss_scale": value, "way": way, "count": n,
         "seed": job.seed, **compared(gradients[:n], ACCUMULATORS[way], job.seed)}
        for kind, value, gradients in ((NO_SCALE, 1.0, network.gradients()),
                                       (HIGHEST, scale, large))
        for way in ACCUMULATORS for n in COUNTS
    ]
    return rows, network.units


def highest_scale(network: MicroBatches) -> tuple[float, NDArray[np.float64]]:
    """The largest power of two at which no gradient of a micro-batch saturates; those gradients."""
    scale = 2.0 * np.exp2(np.floor(np.log2(BINARY16.max / np.abs(network.gradients()).max())))
    while np.abs(gradients := network.gradients(scale)).max() >= BINARY16.max:
        scale /= 2
    return float(scale), gradients


def run(quick: bool, seed: int) -> Result:
    steps, seeds, before = (2, 3, 10) if quick else (6, 8, 40)
    collected = Collected()
    plans = _jobs(seed, steps)
    for row, units in in_processes(_train, plans, "plans"):
        collected.add([row], units)
    networks = [GradientJob(one, before) for one in range(seed, seed + seeds)]
    for rows, units in in_processes(_accumulations, networks, "accumulations"):
        collected.add(rows, units)
    parameters = {
        "plans": f"64-{WIDTH}-{WIDTH}-{WIDTH}-10 dense, relu, dropout {DROPPED}", "G": COUNT,
        "micro-batch": SAMPLES, "learning rate": RATE, "momentum": MOMENTUM, "loss scale": SCALE,
        "steps": steps, "accumulators": NETWORK, "their micro-batch": BATCH,
        "steps before": before, "seeds": seeds, "seed": seed,
    }
    policy = f"{FP16},acc=f16|f32,rounding=SR|RNE"
    return Result(collected.rows, _answer(collected.rows), policy, parameters, collected.units)


# The answer -------------------------------------------------------------------------------------


def digests(rows: list[Row], reduction: str, *, controls: bool) -> list[str]:
    """Of all trainings with that reduction, under plans or as controls."""
    return [str(row["digest"]) for row in rows
            if row["part"] == "plan" and row["reduction"] == reduction
            and (row["control"] != "none") == controls]


def error(rows: list[Row], way: str, gradients: str, n: int) -> Effect:
    """Relative error of an accumulation over the seeds."""
    table = Result(rows, "", "")
    return over_seeds(table.column("error", way=way, gradients=gradients, count=n))


def _answer(rows: list[Row]) -> str:
    table = Result(rows, "", "")
    plans = {r.name: digests(rows, r.name, controls=False) for r in Reduction}
    controls = {r.name: digests(rows, r.name, controls=True) for r in Reduction}
    every = [d for name in plans for d in {*plans[name]}]
    differ = all(not {*plans[name]} & {*controls[name]} for name in plans)
    opening = verdict(
        any(len({*digests}) > 1 for digests in plans.values()),
        all(len({*digests}) == 1 for digests in plans.values())
        and differ and len({*every}) == len(plans),
        needs="trainings whose digests show a change of the seed",
    )
    most = int(table.column("count", part="accumulator").max())
    first = next((n for n in COUNTS if overflows(rows, n)[0] > 0), None)
    since = "nowhere" if first is None else f"from G = {first} on"
    sums, share = overflows(rows, most)

    def off(way: str, kind: str) -> str:
        effect = error(rows, way, kind, most)
        return f"{effect.value:.2g} ± {effect.uncertainty:.1g}"

    return (
        f"{opening} {sum(map(len, plans.values()))} trainings under plans have "
        f"{len({*every})} digests, one for each reduction method. Of G = {most} micro-batches "
        f"without a loss scale, the relative error is {off('SUM in FP16', NO_SCALE)} for SUM in "
        f"FP16, {off('MEAN in FP16', NO_SCALE)} for MEAN, {off('RUNNING_MEAN in FP16', NO_SCALE)} "
        f"for RUNNING_MEAN; in FP32, {off('SUM in FP32', NO_SCALE)} for SUM, but "
        f"{off('RUNNING_MEAN in FP32', NO_SCALE)} for RUNNING_MEAN, whose shares are rounded in "
        f"FP16 before they are added. At the highest "
        f"loss scale of one micro-batch SUM in FP16 overflows {since}: at G = {most} "
        f"{sums:.0f} additions of a network's, and {share:.1%} of the entries end at 65504, an "
        f"error of {off('SUM in FP16', HIGHEST)} beside {off('MEAN in FP16', HIGHEST)} for MEAN."
    )


def overflows(rows: list[Row], n: int) -> tuple[float, float]:
    """Additions that overflow and share of entries that end saturated, of SUM in FP16 scaled up."""
    table = Result(rows, "", "")
    where: dict[str, str | int] = {"way": "SUM in FP16", "gradients": HIGHEST, "count": n}
    saturated, entries = (table.column(c, **where) for c in ("saturated", "entries"))
    return float(table.column("overflows", **where).mean()), float((saturated / entries).mean())


# The figure -------------------------------------------------------------------------------------


def plot(result: Result) -> Figure:
    from ipu.run.pages.drawing import new_figure

    figure, (plans, small, large, counts) = new_figure(
        15, 9.6, mosaic="AAA;BCD", height_ratios=(1, 1.1)
    )
    _plot_plans(plans, result)
    _plot_accumulators(small, result, NO_SCALE)
    _plot_accumulators(large, result, HIGHEST)
    small.set_ylabel("error / exact gradient, root mean squares")
    _plot_overflows(counts, result)
    figure.legend(*small.get_legend_handles_labels(), loc="outside lower center", ncols=5)
    return figure


def _plot_plans(axes: Axes, result: Result) -> None:
    """A cell for each training, coloured and labelled by its digest."""
    from matplotlib.colors import ListedColormap

    from ipu.experiments.pictures.looks import DARK_INK

    columns = [(s, r, "none") for s in SCHEDULES for r in (False, True)]
    columns += [("grouped", False, control) for control in CONTROLS]
    lines = [(r.name, cut) for r in Reduction for cut in CUTS]
    plans = [d for r in Reduction for d in digests(list(result.rows), r.name, controls=False)]
    of_reduction = list(dict.fromkeys(plans))
    color = np.full((len(lines), len(columns)), np.nan)
    for (i, (reduction, cut)), (j, (schedule, recompute, control)) in product(
        enumerate(lines), enumerate(columns)
    ):
        rows = result.select(part="plan", reduction=reduction, cut=cut, schedule=schedule,
                             recompute=recompute, control=control)
        for row in rows:
            digest = str(row["digest"])
            color[i, j] = of_reduction.index(digest) % 3 if digest in of_reduction else 3
            axes.text(j + 0.5, i + 0.5, digest[1:7], ha="center", va="center", fontsize=9,
                      color=DARK_INK)
    tints = ListedColormap(["#BFDDF0", "#F8E2B3", "#BFE5DA", "#DDDDDD"])
    axes.pcolormesh(color, cmap=tints, vmin=-0.5, vmax=3.5, edgecolors="white", linewidth=1.5)
    names = [s + ",\nrecompute" * r for s, r, control in columns if control == "none"]
    names += [name.replace(" ", "\n", 1) for name in CONTROLS]
    axes.set_xticks(np.arange(len(columns)) + 0.5, names, fontsize=9)
    axes.set_yticks(np.arange(len(lines)) + 0.5, [f"{r}, {cut}" for r, cut in lines], fontsize=9)
    axes.tick_params(length=0)
    axes.grid(visible=False)
    axes.invert_yaxis()
    axes.set_title("Digests of losses and parameters; three columns on the right: other trainings")


def _looks() -> dict[str, dict[str, object]]:
    from ipu.run.pages.drawing import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, SKY

    colors = (BLUE, SKY, RED, ORANGE, GREEN, GREY, PURPLE, "#8C564B")
    # The first lines are the widest, so that coinciding ones are all seen.
    widths = np.linspace(4.0, 1.2, len(ACCUMULATORS))
    return {
        way: {"color": color, "linewidth": width, "markersize": width + 2.5}
        for way, color, width in zip(ACCUMULATORS, colors, widths, strict=True)
    }


def _plot_accumulators(axes: Axes, result: Result, gradients: str) -> None:
    from ipu.run.pages.drawing import THEORY

    rows = list(result.rows)
    for way, look in _looks().items():
        errors = [error(rows, way, gradients, n) for n in COUNTS]
        shown = np.maximum([e.value for e in errors], FLOOR)
        axes.plot(COUNTS, shown, "o-", label=way, **look)
    axes.axhline(BINARY16.eps / 2, label=r"$2^{-11}$, unit roundoff of FP16", **THEORY)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(COUNTS, [str(n) for n in COUNTS])
    axes.set_yticks(
        10.0 ** np.arange(-8, 1), ["$\\leq 10^{-8}$", *(f"$10^{{{e}}}$" for e in range(-7, 1))]
    )
    axes.minorticks_off()
    scales = np.unique(result.column("loss_scale", part="accumulator", gradients=gradients))
    powers = sorted({f"2^{{{round(np.log2(s))}}}" for s in scales})
    title = gradients if gradients == NO_SCALE else f"{gradients}: ${', '.join(powers)}$"
    axes.set(title=title.capitalize(), xlabel="G, micro-batches", ylim=(FLOOR / 2, 2))


def _plot_overflows(axes: Axes, result: Result) -> None:
    for way in ("SUM in FP16", "SUM in FP16 + SR", "MEAN in FP16", "RUNNING_MEAN in FP16"):
        where = {"way": way, "gradients": HIGHEST}
        mean = [result.column("overflows", count=n, **where).mean() for n in COUNTS]
        axes.plot(COUNTS, mean, "o-", **_looks()[way])
    axes.set_xscale("log", base=2)
    axes.set_yscale("symlog", linthresh=1)
    axes.set_xticks(COUNTS, [str(n) for n in COUNTS])
    axes.minorticks_off()
    axes.set(title="Overflows, highest loss scale", xlabel="G, micro-batches",
             ylabel="additions that overflow, of a network")
    axes.set_ylim(-0.1, 3 * max(1.0, axes.dataLim.ymax))
