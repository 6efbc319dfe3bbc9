"""Panels that figures of trainings share: losses, accuracies, exceptions by layer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ipu.experiments.lab.judged import mean_text
from ipu.experiments.lab.result import Result, Row, Table
from ipu.experiments.lab.variants import FLAGS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: What exception counters cannot say.
NOTE = (
    "Share of results that underflowed (became inexact and subnormal or zero). "
    "OFLO, INV and DIV0 stand beside it with their number, if they were raised. "
    "Matrix products: OFLO and INV only; underflow inside a unit is not modelled."
)

#: Colour, line style … of each variant, by its name, in the order of the panels' rows.
Looks = Mapping[str, Mapping[str, Any]]


def plot_losses(axes: Axes, result: Result, looks: Looks, bands: Iterable[str] = ()) -> None:
    """Mean loss per epoch; a band over all seeds for those named."""
    from ipu.run.pages.drawing import count_ticks

    for name, look in looks.items():
        rows = result.select(part="loss", policy=name)
        epochs = sorted({int(str(row["epoch"])) for row in rows})
        losses = np.array([[r["loss"] for r in rows if r["epoch"] == e] for e in epochs])
        marker = "o" if len(epochs) < 10 else ""
        axes.plot(epochs, losses.mean(axis=1), label=name, marker=marker, clip_on=False, **look)
        if name in bands:
            low, high = losses.min(axis=1), losses.max(axis=1)
            axes.fill_between(epochs, low, high, color=look["color"], alpha=0.12, linewidth=0)
    axes.set(title="Training loss" + (" (bands: all seeds)" if bands else ""), xlabel="epoch",
             ylabel="cross-entropy (nats)",
             xlim=(1, epochs[-1]) if len(epochs) > 1 else (0.5, 1.5))
    count_ticks(axes.xaxis)
    axes.legend(fontsize=9)


def plot_accuracy(axes: Axes, result: Result, looks: Looks) -> None:
    """One point per seed, and the mean."""
    for place, (name, look) in enumerate(looks.items()):
        accuracies = 100 * result.column("accuracy", part="test", policy=name)
        filled = look["color"] if look["linestyle"] == "-" else "white"
        axes.plot(accuracies, [place] * accuracies.size, "o", color=look["color"],
                  markerfacecolor=filled, markersize=6, alpha=0.75)
        mean = accuracies.mean()
        axes.plot([mean, mean], [place - 0.28, place + 0.28], color="#222222", linewidth=2)
        axes.annotate(mean_text(accuracies), (1.02, place), fontsize=9.5, va="center",
                      xycoords=("axes fraction", "data"))
    name_rows(axes, looks)
    axes.set(title="Test accuracy: one point per seed, and the mean",
             xlabel="test images recognised (%)")


def name_rows(axes: Axes, looks: Looks) -> None:
    """Variants as the rows of a panel, the first on top."""
    axes.set_yticks(range(len(looks)), list(looks))
    axes.set_ylim(len(looks) - 0.4, -0.6)


def exception_table(result: Result, names: Sequence[str]) -> Table:
    """Layer and phase by variant, where anything was raised."""
    rows = result.select(part="exceptions")
    raised = [row for row in rows if any(row[flag] for flag in FLAGS.values())]
    lines = []
    for layer, phase in dict.fromkeys((row["layer"], row["phase"]) for row in raised):
        by_name = {r["policy"]: r for r in rows if (r["layer"], r["phase"]) == (layer, phase)}
        lines.append([f"{layer}, {phase}", *(_cell(by_name.get(name)) for name in names)])
    heads = ["layer, phase", *names]
    if not lines:
        lines = [["nothing raised", *("" for _ in names)]]
    return Table("Exceptions by layer and phase (first seed)", heads, lines, NOTE)


def _cell(row: Row | None) -> str:
    if row is None:
        return ""
    share = float(row["underflow"]) / max(float(row["results"]), 1)  # type: ignore[arg-type]
    text = "–" if not share else "< 0.1%" if share < 0.001 else f"{share:.1%}"
    loud = [f"{name} {row[name]}" for name in ("OFLO", "INV", "DIV0") if row[name]]
    return ", ".join([text, *loud])
