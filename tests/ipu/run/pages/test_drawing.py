"""Figures: panels in order, whole numbers on axes that count, bytes that repeat (law)."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib import pyplot as plt

from ipu.run.pages.drawing import count_ticks, new_figure, to_png


def test_panels_come_in_the_order_of_the_mosaic():
    figure, panels = new_figure(6, 3, mosaic="AB;CC", height_ratios=[2, 1])
    assert [axes.get_label() for axes in panels] == ["A", "B", "C"]
    assert to_png(figure).startswith(b"\x89PNG")
    assert not plt.fignum_exists(figure.number)


@pytest.mark.parametrize("top", [1, 2, 3, 7, 18, 2000])
def test_an_axis_that_counts_has_whole_ticks(top):
    figure, (axes,) = new_figure(4, 3)
    axes.plot([0, 1], [0, top])
    axes.set_xlim(0.5, 1.5)
    for axis in (axes.xaxis, axes.yaxis):
        count_ticks(axis)
        low, high = sorted(axis.get_view_interval())
        ticks = [t for t in axis.get_majorticklocs() if low <= t <= high]
        assert ticks
        assert np.array_equal(ticks, np.round(ticks))
    plt.close(figure)


def test_the_same_figure_has_the_same_bytes():
    def draw():
        figure, (axes,) = new_figure(4, 3)
        axes.plot([1, 2], [3, 4], label="a")
        axes.legend()
        return to_png(figure)

    assert draw() == draw()
