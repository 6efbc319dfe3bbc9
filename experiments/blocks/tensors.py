"""What the experiments on blocks share: tensors in bfloat16, and bars beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fpsim import round_to
from ipu.experiments.lab.result import UnitUsed
from ipu.experiments.sums.exact import norm

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["KINDS", "QUANTISERS", "bars", "relative", "tensor"]

QUANTISERS = UnitUsed(
    "quantisers of blocks", "DOCUMENTED",
    "OCP MX 1.0; TransformerEngine d0067d0; docs/semantics.md §3",
)

#: Kinds of numbers: normal, Student's t with three degrees of freedom, log-normal over 8 binades.
KINDS = ("normal", "t3", "wide")


def tensor(kind: str, shape: tuple[int, int], seed: int) -> NDArray[np.float32]:
    """Numbers of a kind, in bfloat16."""
    rng = np.random.default_rng([seed, KINDS.index(kind)])
    if kind == "normal":
        x = rng.standard_normal(shape)
    elif kind == "t3":
        x = rng.standard_t(3, shape)
    else:
        x = rng.standard_normal(shape) * np.exp2(2 * rng.standard_normal(shape))
    values: NDArray[np.float32] = round_to(x, "bfloat16")
    return values


def relative(values: NDArray[np.floating], exact: NDArray[np.floating]) -> float:
    """The norm of the error as a share of the norm."""
    return norm(np.asarray(values, np.float64) - exact) / norm(exact)


def bars(axes: Axes, names: Sequence[str], groups: dict[str, Sequence[float]]) -> None:
    """A group of bars for each name, one bar for each key, in the order of the palette."""
    from ipu.run.pages import drawing

    colors = [drawing.BLUE, drawing.ORANGE, drawing.GREEN, drawing.GREY]
    width = 0.8 / len(groups)
    for i, (label, heights) in enumerate(groups.items()):
        places = np.arange(len(names)) + (i - (len(groups) - 1) / 2) * width
        axes.bar(places, heights, width, label=label, color=colors[i % len(colors)])
    axes.set_xticks(range(len(names)), names, rotation=30, ha="right", fontsize=8)
    axes.margins(y=0.25)  # above the bars, for the legend
    axes.legend(fontsize=8)
