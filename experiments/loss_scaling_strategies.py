"""Loss scales that stay, and loss scales that follow the gradients: what they do over time.

The digits network with FP16 activations and gradients and FP32 parameters, small images so that
gradients are small. The dynamic scale (GradScaler's rule) needs overflow to be seen, so its machine
makes NaN of it; the others saturate. Gradients that are zero though the FP32 machine finds them
different from zero would be the better measure, but the scales themselves can only look at what is
large.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from experiments import digits
from experiments.digit_runs import BATCH, NETWORK
from experiments.machine import units_of
from experiments.progress import progress
from experiments.result import Result, Row, UnitUsed
from fpsim.flags import Flags
from ipu.learn.automatic_loss_scale import AutomaticLossScale, KerasLossScale
from ipu.learn.loss_scale import DynamicLossScale, LossScale, NoLossScale, StaticLossScale
from ipu.learn.optim import SGD, compute_gradients
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

RATE, MOMENTUM, EPOCHS = 0.05, 0.9, 8
#: Images are made this much darker, which makes the first layer's gradients small.
DARK = 2.0**-8


class Strategy(NamedTuple):
    """A loss scale as it begins, and whether overflow gives NaN."""

    scale: LossScale
    nanoo: bool = False


STRATEGIES = {
    "none": Strategy(NoLossScale()),
    "static 256": Strategy(StaticLossScale(256.0)),
    "dynamic (GradScaler)": Strategy(DynamicLossScale(interval=50), nanoo=True),
    "automatic (PopART)": Strategy(AutomaticLossScale(256.0)),
    "automatic (Keras)": Strategy(KerasLossScale(256.0)),
}
