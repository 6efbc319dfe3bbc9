"""Figures of a run: what they show, and that texts do not lie on each other (law)."""

from __future__ import annotations

import copy
from itertools import pairwise

import pytest
from matplotlib import pyplot as plt

from ipu.run.pages.drawing import to_png
from ipu.run.pages.figures import (
    exponent_figure,
    grouped,
    loss_figure,
    overview_figure,
    scale_figure,
)
from tests.ipu.run.runs import make_report, quiet_report


@pytest.mark.parametrize("limit", [1, 2, 5, 20])
def test_groups_are_few_and_hold_every_layer(limit):
    names = [f"encoder.{i}.{part}" for i in range(12) for part in ("norm", "mlp.up", "mlp.down")]
    names += ["head", "aten.add", "aten.mul"]
    groups = grouped(names, limit)
    assert list(groups) == names
    assert len(set(groups.values())) <= limit


def test_panels_have_a_ridge_for_each_layer():
    figure = exponent_figure(make_report())
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert titles == ["Weights", "Activations", "Gradients", "Updates of weights"]
    labels = [tick.get_text() for tick in figure.axes[1].get_yticklabels()]
    assert labels == ["net.a", "net.b"]
    to_png(figure)


def test_labels_of_a_figure_do_not_overlap():
    report = copy.deepcopy(make_report())
    for kind, rows in report["exponents"].items():
        report["exponents"][kind] = [
            {**rows[0], "layer": f"model.block{i}.attention"} for i in range(20) if rows
        ]
    figure = exponent_figure(report)
    figure.canvas.draw()
    for axes in figure.axes:
        boxes = [label.get_window_extent() for label in axes.get_yticklabels()]
        for one, other in pairwise(boxes):
            assert not one.overlaps(other)
        assert all(box.x0 >= 0 for box in boxes)
    plt.close(figure)


def test_updates_and_scales_are_drawn_where_they_are_known():
    report = make_report()
    figure = overview_figure(report)
    assert [t.get_text() for t in figure.axes[1].texts][:2] == ["75% swallowed"] * 2
    plt.close(figure)
    figure = overview_figure(report | {"swallowed": {}})
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["Gradients"]
    plt.close(figure)
    to_png(scale_figure(report))
    assert scale_figure(report | {"loss_scale": {}}) is None


def test_a_run_that_did_not_count_has_no_figures():
    report = quiet_report()
    assert exponent_figure(report) is None
    assert overview_figure(report) is None
    assert loss_figure({"fp16": [1.0], "fp32": []}) is None


def test_losses_that_are_not_finite_are_told():
    figure = loss_figure({"fp32": [2.0, 1.0], "fp16": [2.0, float("nan"), float("nan")]})
    texts = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert texts == ["fp32", "fp16 (not finite from step 1)"]
    assert figure.axes[0].lines[0].get_xdata().tolist() == [0, 1]  # as steps of the report
    plt.close(figure)


@pytest.mark.parametrize("name", [r"$\frac$", "$x_1$", "a$b", "名 {0} %s"])
def test_names_are_shown_as_they_are(name, recwarn):
    report = copy.deepcopy(make_report())
    for rows in report["exponents"].values():
        for row in rows:
            row["layer"] = name
    report["swallowed"] = {name: next(iter(report["swallowed"].values()))}
    figure = overview_figure(report)
    labels = {t.get_text() for axes in figure.axes for t in axes.get_yticklabels()}
    assert {label.replace("\\$", "$") for label in labels} == {name}
    for drawing in (figure, exponent_figure(report), loss_figure({name: [2.0, 1.0]})):
        to_png(drawing)
    assert not recwarn.list


def test_values_that_are_not_finite_are_told_beside_their_ridge():
    report = copy.deepcopy(make_report())
    rows = report["exponents"]["weights"]
    rows[0]["nonfinite"] = 3 * sum(rows[0]["counts"].values())
    rows[1] |= {"counts": {}, "nonfinite": 8}
    figure = exponent_figure(report)
    notes = [text.get_text() for text in figure.axes[0].texts]
    assert notes == ["75.0% not finite", "100.0% not finite"]
    plt.close(figure)


def test_of_a_deep_model_evenly_spaced_layers_are_shown():
    names = [str(i) for i in range(120)]
    shown = [name for name, group in grouped(names, 14).items() if name == group]
    assert (shown[0], shown[-1], len(shown)) == ("0", "119", 13)
    assert {int(b) - int(a) for a, b in pairwise(shown)} <= {9, 10}


def test_the_ridge_of_the_others_is_the_last():
    report = copy.deepcopy(make_report())
    row = report["exponents"]["gradients"][0]
    report["exponents"]["gradients"] = [{**row, "layer": str(i)} for i in range(40)]
    figure = overview_figure(report)
    labels = [t.get_text() for t in figure.axes[0].get_yticklabels()]
    assert labels[0] == "0"
    assert labels[-2:] == ["39", "others"]
    plt.close(figure)


def test_layers_without_an_update_leave_the_place_to_others():
    report = make_report()
    row = next(iter(report["swallowed"].values()))
    nothing = row | {"nonzero": 0, "swallowed": 0, "in_ulps": {}}
    figure = overview_figure(report | {"swallowed": {
        str(i): nothing if i < 100 else row for i in range(104)}})
    labels = [t.get_text() for t in figure.axes[1].get_yticklabels()]
    assert labels == ["100", "101", "102", "103"]
    plt.close(figure)


@pytest.mark.parametrize(
    ("sizes", "limits"), [({0: 1}, (-5, 11)), ({-20: 1, 12: 2}, (-21, 21)), ({-3: 4}, (-5, 11))]
)
def test_the_range_of_updates_holds_all_sizes_and_the_usual_ones(sizes, limits):
    report = make_report()
    row = {"nonzero": sum(sizes.values()), "swallowed": 0, "share": 0.0, "in_ulps": sizes}
    report["swallowed"] = {"net.a": row}
    panels = {axes.get_title(loc="left") or axes.get_title(): axes
              for axes in overview_figure(report).axes}
    assert panels["Updates in ulps of their weight"].get_xlim() == limits


@pytest.mark.parametrize(
    ("counts", "emin", "limits"),
    [
        ({0: 5}, -14, (-24, 15)),  # the range of binary16, subnormal numbers too
        ({0: 5}, -126, (0, 1)),
        ({-7: 5, 30: 9}, -126, (-7, 30)),
        ({-70: 5, 80: 9}, -126, (-60, 60)),
        ({-7: 1, 30: 100_000}, -126, (0, 30)),  # one value of so many is in no one's way
    ],
)
def test_the_axis_of_exponents_holds_what_matters(counts, emin, limits):
    report = make_report()
    precision, emax, name = (11, 15, "binary16") if emin == -14 else (24, 127, "binary32")
    row = {"layer": "net.a", "format": name, "counts": counts, "zeros": 0, "nonfinite": 0,
           "emin": emin, "emax": emax, "precision": precision}
    report["exponents"] = {kind: [] for kind in report["exponents"]} | {"weights": [row]}
    low, high = exponent_figure(report).axes[0].get_xlim()
    margin = limits[0] - low
    assert margin > 0
    assert (low + margin, high - margin) == limits
