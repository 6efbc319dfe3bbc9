"""The one look of all figures. The only module that knows matplotlib's back end.

Colours are Okabe and Ito's, which people with colour-blindness tell apart; a policy has the same
colour in every figure.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

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

#: Theory beside a measurement: thin, dark, on top.
THEORY: dict[str, Any] = {"color": BLACK, "linewidth": 0.9, "linestyle": (0, (5, 2)), "zorder": 5}


def new_figure(
    width: float,
    height: float,
    *,
    mosaic: str | list[list[str]] = "A",
    width_ratios: Sequence[float] | None = None,
    height_ratios: Sequence[float] | None = None,
    sharex: bool = False,
    sharey: bool = False,
) -> tuple[Figure, list[Axes]]:
    """A figure with the axes of a mosaic ("AB;CC") in its order.

    The answer is text of the report beside it: it reflows there and is read once.
    """
    figure = plt.figure(figsize=(width, height), layout="constrained")
    axes = figure.subplot_mosaic(
        mosaic, width_ratios=width_ratios, height_ratios=height_ratios, sharex=sharex, sharey=sharey
    )
    figure.set_layout_engine("constrained", w_pad=0.12, h_pad=0.1)
    return figure, list(axes.values())


def count_ticks(axis: Axis) -> None:
    """Ticks of an axis that counts: whole numbers only."""
    axis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def literal(text: str) -> str:
    r"""A name of a user's for a label: its dollars begin no formula.

    >>> print(literal("$x$"))
    \$x\$
    """
    return text.replace("$", r"\$")


def fix_layout(figure: Figure) -> None:
    """What goes where is computed now, as for a PNG, and once for all that is made of the figure.

    Each of them would compute it again, and draw everything once more to do so.
    """
    engine = figure.get_layout_engine()
    if engine is not None:
        figure.set_dpi(mpl.rcParams["savefig.dpi"])
        with _letters_as_boxes():
            engine.execute(figure)
        figure.set_layout_engine(None)


def to_png(figure: Figure) -> bytes:
    """The figure as a PNG; it is closed. Letters that the font lacks are boxes."""
    image = io.BytesIO()
    with _letters_as_boxes():
        figure.savefig(image, format="png", metadata={"Software": None})
    plt.close(figure)
    return image.getvalue()


@contextmanager
def _letters_as_boxes() -> Iterator[None]:
    """Letters that the font lacks are boxes, without a warning for each."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield
