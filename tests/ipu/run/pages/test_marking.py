"""Figures say in their SVG where panels, series, points and legends are (law)."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from ipu.run.pages.drawing import BLUE, THEORY, new_figure
from ipu.run.pages.vector import add_tip, to_svg

WIDTH, HEIGHT = 8, 3


def groups(figure, name):
    """Attributes of the groups of a class, in order; the figure is closed."""
    return groups_of(to_svg(figure, "T"), name)


def groups_of(svg, name):
    root = ET.fromstring(svg)
    return [g.attrib for g in root.iter("{http://www.w3.org/2000/svg}g")
            if name in g.attrib.get("class", "").split()]


def test_a_panel_tells_its_place_scales_and_labels():
    figure, (left, right) = new_figure(WIDTH, HEIGHT, mosaic="AB")
    left.loglog([1, 100], [1e-3, 1])
    left.set(title="A < B", xlabel="n", xlim=(1, 100), ylim=(1e-3, 1))
    right.barh(["a", "b"], [1, 2])
    right.invert_yaxis()
    first, second = groups(figure, "panel")
    assert (first["data-title"], first["data-x-label"]) == ("A < B", "n")
    assert (first["data-x"], first["data-y"]) == ("log 1.0 100.0", "log 0.001 1.0")
    assert second["data-y"].startswith("rows ")
    x, y, width, height = map(float, first["data-box"].split())
    bounds = left.get_position().bounds
    expected = np.multiply(bounds, (WIDTH, HEIGHT) * 2) * 72
    assert [x, width, height] == pytest.approx([expected[0], *expected[2:]], abs=1e-3)
    assert y + height == pytest.approx(HEIGHT * 72 - expected[1], abs=1e-3)


def test_an_axis_that_falls_keeps_its_direction():
    figure, (axes,) = new_figure(WIDTH, HEIGHT)
    axes.plot([0, 1], [0, 1])
    axes.set(ylim=(1, 0), xlim=(0, 2))
    (panel,) = groups(figure, "panel")
    assert (panel["data-x"], panel["data-y"]) == ("linear 0.0 2.0", "linear 1.0 0.0")


def test_points_are_the_numbers_that_were_drawn_to_the_last_bit():
    figure, (axes,) = new_figure(WIDTH, HEIGHT)
    y = np.array([0.1, 1 / 3, 2.0**-149, np.nan])
    axes.plot(y, label="line")
    axes.scatter([1, 2], [0.1 + 0.2, 7], label="dots")
    axes.bar([1], [0.7], label="bars")
    told = {g["data-name"]: g for g in groups(figure, "series")}
    drawn = [float(word) for word in told["line"]["data-points-y"].split()]
    np.testing.assert_array_equal(drawn, y)
    assert told["dots"]["data-points-y"] == "0.30000000000000004 7.0"
    assert (told["bars"]["data-points-x"], told["bars"]["data-points-y"]) == ("1.0", "0.7")


def test_one_legend_names_the_lines_of_its_look_in_every_panel_and_no_theory():
    figure, (left, right) = new_figure(WIDTH, HEIGHT, mosaic="AB")
    left.plot([1, 2], [1, 2], color=BLUE)
    left.plot([1, 2], [2, 2], color=BLUE, linestyle=":")
    left.plot([1, 2], [3, 2], **THEORY)
    right.plot([1, 2], [1, 2], color=BLUE, label="FP16")
    right.plot([1, 2], [0, 2], label="exact", **THEORY)
    right.legend()
    svg = to_svg(figure, "T")
    names = [g["data-name"] for g in groups_of(svg, "series")]
    assert names == ["FP16", "", "", "FP16", "exact"]
    assert [g["data-name"] for g in groups_of(svg, "key")] == ["FP16"] * 2 + ["exact"] * 2


def test_panels_over_the_same_numbers_are_linked():
    figure, axes = new_figure(WIDTH, HEIGHT, mosaic="A;B;C")
    for panel in axes:
        panel.plot([0, 1], [0, 1])
    axes[0].set_xlim(0, 5)
    axes[1].set_xlim(0, 5)
    links = [g["data-link"] for g in groups(figure, "panel")]
    assert links == ["0", "0", "2"]


def test_a_bar_keeps_its_tooltip_and_words_cannot_become_markup():
    figure, (axes,) = new_figure(WIDTH, HEIGHT)
    add_tip(axes.barh([0], [2], label='"><script>')[0], "a <tip>")
    axes.set_title('"><b>')
    svg = to_svg(figure, "T")
    assert "<title>a &lt;tip&gt;</title>" in svg
    assert not re.search("<script|<b>", svg)
    ET.fromstring(svg)


def test_many_points_stay_in_the_data_file(monkeypatch):
    from ipu.run.pages import marking

    monkeypatch.setattr(marking, "_MOST", 5)
    figure, (axes,) = new_figure(WIDTH, HEIGHT)
    axes.plot(np.arange(6), label="a")
    (series,) = groups(figure, "series")
    assert "data-points-x" not in series
    assert series["data-name"] == "a"
