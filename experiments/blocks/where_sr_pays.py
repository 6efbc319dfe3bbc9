"""A layer trained on the same batches again and again, or on new ones: gradients to nearest or SR.

The weight gradient is a product in NVFP4, everything else binary32, so its error is the only one.
To nearest, the error of a batch is nearly the same whenever the batch comes back, and pulls all the
time into one direction; a stochastic one is larger, and averages out. New batches make the errors
of nearest average out as well. What is compared is how far the loss on the data, or of the whole
distribution, stays above its least value, which is known exactly: the layer is linear.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpsim import Context
from fpsim.recipe_products import weight_gradient
from ipu.experiments.blocks.tensors import QUANTISERS
from ipu.experiments.lab.processes import in_processes
from ipu.experiments.lab.result import Result, Row
from ipu.run.verdict import CONFIDENCE, Effect, over_seeds

if TYPE_CHECKING:
    from matplotlib.figure import Figure

QUESTION = "Where does stochastic rounding of gradients begin to pay?"
BUDGET = 150
DEFAULT = False

INPUTS, OUTPUTS, TOKENS, STEPS, RATE, SEEDS = 64, 64, 128, 300, 0.15, 5
#: Batches that a training goes through again and again; 0: every one is new.
POOLS = (1, 4, 16, 0)
WAYS = {"binary32": "", "to nearest": "nvfp4-plain", "stochastic": "nvfp4-plain+dy=sr"}

Batch = tuple[NDArray[np.float32], NDArray[np.float32]]


class LayerTraining(NamedTuple):
    """One training of a layer."""

    way: str
    pool: int
    steps: int
    seed: int


def excess(job: LayerTraining) -> tuple[float, float]:
    """The loss above its least value, and that value."""
    rng = np.random.default_rng(job.seed)
    teacher = rng.standard_normal((OUTPUTS, INPUTS)) / math.sqrt(INPUTS)
    stream = _batches(rng, teacher)
    pool = [next(stream) for _ in range(job.pool)]
    context = Context("binary32", seed=job.seed)
    w = np.zeros((OUTPUTS, INPUTS), np.float32)
    for step in range(job.steps):
        x, wanted = pool[step % job.pool] if pool else next(stream)
        gradient = _gradient(context, x @ w.T - wanted, x, WAYS[job.way])
        rate = RATE * (1 + math.cos(math.pi * step / job.steps)) / TOKENS
        w = (w - rate * gradient).astype(np.float32)
    if not pool:  # x is standard normal, the noise too
        return float(np.square(w - teacher).sum()), float(OUTPUTS)
    inputs, targets = (
        np.concatenate(parts).astype(np.float64) for parts in zip(*pool, strict=True)
    )
    best = np.linalg.lstsq(inputs, targets, rcond=None)[0].T
    loss, least = (np.square(inputs @ v.T - targets).sum() / len(inputs) for v in (w, best))
    return float(loss - least), float(least)


def _batches(rng: np.random.Generator, teacher: NDArray[np.float64]) -> Iterator[Batch]:
    """Inputs, and what the layer should give for them, with noise."""
    while True:
        x = rng.standard_normal((TOKENS, INPUTS))
        noise = rng.standard_normal((TOKENS, OUTPUTS))
        yield x.astype(np.float32), (x @ teacher.T + noise).astype(np.float32)


def _gradient(
    context: Context, dy: NDArray[np.float32], x: NDArray[np.float32], recipe: str
) -> NDArray[np.float64]:
    if not recipe:
        return dy.T.astype(np.float64) @ x
    return weight_gradient(context, context.array(dy), context.array(x), recipe).values


def run(quick: bool, seed: int) -> Result:
    seeds, steps = (2, 12) if quick else (SEEDS, STEPS)
    todo = [
        LayerTraining(way, pool, steps, seed + i)
        for pool in POOLS for i in range(seeds) for way in WAYS
    ]
    left = dict(zip(todo, in_processes(excess, todo, "trainings"), strict=True))
    rows: list[Row] = []
    for pool in POOLS:
        seeds_of = [job.seed for job in todo if job.pool == pool and job.way == "binary32"]
        of = {
            way: [left[LayerTraining(way, pool, steps, s)] for s in seeds_of] for way in WAYS
        }
        effect = over_seeds(
            100 * math.log((s + least) / (n + least))
            for (s, least), (n, _) in zip(of["stochastic"], of["to nearest"], strict=True)
        )
        rows.append({
            "batches": pool, "effect": effect.value, "uncertainty": effect.uncertainty,
            **{way: float(np.mean([100 * e / least for e, least in values]))
               for way, values in of.items()},
        })
    parameters = {
        "inputs": INPUTS, "outputs": OUTPUTS, "tokens": TOKENS, "steps": steps, "rate": RATE,
        "seeds": seeds,
    }
    return Result(rows, _answer(rows), "weight gradient by a recipe", parameters, (QUANTISERS,))


def _effect(row: Row) -> Effect:
    return Effect(float(row["effect"]), float(row["uncertainty"]))  # type: ignore[arg-type]


def _named(pool: object) -> str:
    if pool == 0:
        return "new batches"
    return "one batch" if pool == 1 else f"{pool} batches"


def _verdict(effect: Effect) -> str:
    if effect.is_below(0):
        return "it pays"
    return "it costs" if effect.is_above(0) else "cannot tell"


def _answer(rows: Sequence[Row]) -> str:
    told = "; ".join(
        f"{_named(row['batches'])}: {_effect(row).value:+.3f} ± {_effect(row).uncertainty:.3f} %, "
        f"{_verdict(_effect(row))}"
        for row in rows
    )
    return (
        "Stochastic rounding of a linear layer's gradients changes the loss that is left "
        f"({CONFIDENCE:.0%} intervals of paired seeds): {told}."
    )


def plot(result: Result) -> Figure:
    from ipu.run.pages.drawing import new_figure

    figure, (axes,) = new_figure(7, 4.2, mosaic="A")
    names = [_named(row["batches"]) for row in result.rows]
    for way in WAYS:
        heights = [float(row[way]) for row in result.rows]  # type: ignore[arg-type]
        axes.plot(names, heights, "o-", label=way)
    axes.set(yscale="log", xlabel="data that a training sees",
             ylabel="loss above the least one in %", title="NVFP4 weight gradients")
    axes.legend()
    return figure
