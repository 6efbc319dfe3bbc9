"""Your own network, trained in several ways: one call, one report page.

A study is an experiment that is not in the catalogue: it takes the network as an argument.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

import numpy as np

from fpsim.records.formats import Format
from ipu.experiments.lab import runner
from ipu.experiments.lab.catalogue import Experiment
from ipu.experiments.lab.judged import declared, judged_text, judged_ways, mean_text
from ipu.experiments.lab.machine import units_of
from ipu.experiments.lab.progress import progress
from ipu.experiments.lab.report import page, write_pages
from ipu.experiments.lab.result import Collected, Result, Row, Table, UnitUsed
from ipu.experiments.lab.store import check_writable
from ipu.experiments.lab.training_panels import (
    Looks,
    exception_table,
    plot_accuracy,
    plot_losses,
)
from ipu.experiments.lab.variants import Variant, described, exceptions
from ipu.experiments.sweep.cluster import DaskCluster, cluster_of
from ipu.experiments.sweep.engine import WorkersLostError, as_they_come
from ipu.experiments.sweep.jobs import Version, begin, own_version
from ipu.feed.batches import Batches
from ipu.feed.data import Data
from ipu.learn.loss_scale import StaticLossScale
from ipu.learn.optim import SGD
from ipu.learn.policy import FP16, FP32, MIXED
from ipu.learn.train import Model, Trainer
from ipu.machine import MK2, FpCtl, Target

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["USUAL", "Variant", "study"]

#: Three ways of training that are worth comparing.
USUAL = (
    Variant("FP32", FP32),
    Variant("mixed, loss × 256", MIXED, loss_scale=StaticLossScale(256.0)),
    Variant("FP16 + SR", FP16, stochastic=True),
)
#: Names that stay inside the folder of the reports.
PLAIN = re.compile(r"[^\W_][\w.-]{0,99}")
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
    seeds: int = 1,
    out: str | Path = "reports",
    target: Target | str = MK2,
    preset: str = "window",
    f32_denormals: str = "flush",
    max_nan: str = "number",
    sums: str = "spread",
    conv_partials: Format | str | None = None,
    cluster: DaskCluster | str | None = None,
) -> Path:
    """Train a model in each of these ways, with each of so many seeds from `seed` on.

    Each way is judged beside the first one by the test accuracy, a point of which does not matter:
    as good, better, worse, or cannot tell, as always with fewer than five seeds.

    The result is the path of the page that compares them. The page, OUT/NAME.html, and the data
    below OUT/NAME hold loss by epoch, test accuracy, and by layer the exceptions, underflow and
    overflow among them. `target` and what follows it are arguments of the devices.

    cluster    runs the trainings side by side with the same result: "local" for processes of this
               machine, the address of a Dask scheduler, or a DaskCluster; else one after another.

    Raises    ValueError for a name that is no plain file name, for an unwritable folder, and for a
              cluster that may not be used.
    """
    out = Path(out)
    if not isinstance(name, str) or not PLAIN.fullmatch(name) or name == "index":
        raise ValueError(
            f"name={name!r} cannot name a page in {str(out)!r}; use up to 100 letters, digits, "
            "'-', '_' and '.', and not 'index'"
        )
    check_writable(out)
    where = cluster_of(cluster)
    machine = {"target": target, "preset": preset, "f32_denormals": f32_denormals,
               "max_nan": max_nan, "sums": sums, "conv_partials": conv_partials}
    experiment = Study(
        name, f"How does {name} train in these formats?", 0.0, False,
        model, data, optimizer, tuple(variants), epochs, batch, seeds, machine, where,
    )
    runner.run(experiment, out, quick=False, seed=seed)
    shown = page(experiment, out)
    assert shown is not None
    return write_pages(out / name, [shown])


class StudyJob(NamedTuple):
    """One training of a study; exceptions are counted in one of each variant."""

    seed: int
    variant: Variant
    counted: bool


Trained = tuple[list[Row], tuple[UnitUsed, ...]]


@dataclass(frozen=True)
class Study(Experiment):
    """An experiment around somebody's network."""

    model: Model
    data: Data
    optimizer: SGD
    variants: tuple[Variant, ...]
    epochs: int
    batch: int
    seeds: int
    machine: Mapping[str, Any]
    cluster: DaskCluster | None = None

    def run(self, quick: bool, seed: int) -> Result:
        collected = Collected()
        every = product(range(seed, seed + self.seeds), self.variants)
        jobs = [StudyJob(one, variant, one == seed) for one, variant in every]
        for job, (rows, units) in zip(jobs, self._trainings(jobs), strict=True):
            collected.add(rows, units, policy=job.variant.name, seed=job.seed)
        parameters = {
            "data": str(self.data), "optimizer": str(self.optimizer), "epochs": self.epochs,
            "batch": self.batch, "seeds": self.seeds, "declared": declared(self.seeds),
            **{name: str(value) for name, value in self.machine.items()},
        }
        policy = described(self.variants)
        return Result(collected.rows, _answer(collected.rows), policy, parameters, collected.units)

    def _trainings(self, jobs: Sequence[StudyJob]) -> Iterable[Trained]:
        """What each training leaves, in the order of the jobs."""
        if self.cluster is None:
            return map(self.training, jobs)
        version, alone = own_version(), replace(self, cluster=None)
        run = uuid4().hex  # a network cannot be compared, so each study is its own jobs
        keys = [f"study-{run}-{number}" for number in range(len(jobs))]
        trained: dict[int, Trained] = {}
        for number, outcome in as_they_come(
            _on_worker, (alone, version), jobs, keys, self.cluster, self.name
        ):
            if isinstance(outcome, WorkersLostError):
                job = jobs[number]
                raise RuntimeError(
                    f"{job.variant.name} with seed={job.seed} ended {outcome.workers} workers; "
                    "run the study without cluster"
                )
            trained[number] = outcome
        return [trained[number] for number in range(len(jobs))]

    def training(self, job: StudyJob) -> Trained:
        """Rows of one training, and the units that it used."""
        trainer = self._trainer(job.variant, job.seed, job.counted)
        return list(self._train(job.variant, trainer, job.seed)), units_of(trainer.device)

    def _trainer(self, variant: Variant, seed: int, count: bool) -> Trainer:
        return Trainer(
            self.model, self.optimizer, policy=variant.policy, loss_scale=variant.loss_scale,
            control=FpCtl(esr=variant.stochastic), seed=seed, count=count, **self.machine,
        )

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
            chunk = test[start : start + _CHUNK]
            right += trainer.accuracy(chunk.values, chunk.labels) * len(chunk)
        return right / len(test)

    def command(self, quick: bool, seed: int) -> str:
        return f"ipu.experiments.lab.study.study({self.name!r}, …, seed={seed})"

    def plot(self, result: Result) -> Figure:
        from ipu.run.pages.drawing import new_figure

        figure, (losses, ends) = new_figure(12, 4.4, mosaic="AB")
        looks = _looks(self.variants)
        plot_losses(losses, result, looks)
        plot_accuracy(ends, result, looks)
        return figure

    def tables(self, result: Result) -> list[Table]:
        return [exception_table(result, [v.name for v in self.variants])]


def _on_worker(shared: tuple[Study, Version], job: StudyJob) -> Trained:
    study, version = shared
    begin(version)
    return study.training(job)


def _answer(rows: list[Row]) -> str:
    """Accuracy of each way, its answer beside the first one, and where most results underflowed."""
    result = Result(rows, "", "")
    first, *others = dict.fromkeys(str(row["policy"]) for row in result.select(part="test"))
    points = "; ".join(
        f"{name}: {mean_text(100 * result.column('accuracy', part='test', policy=name))}"
        for name in (first, *others)
    )
    judged = judged_ways(result, others, first)
    if judged:
        points += f". Beside {first}: " + "; ".join(map(judged_text, judged, judged.values()))
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
    from ipu.run.pages import drawing

    colours = [drawing.GREY, drawing.PURPLE, drawing.GREEN, drawing.BLUE, drawing.ORANGE,
               drawing.SKY, drawing.RED, drawing.BLACK]
    # The first lines are the widest, so that coinciding ones are all seen.
    widths = np.linspace(4.0, 1.4, len(variants))
    return {
        variant.name: {"color": colours[i % len(colours)], "linestyle": "-", "linewidth": width}
        for i, (variant, width) in enumerate(zip(variants, widths, strict=True))
    }
