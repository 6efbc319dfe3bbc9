"""The same small transformer trained in MXFP8, NVFP4 and MXFP4, beside binary32, seed by seed.

Linear layers of the blocks multiply in blocks, forward and backward; all other operations, the
head, parameters and the optimiser are binary32, so a gap is that of the recipe alone. A seed fixes
initial values and batches for every way; the gap of a way is the logarithm of its loss over that of
binary32, both means of the last steps. A claim is reproduced where the bounds of the mean of the
paired gaps (`ipu.run.looks`, as in every comparison of trainings) lie inside of its band, not
reproduced where they lie outside.

Where stochastic rounding of gradients begins to pay is another question: `where_sr_pays`.
"""

from __future__ import annotations

import importlib
import math
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ipu.experiments.blocks.byte_transformer import LENGTH, byte_transformer, digest, text
from ipu.experiments.blocks.tensors import QUANTISERS
from ipu.experiments.lab.result import Result, Row, UnitUsed
from ipu.experiments.lab.unfinished import resumed
from ipu.run.looks import bound
from ipu.run.verdict import CONFIDENCE, Effect, over_seeds

if TYPE_CHECKING:
    from matplotlib.figure import Figure

QUESTION = "Which four bits train: NVFP4 or MXFP4, and does stochastic rounding help?"
#: On two cores: thirty trainings of about 45 seconds of one core.
BUDGET = 1200
DEFAULT = False
NEEDS = "torch"

RATE = 1e-3
SEEDS, LAST = 5, 60
#: Points of a curve in the figure.
N_WINDOWS = 25
#: Batch and steps: those of the claims; further ones have the ways of SWEPT.
MAIN = 4, 250
SIZES: tuple[tuple[int, int], ...] = (MAIN,)
REFERENCE = "fp32"
#: Recipes by their names in the figure; the head is binary32 in all.
WAYS = {
    REFERENCE: "", "mxfp8": "mxfp8", "nvfp4-plain": "nvfp4-plain",
    "nvfp4-plain, SR of gradients": "nvfp4-plain+dy=sr", "nvfp4 (full)": "nvfp4", "mxfp4": "mxfp4",
}
SWEPT = (REFERENCE, "nvfp4-plain", "nvfp4-plain, SR of gradients")


class FourBitRun(NamedTuple):
    """One training."""

    way: str
    batch: int
    steps: int
    seed: int


def jobs(seeds: int, sizes: tuple[tuple[int, int], ...], seed: int) -> list[FourBitRun]:
    """Every training, those of the claims first."""
    return [
        FourBitRun(way, batch, steps, seed + number)
        for batch, steps in sizes
        for number in range(seeds)
        for way in (tuple(WAYS) if (batch, steps) == sizes[0] else SWEPT)
    ]


def losses(job: FourBitRun) -> list[float]:
    """The loss of every step."""
    from ipu.frontends.torch import machine
    from ipu.run.ways import Way

    torch: Any = importlib.import_module("torch")
    recipe = WAYS[job.way]
    way = Way.parse(f"p=f32,c=f32,recipe={recipe}+head=f32" if recipe else "p=f32,c=f32")
    bytes_of_text = torch.from_numpy(text().astype(np.int64))
    rng = np.random.default_rng(job.seed)
    result = []
    with warnings.catch_warnings():
        # Products of attention are none of a recipe, which the docstring says.
        warnings.simplefilter("ignore", RuntimeWarning)
        with machine(way.policy, seed=job.seed, target="hypothetical"):
            torch.manual_seed(job.seed)
            model = byte_transformer(torch)
            optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
            for _ in range(job.steps):
                starts = rng.integers(0, len(bytes_of_text) - LENGTH - 1, job.batch)
                window = torch.stack([bytes_of_text[i : i + LENGTH + 1] for i in starts])
                loss = torch.nn.functional.cross_entropy(
                    model(window[:, :-1]).reshape(-1, 256), window[:, 1:].reshape(-1)
                )
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                result.append(loss.item())
    return result


def run(quick: bool, seed: int) -> Result:
    seeds, sizes, last = (2, ((2, 4),), 2) if quick else (SEEDS, SIZES, LAST)
    todo = jobs(seeds, sizes, seed)
    return result_of(dict(zip(todo, resumed(losses, todo, "trainings"), strict=True)), last)


def result_of(curves: dict[FourBitRun, list[float]], last: int) -> Result:
    """What these trainings say."""
    rows: list[Row] = [*_of_ways(curves, last), *_curves(curves)]
    main = next(iter(curves))
    parameters = {
        "batch": main.batch, "steps": main.steps, "last steps": last, "learning rate": RATE,
        "seeds": len({job.seed for job in curves}), "text": digest(),
        "sizes": [f"{b} x {n}" for b, n in dict.fromkeys((j.batch, j.steps) for j in curves)],
        "torch": importlib.import_module("torch").__version__,
    }
    units = (QUANTISERS, UnitUsed("operations of torch", "ASSUMED", "docs/pytorch.md, Limits"))
    return Result(rows, _answer(curves, last), "p=f32,c=f32 and a recipe", parameters, units)


# Gaps -------------------------------------------------------------------------------------------


def _mean(curves: dict[FourBitRun, list[float]], job: FourBitRun, last: int) -> float:
    return float(np.mean(curves[job][-last:]))


def gaps(
    curves: dict[FourBitRun, list[float]], way: str, size: tuple[int, int], last: int
) -> list[float]:
    """log(loss of a way / loss of binary32) of each seed."""
    pairs = [
        (job, job._replace(way=REFERENCE)) for job in curves
        if job.way == way and (job.batch, job.steps) == size
    ]
    return [
        math.log(_mean(curves, job, last) / _mean(curves, plain, last)) for job, plain in pairs
    ]


def _of_ways(curves: dict[FourBitRun, list[float]], last: int) -> Iterator[Row]:
    for batch, steps in dict.fromkeys((job.batch, job.steps) for job in curves):
        for way in dict.fromkeys(job.way for job in curves if (job.batch, job.steps) == (
                batch, steps)):
            of_seeds = gaps(curves, way, (batch, steps), last)
            gap = over_seeds(of_seeds)
            loss = np.mean([
                _mean(curves, job, last) for job in curves
                if job.way == way and (job.batch, job.steps) == (batch, steps)
            ])
            yield {
                "part": "gap", "way": way, "batch": batch, "steps": steps, "loss": float(loss),
                "gap": gap.value, "uncertainty": gap.uncertainty, "seeds": len(of_seeds),
            }


def _curves(curves: dict[FourBitRun, list[float]]) -> Iterator[Row]:
    main = next(iter(curves))
    for job, values in curves.items():
        if (job.batch, job.steps, job.seed) == (main.batch, main.steps, main.seed):
            for step, loss in enumerate(values):
                yield {"part": "loss", "way": job.way, "step": step, "loss": loss}


# Claims -----------------------------------------------------------------------------------------


def claims(curves: dict[FourBitRun, list[float]], last: int) -> dict[str, str]:
    """What two seeds elsewhere gave, and whether these seeds give it too."""
    job = next(iter(curves))
    of = {way: gaps(curves, way, (job.batch, job.steps), last) for way in WAYS}
    plain, four = of["nvfp4-plain"], of["mxfp4"]
    excess = [m - 2 * n for m, n in zip(four, plain, strict=True)]
    return {
        "nvfp4-plain 0.15 to 0.6 % above binary32": _inside(plain, 0.0015, 0.006),
        "mxfp4's gap at least twice nvfp4-plain's": _inside(excess, 0.0, math.inf),
        "the full recipe below 1 %": _inside(of["nvfp4 (full)"], -math.inf, 0.01),
        "mxfp8 below 0.1 %": _inside(of["mxfp8"], -math.inf, 0.001),
    }


def _inside(paired: list[float], low: float, high: float) -> str:
    effect = _bounded(paired)
    if effect.is_above(low) and effect.is_below(high):
        return "reproduced"
    if effect.is_below(low) or effect.is_above(high):
        return "not reproduced"
    return "cannot tell"


def _bounded(paired: list[float]) -> Effect:
    """The mean with the bounds by which answers are given; they are wider than its interval."""
    return Effect(float(np.mean(paired)), bound(paired))


def crossover(
    curves: dict[FourBitRun, list[float]], last: int
) -> dict[tuple[int, int], Effect]:
    """What stochastic rounding of gradients adds to the gap, by batch and steps."""
    sizes = dict.fromkeys((job.batch, job.steps) for job in curves)
    return {size: over_seeds(added(curves, size, last)) for size in sizes}


def added(
    curves: dict[FourBitRun, list[float]], size: tuple[int, int], last: int
) -> list[float]:
    """What stochastic rounding of gradients adds to the gap of each seed."""
    plain, stochastic = (gaps(curves, way, size, last) for way in SWEPT[1:])
    return [s - p for s, p in zip(stochastic, plain, strict=True)]


def _answer(curves: dict[FourBitRun, list[float]], last: int) -> str:
    job = next(iter(curves))
    shown = []
    for way in list(WAYS)[1:]:
        gap = over_seeds(gaps(curves, way, (job.batch, job.steps), last))
        shown.append(f"{way} {100 * gap.value:+.2f} ± {100 * gap.uncertainty:.2f} %")
    told = "; ".join(f"{claim}: {what}" for claim, what in claims(curves, last).items())
    swept = ", ".join(
        f"{100 * e.value:+.2f} ± {100 * e.uncertainty:.2f} % at batch {batch} after {steps} steps"
        for (batch, steps), e in crossover(curves, last).items()
    )
    pays = [size for size in crossover(curves, last)
            if _bounded(added(curves, size, last)).is_below(0)]
    verdict = "it pays there" if pays else "nowhere here does it pay beyond the uncertainty"
    return (
        f"Log loss over binary32's: {', '.join(shown)} ({CONFIDENCE:.0%} intervals of paired "
        f"seeds). {told}. Stochastic rounding of gradients adds {swept}: {verdict}."
    )


def plot(result: Result) -> Figure:
    from ipu.run.pages.drawing import new_figure

    figure, (gap, curve) = new_figure(11, 4.6, mosaic="AB")
    rows = [row for row in result.select(part="gap") if row["way"] != REFERENCE]
    first = [row for row in rows if (row["batch"], row["steps"]) == (
        rows[0]["batch"], rows[0]["steps"])]
    names = [str(row["way"]) for row in first]
    gap.barh(
        names, [100 * float(row["gap"]) for row in first],  # type: ignore[arg-type]
        xerr=[100 * min(float(row["uncertainty"]), 1.0) for row in first],  # type: ignore[arg-type]
    )
    gap.set(title="Gap to binary32", xlabel="log loss over binary32's in %")
    expected = _window_means(result, REFERENCE)
    for way in WAYS:
        if way != REFERENCE:
            means = _window_means(result, way)
            curve.plot(
                means[0], 100 * np.log(means[1] / expected[1]), label=way, marker=".", linewidth=1
            )
    curve.axhline(0, linewidth=0.6, color="0.5")
    curve.set(
        title="One seed, as it trains", xlabel="step", ylabel="log loss over binary32's in %"
    )
    curve.legend()
    return figure


def _window_means(result: Result, way: str) -> NDArray[np.float64]:
    """Last steps of windows, and the mean loss in each: the losses themselves lie on one line."""
    losses = np.array([row["loss"] for row in result.select(part="loss", way=way)], np.float64)
    width = max(1, losses.size // N_WINDOWS)
    means = losses[: losses.size // width * width].reshape(-1, width).mean(axis=1)
    return np.stack([width * np.arange(1, means.size + 1) - 1.0, means])
