"""Ways to train, and what a training leaves: exceptions by layer, updates without effect."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from ipu.experiments.lab.result import Row
from ipu.learn.loss_scale import LossScale, NoLossScale
from ipu.learn.optim import Update
from ipu.learn.policy import Policy
from ipu.learn.train import Trainer
from ipu.learn.worker import SCOPE

FLAGS = {"OVERFLOW": "OFLO", "INVALID": "INV", "DIVBYZERO": "DIV0", "UNDERFLOW": "underflow"}
#: What the name of a layer's tensor may end with; without it, it is of the forward pass.
PHASES = ("gradient", "unscale", "update")


@dataclass(frozen=True)
class Variant:
    """One way of training: formats, stochastic rounding, loss scale."""

    name: str
    policy: Policy
    stochastic: bool = False
    loss_scale: LossScale = NoLossScale()  # noqa: RUF009  (an immutable value)

    def __str__(self) -> str:
        rounding = "SR" if self.stochastic else "RNE"
        return f"{self.policy},rounding={rounding},loss_scale={self.loss_scale.value:g}"


def described(variants: Iterable[Variant]) -> str:
    """Variants by name, as the policy of a result."""
    return "; ".join(f"{variant.name}: {variant}" for variant in variants)


def exceptions(trainer: Trainer) -> Iterator[Row]:
    """Per layer and phase: results, and how many raised each exception."""
    totals: dict[tuple[str, str], Counter[str]] = {}
    for (tensor, _), row in (trainer.device.counts or {}).items():
        totals.setdefault(_place(tensor), Counter()).update(row)
    for (layer, phase), row in totals.items():
        raised = {name: row[flag] for flag, name in FLAGS.items()}
        yield {"part": "exceptions", "layer": layer, "phase": phase, "results": row["results"],
               **raised}


def _place(tensor: str) -> tuple[str, str]:
    """Layer and phase of a tensor's name; what no layer does is the model's."""
    layer, _, phase = tensor.rpartition("/")
    layer, phase = (layer, phase) if phase in PHASES else (tensor, "forward")
    return layer.removeprefix(SCOPE).removeprefix("/") or "model", phase


class Watch:
    """Follows the updates of an optimiser, layer by layer: what was meant, and what arrived."""

    def __init__(self) -> None:
        self._sums: dict[str, np.ndarray] = {}

    def __call__(self, update: Update) -> None:
        moved = update.before.values - update.after.values
        meant = update.change.values.astype(np.float64)
        wanted = update.direction.values != 0
        sums = (
            np.count_nonzero(wanted), np.count_nonzero(wanted & (moved == 0)),
            (meant * meant).sum(), (meant * moved).sum(),
        )
        layer = update.variable.layer.rpartition("/")[2]
        self._sums[layer] = self._sums.get(layer, 0.0) + np.array(sums, np.float64)

    def rows(self) -> Iterator[Row]:
        """Per layer: the share of updates without effect, and of the movement that is missing."""
        for layer, (wanted, without, meant, moved) in self._sums.items():
            yield {"part": "updates", "layer": layer, "without_effect": float(without / wanted),
                   "movement_lost": float(1 - moved / meant)}

    @property
    def without_effect(self) -> float:
        """The share of all updates that left their parameter as it was."""
        wanted, without, *_ = np.sum(list(self._sums.values()), axis=0)
        return float(without / max(wanted, 1.0))
