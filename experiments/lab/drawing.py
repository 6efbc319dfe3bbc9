"""The one look of all figures. The only module that knows matplotlib's back end.

Colours are Okabe and Ito's, which people with colour-blindness tell apart; a policy has the same
colour in every figure.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, RED = "#0072B2", "#E69F00", "#009E73", "#D55E00"
PURPLE, SKY, GREY, BLACK = "#CC79A7", "#56B4E9", "#7F7F7F", "#222222"

STYLE: dict[str, Any] = {
    "figure.dpi": 100,
    "savefig.dpi": 160,
    "figure.facecolor": "white",
    "font.size": 10.5,
    "axes.titlesize": 11.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#444444",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.8,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "xtick.color": "#444444",
    "ytick.color": "#444444",
}

mpl.rcParams.update(STYLE)

LETTERS_PER_INCH = 13.5

#: Theory beside a measurement: thin, dark, on top.
THEORY: dict[str, Any] = {"color": BLACK, "linewidth": 0.9, "linestyle": (0, (5, 2)), "zorder": 5}


def new_figure(
    width: float,
    height: float,
    *,
    mosaic: str | list[list[str]] = "A",
    caption: str = "",
    **layout: Any,
) -> tuple[Figure, list[Axes]]:
    """A figure with the axes of a mosaic ("AB;CC") in its order, and the answer as a caption below.

    `height` is that of the axes; the caption adds its own.
    """
    lines = textwrap.wrap(caption, int(width * LETTERS_PER_INCH))
    room = 0.19 * len(lines) + (0.2 if lines else 0.0)
    figure = plt.figure(figsize=(width, height + room), layout="constrained")
    axes = figure.subplot_mosaic(mosaic, **layout)
    share = room / (height + room)
    figure.set_layout_engine("constrained", rect=(0, share, 1, 1 - share), w_pad=0.12, h_pad=0.1)
    figure.text(0.12 / width, 0.1 / (height + room), "\n".join(lines), fontsize=10, va="bottom")
    return figure, list(axes.values())


def table(
    axes: Axes, heads: Sequence[str], lines: Sequence[Sequence[str]], widths: Sequence[float], *,
    align: str = "left", size: float = 8.5, bottom: float = 0.0,
) -> None:  # fmt: skip
    """A table in place of axes, from `bottom` up; lines are as high as their text."""
    axes.axis("off")
    drawn = axes.table(
        lines, colLabels=heads, cellLoc=align, colWidths=widths, bbox=[0, bottom, 1, 1 - bottom]
    )
    drawn.auto_set_font_size(False)
    drawn.set_fontsize(size)
    heights = [text_height(line) for line in (heads, *lines)]
    for (line, _), cell in drawn.get_celld().items():
        cell.set_height(heights[line])
        cell.set(edgecolor="#DDDDDD", facecolor="#F4F7FA" if line == 0 else "white")


def text_height(cells: Sequence[str]) -> float:
    """Of a table's line, in lines of text with half a one around them."""
    return 1.5 + max(text.count("\n") for text in cells)


def to_png(figure: Figure) -> bytes:
    """The figure as a PNG; it is closed."""
    image = io.BytesIO()
    figure.savefig(image, format="png", metadata={"Software": None})
    plt.close(figure)
    return image.getvalue()
