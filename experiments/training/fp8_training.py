"""Products of quarters beside products of halves: the digits in FP8, FP16 and FP32.

Operands of every product are rounded to F143 on the way forward and gradients to F152 on the way
back, each tensor with a power-of-two scale of its own; results, sums and parameters are FP16 and
FP32. The formats are those of the Mk2 with FP8; the choice of the scales is this project's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipu.experiments.lab.result import Result, Table
from ipu.experiments.lab.study import Study
from ipu.experiments.lab.variants import Variant
from ipu.experiments.training import digits
from ipu.feed.data import digits as images
from ipu.learn.loss_scale import StaticLossScale
from ipu.learn.nn import flatten
from ipu.learn.optim import SGD
from ipu.learn.policy import FP8, FP32, MIXED
from ipu.learn.tensor import Tensor

if TYPE_CHECKING:
    from matplotlib.figure import Figure

QUESTION = "What does training lose when its products take FP8 operands?"
BUDGET = 135
DEFAULT = False

_SCALED = StaticLossScale(256.0)
VARIANTS = (
    Variant("FP32", FP32),
    Variant("FP16, loss × 256", MIXED, loss_scale=_SCALED),
    Variant("FP8", FP8),
    Variant("FP8, loss × 256", FP8, loss_scale=_SCALED),
    Variant("FP8 + SR, loss × 256", FP8, stochastic=True, loss_scale=_SCALED),
)


def _network(x: Tensor) -> Tensor:
    return digits.network(flatten(x))


def _study(quick: bool) -> Study:
    epochs, seeds = (1, 1) if quick else (10, 5)
    return Study(
        "fp8_training", QUESTION, BUDGET, DEFAULT, _network, images(), SGD(0.02, 0.9), VARIANTS,
        epochs, 32, seeds, {"target": "mk2-fp8"},
    )


def run(quick: bool, seed: int) -> Result:
    return _study(quick).run(quick, seed)


def plot(result: Result) -> Figure | None:
    return _study(quick=False).plot(result)


def tables(result: Result) -> list[Table]:
    return _study(quick=False).tables(result)
