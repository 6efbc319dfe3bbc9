"""A transformer and a CNN in PyTorch, `.half()` and AdamW as users write them, and the rescue.

Each network trains on handwritten digits inside `fpsim.torch.machine`, unedited. The report of that
run says where binary16 hurt; the advice that follows from it is tried, every way from the same
initial states and with the same batches, beside binary32.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ipu.experiments.lab.progress import progress
from ipu.experiments.lab.result import Collected, Result, Row, Table, UnitUsed
from ipu.experiments.training import digits
from ipu.experiments.training.half_networks import MODELS
from ipu.run.judging import AS_GOOD, BETTER, REFERENCE
from ipu.run.trials import Trial

if TYPE_CHECKING:
    from matplotlib.figure import Figure

QUESTION = "Where does .half() hurt an unedited PyTorch training, and which change mends it?"
BUDGET = 300
DEFAULT = False
NEEDS = "torch"

RATE = 2e-3
#: AdamW's own eps, of which everything else follows.
EPS = 1e-8
#: Counters of a table, with their heads.
COUNTED = {"INVALID": "invalid", "DIVBYZERO": "÷ 0", "OVERFLOW": "overflow",
           "UNDERFLOW": "underflow", "subnormals": "subnormal"}


def run(quick: bool, seed: int) -> Result:
    steps, pairs, batch = (6, 5, 16) if quick else (40, 8, 32)
    collected = Collected()
    used: dict[str, UnitUsed] = {}
    for name in progress(MODELS, "networks", len(MODELS)):
        rows, units = _network(name, steps, pairs, seed, batch)
        used |= {unit.name: unit for unit in units}
        collected.add(rows, (), network=name)
    parameters = {
        "data": "digits of scikit-learn", "batch": batch, "steps": steps, "pairs": pairs,
        "learning rate": RATE, "optimizer": f"AdamW, eps {EPS:g} unless changed",
        "torch": importlib.import_module("torch").__version__,
    }
    return Result(
        collected.rows, _answer(collected.rows), ".half(), then the policies of the ways",
        parameters, tuple(used.values()),
    )


def _network(
    name: str, steps: int, pairs: int, seed: int, batch: int
) -> tuple[list[Row], list[UnitUsed]]:
    """Rows of one network: counts, advice, trials, losses; and the units behind them."""
    from ipu.frontends.torch import machine

    step = _step(name, steps, batch)
    with machine("fp16", seed=seed, count=True) as session:
        step(seed)
    report = session.report()
    advised = session.advise(lambda trial: step(seed + trial), pairs=pairs)
    rows = [*_counts(report), *_advice(advised.items), *_trials(advised.trials)]
    units = [
        UnitUsed(unit["unit"], unit["rate_is"], unit["instruction"]) for unit in report["units"]
    ]
    return rows, [*units, UnitUsed("operations of torch", "ASSUMED", "docs/pytorch.md, Limits")]


def _step(name: str, steps: int, size: int) -> Callable[[int], list[float]]:
    """The user's program: its losses, from a seed."""
    torch: Any = importlib.import_module("torch")
    data = digits.load()
    images = torch.from_numpy(data.images).float().view(-1, 1, 8, 8)
    labels = torch.from_numpy(data.labels)

    def step(seed: int) -> list[float]:
        torch.manual_seed(seed)
        model = MODELS[name](torch).half()
        optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, eps=EPS)
        learn, _ = data.split(seed)
        epochs = (digits.batches(learn, size, seed, epoch) for epoch in range(1, steps + 1))
        all_batches = (batch for batches in epochs for batch in batches)
        losses = []
        for _, batch in zip(range(steps), all_batches, strict=False):
            optimizer.zero_grad()
            output = model(images[batch].half())
            loss = torch.nn.functional.cross_entropy(output, labels[batch])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    return step


# Rows -------------------------------------------------------------------------------------------


def _counts(report: dict[str, Any]) -> Iterator[Row]:
    for row in report["first"]:
        yield {"part": "first", "flag": row["flag"], "step": row["step"],
               "layer": _word(row["layer"]),
               "direction": row["direction"], "results": row["times"]}
    for layer, directions in report["layers"].items():
        for direction, counters in directions.items():
            if any(counters[name] for name in COUNTED):
                yield {
                    "part": "counts", "layer": _word(layer), "direction": direction,
                    "results": counters["results"],
                    **{name.lower(): counters[name] for name in COUNTED},
                }


def _word(layer: str) -> str:
    """The name of a layer; a number, as of Sequential's layers, is no word of a table."""
    return f"layer {layer}" if layer.isdigit() else layer


def _advice(items: Any) -> Iterator[Row]:
    program = Path(__file__)
    for item in items:  # lines of this file, wherever it lies
        evidence = item.evidence.replace(str(program), program.name)
        yield {"part": "advice", "what": item.what, "evidence": evidence,
               "tried": ", ".join(map(str, item.ways))}


def _trials(trials: Any) -> Iterator[Row]:
    for place, trial in enumerate(trials):
        yield {"part": "trial", "place": place, **_trial(trial)}
        for number, loss in enumerate(trial.losses):
            if math.isfinite(loss):
                yield {"part": "loss", "way": str(trial.way), "step": number, "loss": float(loss)}


def _trial(trial: Trial) -> Row:
    judged = trial.judged
    is_measured = math.isfinite(judged.effect.value)
    return {
        "way": str(trial.way), "answer": judged.answer, "note": judged.note or None,
        "loss": trial.value if math.isfinite(trial.value) else None, "pairs": judged.pairs,
        "lost": judged.effect.value if is_measured else None,
        "lost_uncertainty": judged.effect.uncertainty if is_measured else None,
        "lost_at_most": judged.high if math.isfinite(judged.high) else None,
        **{name.lower(): n for name, n in trial.counts.items()},
        "cycles": trial.cycles, "bits": trial.bits,
    }


# Answer -----------------------------------------------------------------------------------------


def _answer(rows: list[Row]) -> str:
    return " ".join(_answer_of(name, Result(rows, "", "")) for name in MODELS)


def _answer_of(name: str, result: Result) -> str:
    """Where it began, and the cheapest way that restores binary32."""
    first = result.select(network=name, part="first")
    text = f"{name}: nothing exceptional happened in .half();"
    if first:
        row = first[0]
        text = (
            f"{name}: {row['flag']} began in step {row['step']} in {row['layer']} "
            f"({row['direction']}), {row['results']} results;"
        )
    trials = result.select(network=name, part="trial")
    best = [row for row in trials if row["answer"] in (AS_GOOD, BETTER)]
    if best:
        row = best[0]
        return (
            f"{text} {row['way']} is {row['answer']} as binary32 on {row['pairs']} pairs of runs "
            f"({_interval(row)} of binary32's progress is lost) at × {row['bits']:.2f} bits a "
            "parameter."
        ).replace(f"{BETTER} as", f"{BETTER} than")
    untrained = [row for row in trials if str(row["answer"]).endswith("does not train here")]
    if untrained:
        return f"{text} {untrained[0]['answer']}: {untrained[0]['note']}."
    measured = [row for row in trials if row["lost"] is not None and row["answer"] != REFERENCE]
    nearest = min(measured, key=lambda row: float(str(row["lost"])), default=None)
    if nearest is None:
        return f"{text} no way that was tried trains as binary32 does."
    return (
        f"{text} no way that was tried is as good as binary32 on these pairs of runs; nearest is "
        f"{nearest['way']}, {nearest['answer']} ({_interval(nearest)} of binary32's progress is "
        "lost)."
    )


# Figure and tables ------------------------------------------------------------------------------


def plot(result: Result) -> Figure:
    from ipu.run.pages import drawing

    figure, panels = drawing.new_figure(12.5, 4.8, mosaic="AB")
    colors = (drawing.BLUE, drawing.GREEN, drawing.ORANGE, drawing.PURPLE, drawing.SKY,
              drawing.RED, drawing.GREY)
    for axes, name in zip(panels, MODELS, strict=True):
        trials = result.select(network=name, part="trial")
        others = [row for row in trials if row["answer"] != REFERENCE]
        for row in [*(r for r in trials if r["answer"] == REFERENCE), *others]:
            is_reference = row["answer"] == REFERENCE
            where = {"network": name, "part": "loss", "way": row["way"]}
            steps, losses = result.column("step", **where), result.column("loss", **where)
            total = int(result.column("step", network=name, part="loss").max()) + 1
            ends = f" (not finite from step {len(steps)})" if len(steps) < total else ""
            axes.plot(
                steps, _smooth(losses), label=f"{row['way']}{ends}",
                color=drawing.BLACK if is_reference else colors[others.index(row) % len(colors)],
                linewidth=5.0 if is_reference else max(2.8 - 0.6 * others.index(row), 1.0),
                alpha=0.35 if is_reference else 1.0,
                marker="x" if len(steps) < 3 else None,
            )
        axes.set(title=f"{name}, .half() and AdamW", xlabel="step of the optimiser", ylabel="loss")
        axes.set_ylim(bottom=0)
        axes.legend(fontsize=8.5, loc="lower left")
        drawing.count_ticks(axes.xaxis)
    return figure


def _smooth(losses: np.ndarray, width: int = 5) -> np.ndarray:
    """Each loss as the mean of the last few."""
    sums = np.cumsum(np.insert(losses.astype(np.float64), 0, 0.0))
    first = np.maximum(np.arange(1, losses.size + 1) - width, 0)
    return np.asarray((sums[1:] - sums[first]) / (np.arange(1, losses.size + 1) - first))


def tables(result: Result) -> list[Table]:
    return [table for name in MODELS for table in (_count_table(result, name),
                                                 _trial_table(result, name))]


def _count_table(result: Result, name: str) -> Table:
    rows = result.select(network=name, part="counts")
    lines = [
        [str(row["layer"]), str(row["direction"]),
         *(f"{int(str(row[key])):,}" for key in ("results", *map(str.lower, COUNTED)))]
        for row in rows
    ]
    advice = result.select(network=name, part="advice")
    note = "Advice: " + " ".join(
        f"({i}) {row['what']}: {row['evidence']}." for i, row in enumerate(advice, 1)
    )
    heads = ["layer", "direction", "results", *COUNTED.values()]
    return Table(f"{name}: counts of the .half() run", heads, lines, note if advice else "")


def _trial_table(result: Result, name: str) -> Table:
    rows = result.select(network=name, part="trial")
    lines = [
        [str(row["way"]), _answer_text(row), _loss(row), _interval(row),
         str(row.get("pairs") or ""),
         *(f"{int(str(row.get(key, 0))):,}" for key in ("divbyzero", "invalid", "underflow")),
         f"× {row['cycles']:.2f}", f"× {row['bits']:.2f}"]
        for row in rows
    ]
    heads = ["way", "beside binary32", "final loss", "progress lost", "pairs", "÷ 0", "invalid",
             "underflow", "cycles", "bits"]
    note = (
        "± is the half width of the 95 % interval of the mean over pairs of runs. Cycles of the "
        "products and bits of a parameter with two states, beside the .half() run: a declared "
        "model."
    )
    return Table(f"{name}: ways that were tried, the cheapest that is as good as binary32 first",
                 heads, lines, note)


def _answer_text(row: Row) -> str:
    return f"{row['answer']} ({row['note']})" if row.get("note") else str(row["answer"])


def _loss(row: Row) -> str:
    # Of a stored result, a row has no key whose cell is empty.
    return "not finite" if row.get("loss") is None else f"{float(str(row['loss'])):.3g}"


def _interval(row: Row) -> str:
    """The share of binary32's progress that is lost, with ±."""
    if row.get("lost") is None:
        return "–"
    lost, half = (100 * float(str(row[name])) for name in ("lost", "lost_uncertainty"))
    return f"{lost:.2g} % ± {half:.2g} %"
