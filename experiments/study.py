"""Your own network, trained in several ways: one call, one report page.

A study is an experiment that is not in the catalogue: it takes the network as an argument.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from experiments import runner
from experiments.catalogue import Experiment
from experiments.machine import units_of
from experiments.progress import progress
from experiments.report import page, write_pages
from experiments.result import Result, Row, UnitUsed
from experiments.store import check_writable
from experiments.training import (
    Looks,
    Variant,
    exceptions,
    plot_accuracy,
    plot_exceptions,
    plot_losses,
)  # fmt: skip
from ipu.feed.batches import Batches
from ipu.feed.data import Data
from ipu.learn.loss_scale import StaticLossScale
from ipu.learn.optim import SGD
from ipu.learn.policy import FP16, FP32, MIXED
from ipu.learn.train import Model, Trainer
from ipu.machine import FpCtl

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["USUAL", "Variant", "study"]

#: Three ways of training that are worth comparing.
USUAL = (
    Variant("FP32", FP32),
    Variant("mixed, loss × 256", MIXED, loss_scale=StaticLossScale(256.0)),
    Variant("FP16 + SR", FP16, stochastic=True),
)
#: Test images that go through the network at once.
_CHUNK = 250


def study(
    name: str,
    model: Model,
    data: Data,
    optimizer: SGD,
    variants: Sequence[Variant] = USUAL,
    *,
    epochs: int = 3,
    batch: int = 32,
    seed: int = 0,
    out: str | Path = "reports",
) -> Path:
    """Train a model in each of these ways; the path of the page that compares them.

    The page, OUT/NAME.html, and the data below OUT/NAME hold loss by epoch, test accuracy, and by
    layer the exceptions, underflow and overflow among them.
    """
    out = Path(out)
    check_writable(out)
    chosen = Study(
        name, f"How does {name} train in these formats?", 0.0, False,
        model, data, optimizer, tuple(variants), epochs, batch,
    )  # fmt: skip
    runner.run(chosen, out, quick=False, seed=seed)
    found = page(chosen, out)
    assert found is not None
    return write_pages(out / name, [found])


@dataclass(frozen=True)
class Study(Experiment):
    """An experiment around somebody's network."""

    model: Model
    data: Data
    optimizer: SGD
    variants: tuple[Variant, ...]
    epochs: int
    batch: int

    def run(self, quick: bool, seed: int) -> Result:
        rows: list[Row] = []
        units: dict[UnitUsed, None] = {}
        for variant in self.variants:
            trainer = self._trainer(variant, seed)
            found = list(self._train(variant, trainer, seed))
            rows += [{"policy": variant.name, "seed": seed, **row} for row in found]
            units |= dict.fromkeys(units_of(trainer.device))
        parameters = {
            "data": self.data.source, "optimizer": str(self.optimizer), "epochs": self.epochs,
            "batch": self.batch,
        }  # fmt: skip
        policy = "; ".join(f"{v.name}: {v}" for v in self.variants)
        return Result(rows, _answer(rows), policy, parameters, tuple(units))

    def _trainer(self, variant: Variant, seed: int) -> Trainer:
        return Trainer(
            self.model, self.optimizer, policy=variant.policy, loss_scale=variant.loss_scale,
            control=FpCtl(esr=variant.stochastic), seed=seed, count=True,
        )  # fmt: skip

    def _train(self, variant: Variant, trainer: Trainer, seed: int) -> Iterator[Row]:
        batches = Batches(self.data.learn, self.batch, seed=seed)
        with warnings.catch_warnings():
            # What underflows is part of what the page shows.
            warnings.simplefilter("ignore", RuntimeWarning)
            for epoch in range(1, self.epochs + 1):
                steps = progress(range(batches.per_epoch), f"{variant.name}, epoch {epoch}")
                loss = np.mean([trainer.step(*next(batches)) for _ in steps])
                yield {"part": "loss", "epoch": epoch, "loss": float(loss)}
        yield from exceptions(trainer)
        yield {"part": "test", "accuracy": self._accuracy(trainer)}

    def _accuracy(self, trainer: Trainer) -> float:
        test = self.data.test
        right = 0.0
        for start in range(0, len(test), _CHUNK):
            some = test[start : start + _CHUNK]
            right += trainer.accuracy(some.values, some.labels) * len(some)
        return right / len(test)

    def plot(self, result: Result) -> Figure:
        from experiments.drawing import new_figure

        figure, (losses, ends, counters) = new_figure(
            12, 7.6, mosaic="AB;CC", caption=result.answer, height_ratios=[1, 1.2]
        )
        looks = _looks(self.variants)
        plot_losses(losses, result, looks)
        plot_accuracy(ends, result, looks)
        plot_exceptions(counters, result, looks)
        return figure


def _answer(rows: list[Row]) -> str:
    """Accuracy of each way, and where most results underflowed."""
    tested = [row for row in rows if row["part"] == "test"]
    points = ", ".join(f"{row['policy']} {100 * float(str(row['accuracy'])):.1f} %"
                       for row in tested)  # fmt: skip
    worst = max((row for row in rows if row["part"] == "exceptions"), key=_underflow)
    if not _underflow(worst):
        return f"Test accuracy: {points}. Nothing underflowed."
    return (
        f"Test accuracy: {points}. Underflow is highest with {worst['policy']} in "
        f"{worst['layer']}, {worst['phase']}: {100 * _underflow(worst):.2g} % of the results."
    )


def _underflow(row: Row) -> float:
    return float(str(row["underflow"])) / max(float(str(row["results"])), 1.0)


def _looks(variants: Sequence[Variant]) -> Looks:
    from experiments import drawing

    colours = [drawing.GREY, drawing.PURPLE, drawing.GREEN, drawing.BLUE, drawing.ORANGE,
               drawing.SKY, drawing.RED, drawing.BLACK]  # fmt: skip
    return {
        variant.name: {"color": colours[i % len(colours)], "linestyle": "-"}
        for i, variant in enumerate(variants)
    }
