"""Curves of utilisation: the points that are passed, the documents' formulas as lines (golden)."""

from __future__ import annotations

import pytest
from matplotlib import pyplot as plt

from ipu.experiments.pictures.utilisation import FORMULAS, LOOKS, UtilisationCurve, draw_utilisation
from ipu.plan.schedule import Schedule
from ipu.run.pages.drawing import new_figure


@pytest.mark.source("S3-04")
@pytest.mark.source("S0-56")
def test_the_formulas_are_those_of_the_documents():
    under_used, ramps, one = FORMULAS.values()
    assert under_used(16, 4) == pytest.approx(16 / 24)  # 2N steps are under-used
    assert ramps(16, 4) == pytest.approx(16 / 23)  # of 23 slots, 7 fill or drain
    assert one(16, 4) == 0.25
    assert under_used(512, 4) > 0.98


@pytest.mark.parametrize("legend", [True, False])
def test_points_and_thin_lines(legend):
    figure, (axes,) = new_figure(5, 4)
    curves = {
        "grouped": UtilisationCurve([8, 16], [0.7, 0.8]),
        "sequential": UtilisationCurve([8, 32], [0.25, 0.25]),
    }
    draw_utilisation(axes, curves, 4, title="T", legend=legend)
    points = {line.get_label(): line for line in axes.lines}
    assert points["grouped"].get_ydata().tolist() == pytest.approx([70, 80])
    assert points["grouped"].get_linestyle() == "None"
    for name, formula in FORMULAS.items():
        assert points[name].get_xdata().tolist() == [8, 16, 32]
        wanted = [100 * formula(count, 4) for count in (8, 16, 32)]
        assert points[name].get_ydata().tolist() == pytest.approx(wanted)
        assert points[name].get_linewidth() < 1
    assert (axes.get_legend() is not None) == legend
    assert "%" in axes.get_ylabel()
    plt.close(figure)


def test_every_schedule_has_its_look():
    assert set(LOOKS) == {schedule.value for schedule in Schedule}
