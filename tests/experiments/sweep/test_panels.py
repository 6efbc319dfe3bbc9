"""Small multiples: one panel for what differs, in the colours of the settings (golden)."""

from __future__ import annotations

import pytest
from matplotlib import pyplot as plt
from scipy import stats

from ipu.experiments.sweep.metrics import Curve, compared
from ipu.experiments.sweep.panels import MOST, draw


def runs():
    return [
        [{"part": "loss", "epoch": e, "loss": s / e} for e in (1, 2)]
        + [{"part": "test", "accuracy": s / 10, "same": 1.0}]
        for s in (1, 2, 3, 4)
    ]


def test_each_panel_shows_every_run_and_what_is_equal_is_left_out():
    settings = [[("way", "six")]] * 2 + [[("way", "eight")]] * 2
    figure, more = draw(compared(runs()), [0, 1, 0, 1], settings)
    assert more == 0
    loss, accuracy = figure.axes
    assert (loss.get_title(loc="left"), accuracy.get_title(loc="left")) == (
        "loss: loss", "accuracy: test",
    )
    lines = [line for line in loss.lines if len(line.get_xdata())]
    assert [tuple(line.get_ydata()) for line in lines] == [(s, s / 2) for s in (1, 2, 3, 4)]
    colours = [line.get_color() for line in lines]
    assert colours[0] == colours[1] != colours[2] == colours[3]
    points = [line for line in accuracy.lines if line.get_marker() == "o"]
    assert [list(line.get_ydata()) for line in points] == [[0.1, 0.2], [0.3, 0.4]]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["way = six", "way = eight"]
    plt.close(figure)


def test_nothing_that_differs_is_no_figure():
    same = [[{"a": 1.0}], [{"a": 1.0}]]
    assert draw(compared(same), [0, 1], [[], []]) == (None, 0)


def test_panels_beyond_the_last_are_counted():
    many = [[{f"n{i}": float(seed) for i in range(MOST + 3)}] for seed in (0, 1)]
    figure, more = draw(compared(many), [0, 1], [[], []])
    assert (len(figure.axes), more) == (MOST, 3)
    plt.close(figure)


def test_a_run_without_the_curve_is_left_out():
    measured = compared(runs())
    measured.curves["loss: loss"][1] = None
    figure, _ = draw(measured, [0, 1, 2, 3], [[]] * 4)
    assert len(figure.axes[0].lines) == 3
    assert isinstance(measured.curves["loss: loss"][0], Curve)
    plt.close(figure)


def test_numbers_stand_over_the_setting_that_is_swept():
    """Four seeds of two rates in two ways: means, and Student's interval of each."""
    runs = [(rate, way, seed) for rate in (0.1, 0.2) for way in "ab" for seed in range(4)]
    rows = [[{"part": "test", "accuracy": rate + seed / 10 + (way == "b")}]
            for rate, way, seed in runs]
    figure, _ = draw(compared(rows), [seed for *_, seed in runs],
                     [[("rate", rate), ("way", way)] for rate, way, _ in runs])
    (axes,) = figure.axes
    assert axes.get_xlabel() == "rate (mean ± 95 % interval)"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["way = a", "way = b"]
    for container, above in zip(axes.containers, (0, 1), strict=True):
        line, _, (bars,) = container
        assert line.get_xdata().tolist() == [0.1, 0.2]
        assert line.get_ydata() == pytest.approx([0.25 + above, 0.35 + above])
        (_, low), (_, high) = bars.get_segments()[0]
        assert (high - low) / 2 == pytest.approx(stats.t.ppf(0.975, 3) * stats.sem(
            [0.1, 0.2, 0.3, 0.4]))
    plt.close(figure)


def test_groups_that_would_have_one_title_keep_their_names():
    clash = [{"format": "a", "x": 1.0}, {"order": "a", "x": 2.0}]
    assert compared([clash]).numbers == {"x: format a": [1.0], "x: order a": [2.0]}
