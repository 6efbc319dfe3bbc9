"""What BF16 does to positions of a rotary embedding, and to the decay rate of Adam."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from fpsim import BFLOAT16, RNE, RTZ, Context
from ipu.experiments.lab.result import ELEMENTWISE, Result, Row
from ipu.experiments.published.claim import Claim, equal, published, same_digits, tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["plot", "run", "tables"]

QUESTION = "What becomes of position 15962 and of beta2 = 0.999 in BF16?"
BUDGET = 5
DEFAULT = False

POSITION = 15962
CLAIMS = [
    Claim("positions",
          "Position 15962 becomes 15936 or 15968, which are 16 apart, with cosines -0.547 and "
          "-0.882.",
          "pull request 3520 of github.com/huggingface/candle",
          "15962 rounded to BF16 to nearest and toward zero, the spacing, cosines in binary64"),
    Claim("beta2", "0.999 and 0.9999 become 0.99609375, whose horizon is 256 steps.",
          "issue 55935 of github.com/tenstorrent/tt-metal",
          "both numbers rounded to BF16 toward zero, as that hardware does; 1 / (1 - beta2)"),
]


def run(quick: bool, seed: int) -> Result:
    nearest, down = (Context(BFLOAT16, rounding=mode) for mode in (RNE, RTZ))
    step = float(BFLOAT16.ulp(POSITION))
    below = float(down.array(float(POSITION)))
    rows: list[Row] = [
        equal("positions", "spacing at 15962", 16.0, step),
        equal("positions", "number below", 15936.0, below),
        equal("positions", "number above", 15968.0, below + step),
        same_digits("positions", "cos(15962)", "-0.547", math.cos(POSITION)),
        same_digits("positions", "cos(15968)", "-0.882", math.cos(15968)),
    ]
    for beta in (0.999, 0.9999):
        rounded = float(down.array(beta))
        rows.append(equal("beta2", f"{beta} in BF16", 0.99609375, rounded))
        rows.append(equal("beta2", f"horizon of {beta}, steps", 256.0, 1 / (1 - rounded)))
        for name, context in (("to nearest", nearest), ("toward zero", down)):
            rows.append({"row": "beta", "curve": name, "beta": beta,
                         "rounded": float(context.array(beta))})
    sentence = (
        f"BF16 numbers are {step:g} apart at {POSITION}: {below:g}, {below + step:g}. To nearest "
        "both decay rates become 1, and the average never forgets."
    )
    return published(CLAIMS, rows, sentence, "c=bf16, rounding=RNE|RTZ", (ELEMENTWISE,))


def plot(result: Result) -> Figure:
    from ipu.run.pages.drawing import BLUE, ORANGE, THEORY, new_figure

    figure, (axes,) = new_figure(6, 4, mosaic="A")
    betas = np.linspace(0.99, 1, 400)
    for name, mode, color in (("to nearest", RNE, BLUE), ("toward zero", RTZ, ORANGE)):
        rounded = Context(BFLOAT16, rounding=mode).array(betas).values
        axes.plot(betas, rounded, color=color, label=name, drawstyle="steps-mid")
    axes.plot(betas, betas, label="exact", **THEORY)
    axes.set(title="Decay rates in BF16", xlabel="beta2", ylabel="beta2 in BF16")
    axes.legend(fontsize=9)
    return figure
