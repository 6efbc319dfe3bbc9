"""Figures: panels in order, whole numbers on axes that count, bytes that repeat (law)."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib import pyplot as plt

from ipu.run.pages.drawing import count_ticks, fix_layout, new_figure, to_png
from ipu.run.pages.rendering import write_figures


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


def drawn():
    figure, (axes,) = new_figure(4, 3)
    axes.loglog([1, 1e3], [3, 1e-4], label="a")
    axes.set_title("a title")
    axes.legend()
    return figure


def test_the_same_figure_has_the_same_bytes():
    assert to_png(drawn()) == to_png(drawn())


def test_a_fixed_layout_is_that_of_a_png():
    """Without a warning of a letter that the font lacks."""
    figures = drawn(), drawn()
    for figure in figures:
        figure.axes[0].set_ylabel("漢")
    fix_layout(figures[0])
    assert figures[0].get_layout_engine() is None
    assert to_png(figures[0]) == to_png(figures[1])


def test_a_page_lays_a_figure_out_once_and_draws_it_once_for_each_file(tmp_path, monkeypatch):
    figure, draws, layouts = drawn(), [], []
    engine = figure.get_layout_engine()
    for owner, name, calls in ((type(figure), "draw", draws), (type(engine), "execute", layouts)):
        before = getattr(owner, name)
        monkeypatch.setattr(
            owner, name,
            lambda *args, calls=calls, before=before: (calls.append(1), before(*args))[1])
    pictures = write_figures(tmp_path, {"one": figure, "none": None})
    assert (len(layouts), len(draws)) == (1, 2)
    assert pictures["one"].startswith("<svg")
    assert not pictures["none"]
    monkeypatch.undo()
    assert (tmp_path / "one.png").read_bytes() == to_png(drawn())
