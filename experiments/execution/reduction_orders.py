"""The same gradients of R replicas, summed in every order that a plan offers.

Each order is a binary tree of rounded additions for each chunk of a tensor, as a step under a plan
computes it, and then one multiplication by fl(1/R). The exact mean is that of the replicas' rounded
gradients. Errors are relative to the root mean square of the exact means, in unit roundoffs u of
the format, so that formats can be compared: u is 2^-11 for FP16, 2^-8 for BF16, 2^-24 for FP32.

Two kinds of gradients are built against an order: one replica whose gradient hides the others, and
replicas whose gradients cancel those of a replica R/2 further. With stochastic rounding each sum is
drawn several times. The register rounds FP16 and, on the hypothetical target, BF16 stochastically;
FP32 always goes to nearest.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpsim import BFLOAT16, BINARY16, BINARY32, Array
from fpsim.records.formats import Format
from ipu.experiments.execution.digit_gradients import NETWORK, MicroBatches
from ipu.experiments.lab.machine import units_of
from ipu.experiments.lab.processes import in_processes
from ipu.experiments.lab.result import Collected, Result, Row, UnitUsed
from ipu.learn.address import Numbering
from ipu.learn.policy import FP32
from ipu.machine import Device, FpCtl
from ipu.plan.collectives import reduce_sum
from ipu.plan.orders import Order
from ipu.run.verdict import UNDECIDED, Effect, over_seeds, verdict

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

QUESTION = "Is a tree of replicas more exact than a ring, when their gradients are summed?"
BUDGET = 120
DEFAULT = False

FORMATS = {"FP16": BINARY16, "BF16": BFLOAT16, "FP32": BINARY32}
WAYS = (("FP16", "RNE"), ("FP16", "SR"), ("BF16", "RNE"), ("BF16", "SR"), ("FP32", "RNE"))
#: Recursive doubling adds as the tree does.
RINGS = (Order.TF_RING, Order.CLOCKWISE_RING, Order.ANTICLOCKWISE_RING,
         Order.BIDIRECTIONAL_RING_PAIR, Order.MEET_IN_MIDDLE_RING)
ORDERS = (*RINGS, Order.SEQUENTIAL, Order.TREE, Order.RECURSIVE_HALVING)
TREE = Order.TREE.value
REPLICAS, QUICK_REPLICAS = (2, 4, 8, 16, 32, 64, 256, 1024), (2, 4, 16)
GRADIENTS, LARGE, OPPOSITE = "gradients of digits", "one large replica", "opposite replicas"
DATA = (GRADIENTS, LARGE, OPPOSITE)
#: Entries of the built gradients; samples and loss scale of the network's.
ENTRIES, BATCH, SCALE = 1024, 16, 2.0**10
#: Root mean square of one rounding to nearest in u, of values with a uniform logarithm:
#: the mean of 1/m² over significands 1 ≤ m < 2 is 3/(8 ln 2), an error uniform in ±u has u²/3.
ROUNDING_ERROR = math.sqrt(1 / (8 * math.log(2)))

Values = NDArray[np.float64]


class SumJob(NamedTuple):
    """All formats and orders of one sum."""

    data: str
    replicas: int
    seeds: tuple[int, ...]
    draws: int
    steps: int


def run(quick: bool, seed: int) -> Result:
    replicas, sets, draws, steps = (QUICK_REPLICAS, 4, 3, 10) if quick else (REPLICAS, 8, 4, 40)
    seeds = tuple(range(seed, seed + sets))
    jobs = [
        SumJob(data, r, seeds, draws, steps) for r, data in product(replicas[::-1], DATA)
    ]  # the longest first
    collected = Collected()
    for job, (rows, units) in zip(jobs, in_processes(_sums, jobs, "sums"), strict=True):
        collected.add(rows, units, data=job.data, replicas=job.replicas)
    parameters = {"network": NETWORK, "micro-batch": BATCH, "steps before": steps,
                  "loss scale": SCALE, "sets of gradients": sets, "draws": draws,
                  "entries of built gradients": ENTRIES, "seed": seed}
    policy = "gradients f16|bf16|f32, sums in their format, rounding=RNE|SR"
    return Result(collected.rows, _answer(collected.rows), policy, parameters, collected.units)


def _sums(job: SumJob) -> tuple[list[Row], list[UnitUsed]]:
    collected = Collected()
    if job.data == GRADIENTS:
        every = [_of_network(job, seed) for seed in job.seeds]
    for name, rounding in WAYS:
        if job.data != GRADIENTS:
            every = [built(job.data, FORMATS[name], job.replicas, seed) for seed in job.seeds]
        # (replicas, entries, sets): the sets of an entry are neighbours, so chunks hold every set.
        rows, units = _in_format(job, np.stack(every, axis=-1), FORMATS[name], rounding == "SR")
        collected.add(rows, units, format=name, rounding=rounding)
    return collected.rows, list(collected.units)


def _of_network(job: SumJob, seed: int) -> Values:
    """Gradients of each replica: (replicas, parameters)."""
    return MicroBatches.of(FP32, seed, job.replicas, BATCH, job.steps).gradients(SCALE)


def built(data: str, fmt: Format, replicas: int, seed: int) -> Values:
    """Gradients against an order, not yet rounded: (replicas, entries)."""
    draw = np.random.default_rng([seed, DATA.index(data), replicas])
    if data == LARGE:
        small = draw.random((replicas - 1, ENTRIES)) * fmt.eps / 2
        return np.concatenate([1 + draw.random((1, ENTRIES)), small])
    half = draw.standard_normal((replicas // 2, ENTRIES))
    rest = draw.standard_normal(half.shape) * 2.0**-6
    return np.concatenate([half, rest - half])


def _in_format(
    job: SumJob, gradients: Values, fmt: Format, stochastic: bool
) -> tuple[list[Row], tuple[UnitUsed, ...]]:
    """Rows of all orders; the draws of an entry are neighbours in one tensor."""
    target = "hypothetical" if fmt is BFLOAT16 else "mk2"
    devices = [Device(target, FpCtl(esr=stochastic), seed=job.seeds[0]) for _ in gradients]
    rounded = [device.from_host(x, fmt) for device, x in zip(devices, gradients, strict=True)]
    exact = exact_mean(np.stack([x.values.astype(np.float64) for x in rounded]))
    draws = job.draws if stochastic else 1
    tensors = [
        device.context(fmt).wrap(np.repeat(x.carrier[..., None], draws, axis=-1))
        for device, x in zip(devices, rounded, strict=True)
    ]
    numberings = [Numbering(device, r) for r, device in enumerate(devices)]
    means = {order: _mean(tensors, numberings, order) for order in ORDERS}
    return list(_rows(means, exact, fmt, job.seeds)), units_of(devices[0])


def _mean(tensors: list[Array], numberings: list[Numbering], order: Order) -> Values:
    """As a step under a plan computes it, in the cells of variable 0."""
    for numbering in numberings:
        numbering.begin()
    total = reduce_sum(tensors, numberings, 0, order)
    mean = numberings[0].device.multiply(total, 1 / len(tensors))
    return np.asarray(mean.values, np.float64)


def exact_mean(values: Values) -> Values:
    """Over the first axis: the sum rounded once to binary64, R times smaller.

    R is a power of two here, so the division is exact.
    """
    flat = values.reshape(len(values), -1)
    sums = np.array([math.fsum(column) for column in flat.T.tolist()])
    return sums.reshape(values.shape[1:]) / len(values)


def _rows(
    means: dict[Order, Values], exact: Values, fmt: Format, seeds: tuple[int, ...]
) -> Iterator[Row]:
    """Errors of each order by set, and how far orders lie apart.

    Shapes    means (entries, sets, draws), exact (entries, sets)
    """
    unit = np.sqrt((exact**2).mean(axis=0)) * fmt.eps / 2
    for order, mean in means.items():
        error = mean - exact[..., None]
        size, bias = np.sqrt((error**2).mean(axis=(0, 2))) / unit, error.mean(axis=(0, 2)) / unit
        several = mean.shape[-1] > 1
        spread = np.sqrt(mean.var(axis=-1, ddof=int(several)).mean(axis=0)) / unit
        for i, seed in enumerate(seeds):
            yield {"part": "error", "order": order.value, "seed": seed, "error": float(size[i]),
                   "bias": float(bias[i]), "spread": float(spread[i])}
    every = np.stack(list(means.values()))[..., 0]
    apart = np.sqrt(((every.max(axis=0) - every.min(axis=0)) ** 2).mean(axis=0)) / unit
    differ = (every.max(axis=0) > every.min(axis=0)).mean(axis=0)
    for i, seed in enumerate(seeds):
        yield {"part": "between", "seed": seed, "apart": float(apart[i]),
               "differ": float(differ[i])}


# The answer -------------------------------------------------------------------------------------


def advantage(rows: list[Row], one: str, other: str, **where: str | int) -> Effect:
    """Logarithm of other's error over one's, paired by set; an order without error wins."""
    table = Result(rows, "", "")
    errors = [table.column("error", part="error", order=o, **where) for o in (one, other)]
    tiny = np.finfo(np.float64).tiny
    first, second = (np.log(np.maximum(of_sets, tiny)) for of_sets in errors)
    return over_seeds(second - first)


def best(rows: list[Row], **where: str | int) -> tuple[list[str], float]:
    """The order of least error and those that are not above it beyond the uncertainty.

    The second result is the mean error of the first.
    """
    table = Result(rows, "", "")
    mean = {o.value: float(table.column("error", part="error", order=o.value, **where).mean())
            for o in ORDERS}
    first, *others = sorted(mean, key=mean.__getitem__)
    equal = [o for o in others if not advantage(rows, first, o, **where).is_above(0.0)]
    return [first, *equal], mean[first]


def _largest(rows: list[Row]) -> int:
    return max(int(str(row["replicas"])) for row in rows)


def _answer(rows: list[Row]) -> str:
    most = _largest(rows)
    table = Result(rows, "", "")
    leads = [
        advantage(rows, TREE, ring.value, data=GRADIENTS, format=name, rounding=rounding,
                  replicas=most)
        for name, rounding in WAYS for ring in RINGS
    ]
    opening = verdict(
        all(lead.is_above(0.0) for lead in leads), any(lead.is_below(0.0) for lead in leads),
        needs="more sets of gradients",
    )
    factors = [math.exp(lead.value) for lead in leads]
    half: dict[str, str | int] = {"format": "FP16", "replicas": most}

    def mean(column: str, part: str, **where: str) -> float:
        return float(table.column(column, part=part, **half, **where).mean())

    ring = mean("error", "error", data=GRADIENTS, rounding="RNE", order=Order.TF_RING.value)
    drawn = mean("spread", "error", data=GRADIENTS, rounding="SR", order=TREE)
    scattered = mean("spread", "error", data=GRADIENTS, rounding="SR", order=Order.TF_RING.value)
    differ = mean("differ", "between", data=GRADIENTS, rounding="RNE")
    best_orders = "; ".join(f"on {data} {_best_text(rows, data, most)}" for data in DATA)
    return (
        f"{opening} With the gradients of {most} replicas the rings' errors are "
        f"{min(factors):.2f} to {max(factors):.2f} times the tree's, over formats and roundings. "
        f"The best orders in FP16 to nearest are {best_orders}. TensorFlow's ring is off by "
        f"{ring:.2f} u on gradients, and orders disagree in {differ:.0%} of the means. Drawn "
        f"again, stochastic sums scatter by {drawn:.2f} u in the tree and "
        f"{scattered:.2f} u in the ring. {_against_the_tree(rows)}"
    )


def _against_the_tree(rows: list[Row]) -> str:
    """Where another order is more exact than the tree beyond the uncertainty, and where most so."""
    table = Result(rows, "", "")
    replicas = np.unique(table.column("replicas", part="error"))
    cases: list[dict[str, str | int]] = [
        {"data": data, "format": name, "rounding": rounding, "replicas": int(r)}
        for data in DATA for name, rounding in WAYS for r in replicas
    ]
    beaten = {}
    for number, where in enumerate(cases):
        (first, *_), error = best(rows, **where)
        tree = float(table.column("error", part="error", order=TREE, **where).mean())
        if advantage(rows, first, TREE, **where).is_above(0.0):
            beaten[number] = (tree, error, first)
    if not beaten:
        return f"In none of {len(cases)} panels' cases is another order more exact than the tree."
    worst = max(beaten, key=lambda number: beaten[number][0] - beaten[number][1])
    (tree, error, first), where = beaten[worst], cases[worst]
    return (
        f"In {len(beaten)} of {len(cases)} cases (data, format, rounding, R) another order is more "
        f"exact than the tree: most on {where['data']} in {where['format']} {where['rounding']} at "
        f"R = {where['replicas']}, where {first} is off by {error:.2g} u, the tree by {tree:.2g}."
    )


def _best_text(rows: list[Row], data: str, replicas: int) -> str:
    where: dict[str, str | int] = {"data": data, "format": "FP16", "rounding": "RNE",
                                   "replicas": replicas}
    (first, *equal), error = best(rows, **where)
    if not equal:
        return f"{first} ({error:.2g} u)"
    undecided = f"{UNDECIDED[0].lower()}{UNDECIDED[1:]}"
    return f"{first} or {', '.join(equal)}, {undecided} ({error:.2g} u)"


# The figure -------------------------------------------------------------------------------------


def plot(result: Result) -> Figure:
    from ipu.run.pages.drawing import new_figure

    figure, axes = new_figure(15, 8.6, mosaic="ABC;DEF")
    for panel, data in zip(axes, DATA, strict=False):
        _plot_errors(panel, result, data, "RNE")
    _plot_errors(axes[3], result, GRADIENTS, "SR")
    _plot_formats(axes[4], result)
    _plot_bias(axes[5], result)
    for panel, stochastic in ((axes[0], False), (axes[3], True)):
        _plot_estimates(panel, result, stochastic)
        panel.set(ylabel="error of the mean, root mean square, in u", ylim=(0, None))
    axes[1].set_ylim(bottom=0)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=5)
    return figure


def _looks() -> dict[str, dict[str, object]]:
    """Colours by kind: rings that fold warm, the others apart; wide lines lie below."""
    from ipu.run.pages.drawing import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, RED, SKY

    colors = (ORANGE, RED, PURPLE, GREY, SKY, BLACK, BLUE, GREEN)
    widths = np.linspace(4.2, 1.2, len(ORDERS))
    return {
        order.value: {"color": color, "linewidth": width, "markersize": width + 2.5}
        for order, color, width in zip(ORDERS, colors, widths, strict=True)
    }


def _replica_axis(axes: Axes, result: Result) -> None:
    counts = np.unique(result.column("replicas", part="error"))
    axes.set_xscale("log", base=2)
    axes.set_xticks(counts, [str(n) for n in counts])
    axes.minorticks_off()
    axes.set_xlabel("R, replicas")


def _plot_errors(axes: Axes, result: Result, data: str, rounding: str) -> None:
    counts = np.unique(result.column("replicas", part="error"))
    for order, look in _looks().items():
        where = {"data": data, "format": "FP16", "rounding": rounding, "order": order}
        errors = [result.column("error", part="error", replicas=int(n), **where).mean()
                  for n in counts]
        axes.plot(counts, errors, "o-", label=order, **look)
    _replica_axis(axes, result)
    if data == OPPOSITE:
        axes.set_yscale("log")
    axes.set_title(f"FP16, {rounding}: {data}")


def _plot_estimates(axes: Axes, result: Result, stochastic: bool) -> None:
    """Of independent terms: a fold loses c·√(R/2), a tree c·√(log2 R)."""
    from ipu.run.pages.drawing import THEORY

    counts = np.unique(result.column("replicas", part="error"))
    per_addition = ROUNDING_ERROR * (math.sqrt(2) if stochastic else 1.0)
    label = "independent errors: √(R/2) and √(log₂R)"
    axes.plot(counts, per_addition * np.sqrt(counts / 2), label=label, **THEORY)
    axes.plot(counts, per_addition * np.sqrt(np.log2(counts)), **THEORY)


def _plot_formats(axes: Axes, result: Result) -> None:
    most = _largest(list(result.rows))
    for i, (order, look) in enumerate(_looks().items()):
        for j, (name, rounding) in enumerate(WAYS):
            effect = over_seeds(
                result.column("error", part="error", data=GRADIENTS, format=name,
                              rounding=rounding, replicas=most, order=order)
            )
            axes.errorbar(j + 0.09 * (i - 3.5), effect.value, effect.uncertainty, fmt="o",
                          color=look["color"], markersize=4.5, linewidth=1.2)
    axes.set_xticks(range(len(WAYS)), [f"{name}\n{rounding}" for name, rounding in WAYS])
    axes.grid(visible=False, axis="x")
    axes.set(title=f"{GRADIENTS.capitalize()}, R = {most}", ylim=(0, None),
             ylabel="error in u of the format")


def _plot_bias(axes: Axes, result: Result) -> None:
    from ipu.run.pages.drawing import BLUE, ORANGE

    most = _largest(list(result.rows))
    names = [order.value for order in ORDERS][::-1]
    for rounding, color, offset in (("RNE", ORANGE, 0.19), ("SR", BLUE, -0.19)):
        where: Row = {"data": LARGE, "format": "FP16", "rounding": rounding, "replicas": most}
        bias = [result.column("bias", part="error", order=name, **where).mean() for name in names]
        axes.barh(np.arange(len(names)) + offset, bias, height=0.36, color=color, label=rounding)
    axes.set_yticks(range(len(names)), names)
    axes.grid(visible=False, axis="y")
    axes.set(title=f"{LARGE.capitalize()}, R = {most}", xlabel="mean error in u of FP16")
    axes.legend(loc="lower left")
