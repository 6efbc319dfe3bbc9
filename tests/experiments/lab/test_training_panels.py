"""Panels of trainings show every policy its own numbers (golden)."""

from __future__ import annotations

import pytest
from matplotlib import pyplot as plt

from ipu.experiments.lab.result import Result
from ipu.experiments.lab.training_panels import exception_table, plot_accuracy, plot_losses
from ipu.run.pages.drawing import new_figure

LOOKS = {
    "one": {"color": "#111111", "linestyle": "-"},
    "two": {"color": "#222222", "linestyle": "--"},
}
ACCURACY = {"one": (0.5, 0.7), "two": (0.9, 0.8)}


def result_of(epochs):
    rows = [
        {"part": "loss", "policy": name, "epoch": e, "loss": 3.0 / e + k, "seed": s}
        for k, name in enumerate(LOOKS) for e in range(1, epochs + 1) for s in (0, 1)
    ]
    rows += [{"part": "test", "policy": n, "accuracy": a} for n, accuracies in ACCURACY.items()
             for a in accuracies]
    return Result(rows, "", "")


@pytest.mark.parametrize("epochs", [1, 2, 9, 10])
def test_losses_of_every_policy_over_whole_epochs(epochs):
    figure, (axes,) = new_figure(5, 3)
    plot_losses(axes, result_of(epochs), LOOKS, bands=("one",))
    lines = {line.get_label(): line for line in axes.lines}
    for k, name in enumerate(LOOKS):
        assert lines[name].get_ydata().tolist() == [3.0 / e + k for e in range(1, epochs + 1)]
        assert lines[name].get_marker() == ("o" if epochs < 10 else "")
    low, high = axes.get_xlim()
    assert low <= 1
    assert epochs <= high
    ticks = [t for t in axes.get_xticks() if low <= t <= high]
    assert ticks
    assert ticks == [round(t) for t in ticks]
    if epochs == 1:
        assert ticks == [1]
    plt.close(figure)


def test_accuracies_stand_beside_their_own_policy():
    figure, (axes,) = new_figure(5, 3)
    plot_accuracy(axes, result_of(2), LOOKS)
    assert [t.get_text() for t in axes.get_yticklabels()] == list(LOOKS)
    texts = {t.xy[1]: t.get_text() for t in axes.texts}
    assert texts == {0: "60.0 ± 127.1 %", 1: "85.0 ± 63.5 %"}
    points = [line.get_xdata().tolist() for line in axes.lines if line.get_marker() == "o"]
    assert points == [pytest.approx([50, 70]), pytest.approx([90, 80])]
    plt.close(figure)


def raised(policy, **flags):
    zero = {"OFLO": 0, "INV": 0, "DIV0": 0, "underflow": 0}
    return {"part": "exceptions", "policy": policy, "layer": "hidden", "phase": "forward",
            "results": 1000, **zero, **flags}


def test_the_table_shows_what_each_policy_raised():
    rows = [raised("one", underflow=25, OFLO=3), raised("two")]
    table = exception_table(Result(rows, "", ""), ["one", "two"])
    assert table.heads == ["layer, phase", "one", "two"]
    assert table.lines == [["hidden, forward", "2.5%, OFLO 3", "–"]]
    quiet = exception_table(Result([raised("one")], "", ""), ["one", "two"])
    assert quiet.lines == [["nothing raised", "", ""]]
