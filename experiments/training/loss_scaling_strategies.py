"""Loss scales that stay, and loss scales that follow the gradients: what they do over time.

A deep network of sigmoids on the digits, FP16 activations and gradients, FP32 parameters: from
layer to layer gradients shrink, until FP16 has no number for them. The dynamic scale (GradScaler's
rule) waits for overflow and skips that step, so its machine makes NaN of an overflow; on the others
overflow saturates, and the automatic rules look at how many gradients are large. What a scale is
for is measured beside it: gradients of the first layers' weights that arrive as zero.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ipu.experiments.lab.machine import units_of
from ipu.experiments.lab.progress import progress
from ipu.experiments.lab.result import Collected, Result, Row
from ipu.experiments.training import digits
from ipu.experiments.training.digit_runs import BATCH
from ipu.learn import nn
from ipu.learn.loss_scale import (
    AutomaticLossScale,
    DynamicLossScale,
    KerasLossScale,
    LossScale,
    NoLossScale,
    StaticLossScale,
)
from ipu.learn.optim import SGD, Update
from ipu.learn.policy import MIXED
from ipu.learn.tensor import Tensor
from ipu.learn.train import Trainer
from ipu.machine import FpCtl

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

QUESTION = "Which loss scale do the strategies find, and what does finding it cost?"
BUDGET = 90
DEFAULT = False

RATE, EPOCHS = 0.5, 8
DEPTH, WIDTH = 9, 32
#: Sigmoids have no dead units and this layer no dark inputs: its zeros are underflow.
LOOKED_AT = "hidden_2"
#: Steps at the end that the answer looks at.
LAST = 100


def network(x: Tensor) -> Tensor:
    """Logits after DEPTH layers of sigmoids."""
    for number in range(1, DEPTH + 1):
        x = nn.sigmoid(nn.dense(x, WIDTH, f"hidden_{number}"))
    return nn.dense(x, digits.CLASSES, "output")


class ScalingStrategy(NamedTuple):
    """A loss scale as it begins, and whether overflow gives NaN."""

    scale: LossScale
    nanoo: bool = False

    def __str__(self) -> str:
        return f"{self.scale!r}, overflow {'gives NaN' if self.nanoo else 'saturates'}"


STRATEGIES = {
    "none": ScalingStrategy(NoLossScale()),
    "static 256": ScalingStrategy(StaticLossScale(256.0)),
    # GradScaler's own interval, 2000, is longer than this training.
    "dynamic (GradScaler)": ScalingStrategy(DynamicLossScale(interval=50), nanoo=True),
    "automatic (PopART)": ScalingStrategy(AutomaticLossScale(256.0)),
    "automatic (Keras)": ScalingStrategy(KerasLossScale(256.0)),
}


def run(quick: bool, seed: int) -> Result:
    epochs = 1 if quick else EPOCHS
    collected = Collected()
    for name, strategy in STRATEGIES.items():
        trained = Watched(strategy, seed)
        rows = list(trained.steps(epochs, seed, name))
        collected.add(rows, units_of(trained.trainer.device), strategy=name)
    parameters = {"network": f"{DEPTH} × {WIDTH} sigmoids", "optimizer": f"SGD, rate {RATE:g}",
                  "batch": BATCH, "epochs": epochs, "seed": seed,
                  "strategies": {name: str(s) for name, s in STRATEGIES.items()}}
    return Result(
        collected.rows,
        _answer(collected.rows),
        f"{MIXED},rounding=RNE",
        parameters,
        collected.units,
    )


class Watched:
    """A training, and the zeros among its gradients."""

    def __init__(self, strategy: ScalingStrategy, seed: int) -> None:
        self.trainer = Trainer(
            network, SGD(RATE), policy=MIXED, loss_scale=strategy.scale, seed=seed,
            control=FpCtl(nanoo=strategy.nanoo), observe=self._look,
        )
        self.zeros: float | None = None

    def _look(self, update: Update) -> None:
        if LOOKED_AT in update.variable.name and update.direction.ndim == 2:
            self.zeros = float(np.mean(update.direction.values == 0))

    def steps(self, epochs: int, seed: int, label: str) -> Iterator[Row]:
        """Per step: the scale it was made with, whether it overflowed, was skipped, and zeros."""
        data, trainer = digits.load(), self.trainer
        learn, _ = data.split(seed)
        images = trainer.device.from_host(data.images, MIXED.activations)
        batches = [b for e in range(1, epochs + 1) for b in digits.batches(learn, BATCH, seed, e)]
        for step, batch in enumerate(progress(batches, label), 1):
            scale = trainer.loss_scale.value
            trainer.device.clear_status()
            self.zeros = None  # a skipped step shows no gradients
            loss = trainer.step(images[batch], data.labels[batch])
            yield {
                "step": step, "scale": scale, "loss": loss, "skipped": not trainer.applied,
                "overflow": trainer.device.status.oflo, "zeros": self.zeros,
            }


class StrategyOutcome(NamedTuple):
    """Of one strategy: median scale and mean share of zeros in the end, and steps in all."""

    scale: float
    zeros: float
    overflowed: int
    skipped: int


def outcome(result: Result, name: str) -> StrategyOutcome:
    """What a strategy reached in its last LAST steps, and how many steps it cost."""
    zeros = result.column("zeros", strategy=name, skipped=False)[-LAST:]
    return StrategyOutcome(
        float(np.median(result.column("scale", strategy=name)[-LAST:])),
        float(zeros.mean()) if zeros.size else float("nan"),
        int(result.column("overflow", strategy=name).sum()),
        int(result.column("skipped", strategy=name).sum()),
    )


def _answer(rows: list[Row]) -> str:
    result = Result(rows, "", "")
    n = int(result.column("step").max())
    none = outcome(result, "none")
    searching = [name for name in STRATEGIES if name not in ("none", "static 256")]
    parts = []
    for name in searching:
        scale, zeros, overflowed, skipped = outcome(result, name)
        parts.append(
            f"{name} ends at {scale:g} and pays with {overflowed} overflowed steps, {skipped} of "
            f"them skipped ({zeros:.0%} zeros are left)"
        )
    return (
        f"In {n} steps {'; '.join(parts)}. The static scale 256 costs "
        f"{outcome(result, 'static 256').overflowed} overflowed steps and leaves "
        f"{outcome(result, 'static 256').zeros:.0%} zeros; without a scale {none.zeros:.0%} of the "
        f"gradients of {LOOKED_AT}'s weights are zero. (Scale: median, zeros: mean over the last "
        f"{min(LAST, n)} steps.)"
    )


def plot(result: Result) -> Figure:
    from ipu.run.pages.drawing import (
        BLUE,
        GREEN,
        GREY,
        ORANGE,
        PURPLE,
        count_ticks,
        new_figure,
    )

    figure, (scales, zeros) = new_figure(13, 6.2, mosaic="A;B", sharex=True, height_ratios=[1.4, 1])
    colors = (GREY, BLUE, GREEN, PURPLE, ORANGE)
    for name, color in zip(STRATEGIES, colors, strict=True):
        _plot_strategy(scales, zeros, result, name, color)
    scales.set(title="Loss scale, and steps that overflowed", ylabel="loss scale")
    scales.set_yscale("log", base=2)
    scales.plot([], [], "x", color="#444444", markersize=5, label="step that overflowed")
    scales.legend(fontsize=9, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    zeros.set(title=f"Zeros among the gradients of {LOOKED_AT}'s weights", xlabel="step",
              ylabel="share (%)")
    count_ticks(zeros.xaxis)
    return figure


def _plot_strategy(scales: Axes, zeros: Axes, result: Result, name: str, color: str) -> None:
    step = result.column("step", strategy=name)
    scale = result.column("scale", strategy=name)
    over = result.column("overflow", strategy=name).astype(bool)
    scales.step(step, scale, where="mid", color=color, label=name, linewidth=1.2)
    scales.plot(step[over], scale[over], "x", color=color, markersize=5)
    applied = result.column("step", strategy=name, skipped=False)
    share = 100 * result.column("zeros", strategy=name, skipped=False)
    zeros.plot(applied, share, color=color, linewidth=1.0)
