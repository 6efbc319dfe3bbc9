"""Replicas that round their weights' updates with random bits of their own, or with equal ones.

Every replica computes the same update from the same summed gradient. In FP16 with stochastic
rounding it stays the same only if all replicas draw the same bits; on the machine that takes equal
seeds. Trainings of the digits differ in the bits alone:

- equal bits: what all replicas compute alike, the sum over replicas and the update, draws bits of
  the common seed; forward and backward passes draw bits of the replica.
- REPLICA_IDENTICAL_ONLY: the same, and what replicas compute apart rounds to nearest.
- private bits: updates draw bits of the replica too.
- private bits, sharded state: the same, but each parameter is updated by one replica and gathered.
- private bits, to nearest: nothing is drawn, so the private seeds cannot show.

Drift is counted in ulps of FP16 at the largest of a parameter's values: largest minus smallest over
the replicas. A random walk would grow with the square root of the steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import chain, count, islice, product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpsim import BINARY16
from ipu.experiments.lab.machine import units_of
from ipu.experiments.lab.processes import in_processes
from ipu.experiments.lab.result import Collected, Result, Row, UnitUsed
from ipu.experiments.training import digits
from ipu.experiments.training.digit_runs import NETWORK
from ipu.learn.optim import SGD
from ipu.learn.policy import FP16
from ipu.machine import FpCtl
from ipu.plan.plan import Plan
from ipu.plan.trainer import PlanTrainer
from ipu.run.verdict import Effect, over_seeds, verdict

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

QUESTION = "Do the weights of replicas drift apart when each replica rounds with its own bits?"
BUDGET = 120
DEFAULT = False

REPLICAS = (2, 4)
#: Samples of one replica in a step.
BATCH = 16
RATE, MOMENTUM = 0.02, 0.9
#: Seeds and steps.
QUICK, FULL = (3, 16), (5, 256)
#: Replicas and steps of two more trainings, which the quick run leaves out.
MANY = (1024, 8)


class RoundingWay(NamedTuple):
    """Where random bits come from."""

    private: bool
    identical_only: bool = False
    stochastic: bool = True
    sharded: bool = False


EQUAL, PRIVATE = "equal bits", "private bits"
WAYS = {
    EQUAL: RoundingWay(private=False),
    "REPLICA_IDENTICAL_ONLY": RoundingWay(private=False, identical_only=True),
    PRIVATE: RoundingWay(private=True),
    "private bits, sharded state": RoundingWay(private=True, sharded=True),
    "private bits, to nearest": RoundingWay(private=True, stochastic=False),
}
#: Ways whose replicas must stay equal.
TOGETHER = tuple(name for name in WAYS if name != PRIVATE)


class DriftJob(NamedTuple):
    """One training of all replicas."""

    way: str
    replicas: int
    seed: int
    steps: int


def run(quick: bool, seed: int) -> Result:
    seeds, steps = QUICK if quick else FULL
    jobs = [
        DriftJob(way, replicas, one, steps)
        for replicas, way, one in product(REPLICAS[::-1], WAYS, range(seed, seed + seeds))
    ]
    if not quick:
        jobs = [*many(seed), *jobs]  # the longest first
    collected = Collected()
    for job, (rows, units) in zip(jobs, in_processes(_train, jobs, "trainings"), strict=True):
        collected.add(rows, units, way=job.way, replicas=job.replicas, seed=job.seed)
    parameters = {"network": NETWORK, "batch of a replica": BATCH, "learning rate": RATE,
                  "momentum": MOMENTUM, "steps": steps, "seeds": seeds,
                  "order of the sum": "auto"}
    return Result(collected.rows, _answer(collected.rows), f"{FP16},rounding=SR|RNE", parameters,
                  collected.units)


def many(seed: int) -> list[DriftJob]:
    """Trainings of many replicas, with equal bits and with private ones."""
    replicas, steps = MANY
    return [DriftJob(way, replicas, seed, steps) for way in (EQUAL, PRIVATE)]


def _train(job: DriftJob) -> tuple[list[Row], tuple[UnitUsed, ...]]:
    """Drift after 1, 2, 4 … steps, and what each replica recognises in the end, if they are few."""
    way, are_few = WAYS[job.way], job.replicas in REPLICAS
    plan = Plan([digits.network], replicas=job.replicas, shard_state=way.sharded)
    trainer = PlanTrainer(
        SGD(RATE, MOMENTUM), plan=plan, policy=FP16, control=FpCtl(esr=way.stochastic),
        seed=job.seed, private_updates=way.private, replica_identical_only=way.identical_only,
    )
    rows: list[Row] = []
    data = digits.load()
    batches = _batches(job)
    for step in range(1, job.steps + 1):
        batch = next(batches)
        loss = trainer.step(data.images[batch], data.labels[batch])
        if step & (step - 1) == 0 or step == job.steps:
            part = "drift" if are_few else "many"
            rows.append({"part": part, "step": step, "loss": loss, **drift(weights(trainer))})
    if are_few:
        rows += _accuracies(trainer, job.seed)
    return rows, units_of(trainer.device)


def _batches(job: DriftJob) -> Iterator[NDArray[np.int64]]:
    learn, _ = digits.load().split(job.seed)
    size = BATCH * job.replicas
    if size > len(learn):  # a step takes several epochs, each replica whole batches of its own
        epochs = (digits.batches(learn, BATCH, job.seed, epoch) for epoch in count(1))
        of_replicas = chain.from_iterable(epochs)
        return (np.concatenate([*islice(of_replicas, job.replicas)]) for _ in range(job.steps))
    epochs = (digits.batches(learn, size, job.seed, epoch) for epoch in count(1))
    return islice(chain.from_iterable(epochs), job.steps)


def weights(trainer: PlanTrainer) -> NDArray[np.float64]:
    """Parameters of every replica: (replicas, parameters)."""
    return np.stack([
        np.concatenate([v.array.values.astype(np.float64).reshape(-1)
                        for v in worker.variables.values()])
        for worker in trainer.workers
    ])


def drift(values: NDArray[np.float64]) -> dict[str, float]:
    """How far the replicas' parameters lie apart, in ulps, and the share that differs.

    >>> drift(np.array([[1.0, 2.0], [1.0 + 2**-10, 2.0]]))
    {'mean_ulps': 0.5, 'median_ulps': 0.5, 'largest_ulps': 1.0, 'differ': 0.5}
    """
    largest = np.maximum(np.abs(values).max(axis=0), BINARY16.smallest_normal)
    ulp = np.exp2(np.floor(np.log2(largest)) - (BINARY16.precision - 1))
    apart = (values.max(axis=0) - values.min(axis=0)) / ulp
    return {
        "mean_ulps": float(apart.mean()), "median_ulps": float(np.median(apart)),
        "largest_ulps": float(apart.max()),
        "differ": float((apart > 0).mean()),
    }


def _accuracies(trainer: PlanTrainer, seed: int) -> Iterator[Row]:
    """Of each replica's weights on the test digits, evaluated alike."""
    data = digits.load()
    _, test = data.split(seed)
    first = trainer.workers[0].variables
    for replica, worker in enumerate(trainer.workers):
        for name, variable in first.items():
            array = worker.variables[name].array
            variable.array = trainer.device.context(array.format).wrap(array.carrier)
        accuracy = trainer.accuracy(data.images[test], data.labels[test])
        yield {"part": "accuracy", "replica": replica, "accuracy": accuracy}


# The answer -------------------------------------------------------------------------------------


def final_drift(rows: list[Row], way: str, replicas: int) -> Effect:
    """Mean drift of a parameter after the last step, over the seeds."""
    table = Result(rows, "", "")
    last = int(table.column("step", part="drift").max())
    where: dict[str, str | int] = {"way": way, "replicas": replicas, "step": last}
    return over_seeds(table.column("mean_ulps", part="drift", **where))


def growth(rows: list[Row], replicas: int) -> Effect | None:
    """Exponent of the steps in the drift under private bits, over the later half of the doublings.

    From the step nearest the square root of the last one; 1/2 is a random walk. None where a
    drift is 0.
    """
    table = Result(rows, "", "")
    steps = np.unique(table.column("step", part="drift"))
    late = steps[steps >= math.sqrt(steps[-1])]
    exponents = []
    for seed in np.unique(table.column("seed", part="drift")):
        where: dict[str, str | int] = {"way": PRIVATE, "replicas": replicas, "seed": int(seed)}
        drifts = [table.column("mean_ulps", part="drift", step=int(s), **where)[0] for s in late]
        if min(drifts) == 0:
            return None
        exponents.append(float(np.polyfit(np.log(late), np.log(drifts), 1)[0]))
    return over_seeds(exponents)


def _answer(rows: list[Row]) -> str:
    table = Result(rows, "", "")
    steps = int(table.column("step", part="drift").max())
    private = {r: final_drift(rows, PRIVATE, r) for r in REPLICAS}
    stray = max(table.column("largest_ulps", part="drift", way=w).max() for w in TOGETHER)
    opening = verdict(
        all(effect.is_above(0.0) for effect in private.values()) and stray == 0,
        all(effect.value == 0 for effect in private.values()),
        needs="more seeds, or the cause of a drift without private bits",
    )
    drifts = " and ".join(
        f"{private[r].value:.2f} ± {private[r].uncertainty:.2f} ulps (R = {r})" for r in REPLICAS
    )
    last: Row = {"way": PRIVATE, "step": steps, "replicas": REPLICAS[-1]}
    differ = table.column("differ", part="drift", **last).mean()
    largest = table.column("largest_ulps", part="drift", **last).max()
    exponent = growth(rows, REPLICAS[-1])
    grows = (
        f"; the drift grows as steps to the power {exponent.value:.2f} ± {exponent.uncertainty:.2f}"
        if exponent
        else ""
    )
    apart = accuracy_range(rows, PRIVATE, REPLICAS[-1])
    return (
        f"{opening} After {steps} steps with private bits the parameters of the replicas are "
        f"{drifts} apart on average, {differ:.0%} of them differ and the worst by "
        f"{largest:.0f} ulps (R = {REPLICAS[-1]}){grows}; test accuracies of one training's "
        f"replicas lie up to {100 * apart:.1f} points apart. With equal bits, with "
        f"REPLICA_IDENTICAL_ONLY, with sharded state and to nearest the largest drift is "
        f"{stray:g} ulps at every step.{_answer_of_many(table)}"
    )


def _answer_of_many(table: Result) -> str:
    """What many replicas did; nothing where the run left them out."""
    if not table.select(part="many"):
        return ""
    where: Row = {"part": "many", "step": int(table.column("step", part="many").max())}
    private, equal = ({**where, "way": way} for way in (PRIVATE, EQUAL))
    (apart,), (differ,) = (table.column(name, **private) for name in ("mean_ulps", "differ"))
    return (
        f" {table.column('replicas', **private)[0]:.0f} replicas with private bits are "
        f"{apart:.2f} ulps apart after {where['step']} steps, and {differ:.0%} of their parameters "
        f"differ; with equal bits the largest drift is "
        f"{table.column('largest_ulps', **equal).max():g} ulps."
    )


def accuracy_range(rows: list[Row], way: str, replicas: int) -> float:
    """Largest distance between the accuracies of the replicas of one training."""
    table = Result(rows, "", "")
    accuracies_of = [
        table.column("accuracy", part="accuracy", way=way, replicas=replicas, seed=int(seed))
        for seed in np.unique(table.column("seed", part="accuracy"))
    ]
    return float(max(np.ptp(accuracies) for accuracies in accuracies_of))


# The figure -------------------------------------------------------------------------------------


def plot(result: Result) -> Figure:
    from ipu.run.pages.drawing import new_figure

    figure, (growth_, shares, ends) = new_figure(14, 4.6, mosaic="ABC")
    _plot_growth(growth_, result)
    _plot_shares(shares, result)
    _plot_accuracies(ends, result)
    return figure


def _looks() -> list[tuple[int, str, str]]:
    from ipu.run.pages.drawing import BLUE, RED

    return list(zip(REPLICAS, (BLUE, RED), ("o", "s"), strict=True))


def _plot_growth(axes: Axes, result: Result) -> None:
    from ipu.run.pages.drawing import GREEN, THEORY

    steps = np.unique(result.column("step", part="drift"))
    for replicas, color, marker in _looks():
        curves = _by_seed(result, "mean_ulps", PRIVATE, replicas)
        axes.plot(steps, curves.T, color=color, linewidth=0.6, alpha=0.4)
        axes.plot(steps, curves.mean(axis=0), marker=marker, color=color, markersize=4,
                  label=f"private bits, R = {replicas}")
    zero = np.max([_by_seed(result, "mean_ulps", way, r).max(axis=0)
                   for way in TOGETHER for r in REPLICAS], axis=0)
    axes.plot(steps, zero, "o-", color=GREEN, markersize=4, label="all other ways: 0",
              clip_on=False)
    start = _by_seed(result, "mean_ulps", PRIVATE, REPLICAS[0])[:, 0].mean()
    axes.plot(steps, start * np.sqrt(steps), label="√steps", **THEORY)
    axes.set_xscale("log", base=2)
    axes.set_yscale("symlog", linthresh=float(start) / 2)
    axes.set(title="Replicas apart", xlabel="steps", ylim=(0, None),
             ylabel="mean over parameters, ulps of FP16")
    axes.legend(fontsize=9)


def _by_seed(result: Result, column: str, way: str, replicas: int) -> NDArray[np.float64]:
    """(seeds, steps)"""
    seeds = np.unique(result.column("seed", part="drift"))
    where: dict[str, str | int] = {"part": "drift", "way": way, "replicas": replicas}
    return np.stack([result.column(column, seed=int(s), **where) for s in seeds])


def _plot_shares(axes: Axes, result: Result) -> None:
    steps = np.unique(result.column("step", part="drift"))
    for replicas, color, marker in _looks():
        shares = 100 * _by_seed(result, "differ", PRIVATE, replicas).mean(axis=0)
        axes.plot(steps, shares, marker=marker, color=color, markersize=4,
                  label=f"private bits, R = {replicas}")
    axes.set_xscale("log", base=2)
    axes.set(title="Parameters that differ", xlabel="steps", ylabel="% of the parameters",
             ylim=(0, 100))
    axes.legend(fontsize=9, loc="lower right")


def _plot_accuracies(axes: Axes, result: Result) -> None:
    seeds = np.unique(result.column("seed", part="accuracy"))
    for i, way in enumerate(WAYS):
        for j, seed in enumerate(seeds):
            for replicas, color, marker in _looks():
                accuracy = 100 * result.column(
                    "accuracy", part="accuracy", way=way, replicas=replicas, seed=int(seed)
                )
                at = i + 0.5 * (j + 0.5) / len(seeds) - 0.25 + (replicas > 2) * 0.04
                axes.plot(np.full(replicas, at), accuracy - accuracy.mean(), f"{marker}-",
                          color=color, markersize=3.5, linewidth=0.8)
    names = [
        name.replace(", ", ",\n").replace("_", "_\n").replace("sharded ", "sharded\n")
        for name in WAYS
    ]
    axes.set_xticks(range(len(names)), names, fontsize=8.5)
    axes.grid(visible=False, axis="x")
    axes.set(title="Test accuracy of each replica", ylabel="less the mean of its training, points")
