"""What every figure must have, whoever draws it."""

from __future__ import annotations

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure


def assert_panels(figure: Figure | None, n: int) -> None:
    """So many panels, each with a title or a label, and with data."""
    assert figure is not None
    panels = figure.get_axes()
    assert len(panels) == n
    for axes in panels:
        assert points(axes), axes.get_title(loc="left")
        assert axes.get_title(loc="left") or axes.get_title() or axes.get_ylabel()
    figure.canvas.draw()
    plt.close(figure)


def points(axes: Axes) -> int:
    """How many data points a panel shows; lines across the whole panel do not count."""
    lines = [line for line in axes.lines if line.get_transform() == axes.transData]
    drawn = [line.get_xydata()[:, 1] for line in lines]
    shown = sum(int((y == y).sum()) for y in drawn)
    return shown + len(axes.patches) + len(axes.collections)
