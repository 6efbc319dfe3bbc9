"""A sheet shows a plan from programs to tiles (law)."""

from __future__ import annotations

import pytest
from matplotlib import pyplot as plt

from ipu.experiments.pictures.sheet import draw_sheet
from tests.experiments.figures import points
from tests.experiments.pictures.plans import FIGURES, plan_of


@pytest.mark.parametrize("options", [{}, {"recompute": True, "replicas": 2}, {"count": 8}])
def test_panels_share_the_axis_of_cycles(options):
    figure = draw_sheet(plan_of(**options), FIGURES)
    gantt, lanes, *memory, tiles = figure.get_axes()
    assert len(memory) == 2
    assert all(points(axes) for axes in (gantt, lanes, *memory, tiles))
    assert len({axes.get_xlim() for axes in (gantt, lanes, *memory)}) == 1
    assert "cycles" in memory[-1].get_xlabel()
    (legend,) = figure.legends
    words = [text.get_text() for text in legend.get_texts()]
    assert ("recompute" in words) == ("recompute" in options)
    assert ("sum over replicas" in words) == ("replicas" in options)
    figure.canvas.draw()
    plt.close(figure)


def test_inference_has_no_update():
    figure = draw_sheet(plan_of(training=False, count=6), FIGURES)
    (above,) = figure.get_axes()[0].child_axes
    assert "U" not in [label.get_text() for label in above.get_xticklabels()]
    plt.close(figure)
