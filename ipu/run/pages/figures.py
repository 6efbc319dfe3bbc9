"""Figures of a run: exponents by layer against the range of their format, updates, scales."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ipu.run.changes import scale_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["exponent_figure", "grouped", "loss_figure", "overview_figure", "scale_figure"]

Row = Mapping[str, Any]

#: Rows of a panel; more layers are put together by the beginning of their names.
_ROWS = 14
#: The ridge of what has none of its own; it is the last.
_OTHERS = "others"
#: Kinds of values with the title of their panel, in the order of a figure.
_PANELS = {
    "weights": "Weights", "activations": "Activations", "gradients": "Gradients",
    "updates": "Updates of weights",
}
#: Exponents beside a format's range that a panel shows at least.
_MARGIN = 3
_EXPONENT = "exponent $e$ of values with $2^e \\leq |x| < 2^{e+1}$"
#: Tints, which let the page through: its ink is read on them light and dark.
_NORMAL, _SUBNORMAL, _OUTSIDE = ("#009E73", 0.1), ("#E69F00", 0.22), ("#D55E00", 0.22)


def grouped(names: Iterable[str], limit: int = _ROWS) -> dict[str, str]:
    """The group of each layer: the longest beginnings of paths of which there are so few.

    Where even those are many, evenly spaced ones stand for themselves, and the rest together.

    >>> grouped(["a.0.x", "a.0.y", "a.1.x", "b", "aten.add"], 4)
    {'a.0.x': 'a.0.*', 'a.0.y': 'a.0.*', 'a.1.x': 'a.1.*', 'b': 'b', 'aten.add': 'aten.add'}
    """
    unique = list(dict.fromkeys(names))
    depth = max((name.count(".") + 1 for name in unique), default=1)
    while True:
        groups = {name: _cut(name, depth) for name in unique}
        if len(set(groups.values())) <= limit or depth == 1:
            break
        depth -= 1
    if len(set(groups.values())) > limit:
        names = list(dict.fromkeys(groups.values()))
        last, gaps = len(names) - 1, max(limit - 2, 1)
        limits = {names[i * last // gaps] for i in range(limit - 1)}
        groups = {name: g if g in limits else _OTHERS for name, g in groups.items()}
    return groups


def _cut(name: str, depth: int) -> str:
    parts = name.split(".")
    if len(parts) <= depth:
        return name
    return "outside modules" if parts[0] == "aten" and depth == 1 else (
        ".".join([*parts[:depth], "*"])
    )


# Exponents --------------------------------------------------------------------------------------


def exponent_figure(report: Mapping[str, Any]) -> Figure | None:
    """Exponents of weights, activations, gradients and updates by layer; None without any."""
    from ipu.run.pages.drawing import new_figure

    panels = {kind: _rows(report["exponents"].get(kind, [])) for kind in _PANELS}
    panels = {kind: rows for kind, rows in panels.items() if rows}
    if not panels:
        return None
    kinds = list(panels)
    lines = [kinds[i : i + 2] for i in range(0, len(kinds), 2)]
    lines = [line if len(line) == 2 or len(kinds) == 1 else [*line, "."] for line in lines]
    heights = [max(len(panels.get(kind, ())) for kind in line) + 1.5 for line in lines]
    figure, axes = new_figure(
        10.5, 0.9 + 0.36 * sum(heights), mosaic=lines, height_ratios=heights, sharex=True
    )
    limits = _limits(panels)
    for panel, kind in zip(axes, kinds, strict=True):
        _panel(panel, panels[kind], _PANELS[kind], limits)
    for panel in axes[-2:]:
        panel.set_xlabel(_EXPONENT)
        panel.tick_params(labelbottom=True)
    _explain(figure)
    return figure


def _rows(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Histograms of the groups of layers that have values other than zero."""
    rows = [row for row in rows if row["counts"] or row["nonfinite"]]
    groups = grouped(str(row["layer"]) or "outside modules" for row in rows)
    merged: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        name = groups[str(row["layer"]) or "outside modules"]
        both = merged.setdefault(
            (name, row["format"]), {**row, "layer": name, "counts": {}, "zeros": 0, "nonfinite": 0}
        )
        both["zeros"] += row["zeros"]
        both["nonfinite"] += row["nonfinite"]
        for exponent, n in row["counts"].items():
            both["counts"][int(exponent)] = both["counts"].get(int(exponent), 0) + n
    return sorted(merged.values(), key=lambda row: row["layer"] == _OTHERS)


def _limits(panels: Mapping[str, Sequence[Row]]) -> tuple[float, float]:
    """Of the axis of exponents: all values that matter, and the range of the narrow formats."""
    low, high = 0, 1
    for row in (row for rows in panels.values() for row in rows):
        total = sum(row["counts"].values())
        exponents = [e for e, n in row["counts"].items() if n > 1e-4 * total]
        low, high = min([low, *exponents]), max([high, *exponents])
        if row["emin"] > -100:
            low = min(low, row["emin"] - row["precision"] + 1)
            high = max(high, row["emax"])
    return max(low, -60) - _MARGIN, min(high, 60) + _MARGIN


def _panel(axes: Axes, rows: Sequence[Row], title: str, limits: tuple[float, float]) -> None:
    """One ridge for each layer, before the range of its format."""
    from ipu.run.pages import drawing

    for place, row in enumerate(rows):
        y = len(rows) - 1 - place
        _range(axes, row, y, limits)
        exponents = np.arange(int(limits[0]), int(limits[1]) + 1)
        counts = np.array([row["counts"].get(int(e), 0) for e in exponents], float)
        top = counts.max() or 1.0
        axes.stairs(
            y + 0.82 * counts / top, np.append(exponents, exponents[-1] + 1), baseline=y,
            fill=True, color=drawing.BLUE, alpha=0.85, linewidth=0,
        )
        axes.axhline(y, color="#444444", linewidth=0.5)
        note = _note(row)
        if note:
            axes.text(limits[1] - 0.4, y + 0.5, note, ha="right", va="center", fontsize=8.5)
    formats = [row["format"] for row in rows]
    usual = max(formats, key=formats.count)
    axes.set(title=title, xlim=limits, ylim=(-0.08, len(rows) + 0.02))
    axes.set_yticks([len(rows) - 0.6 - i for i in range(len(rows))],
                    [_label(row, usual) for row in rows], fontsize=9.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")


def _range(axes: Axes, row: Row, y: float, limits: tuple[float, float]) -> None:
    """Behind a ridge: normal numbers, subnormal ones, and what the format has not."""
    least = row["emin"] - row["precision"] + 1
    edges = [limits[0], least, row["emin"], row["emax"] + 1, limits[1]]
    for color, left, right in zip(
        (_OUTSIDE, _SUBNORMAL, _NORMAL, _OUTSIDE), edges, edges[1:], strict=False
    ):
        left, right = max(left, limits[0]), min(right, limits[1])
        if right > left:
            axes.barh(y, right - left, 0.94, left, align="edge", color=color, zorder=0)


def _note(row: Row) -> str:
    """The share of infinities and NaN, else of subnormal values, where it is worth a word."""
    finite = sum(row["counts"].values())
    tiny = sum(n for e, n in row["counts"].items() if e < row["emin"])
    total = finite + row["nonfinite"]
    if row["nonfinite"] > 5e-4 * total:
        return f"{row['nonfinite'] / total:.1%} not finite"
    return f"{tiny / finite:.1%} below normal" if tiny > 5e-4 * finite else ""


def _label(row: Row, usual: str) -> str:
    """A layer, with its format where that is not the usual one."""
    from ipu.run.pages.drawing import literal

    name = str(row["layer"]).removeprefix("aten.").lstrip("_")
    name = name if len(name) <= 26 else f"…{name[-25:]}"
    name = literal(name)
    short = {"binary16": "f16", "binary32": "f32", "bfloat16": "bf16"}
    return f"{name} ({short.get(row['format'], row['format'])})" if row["format"] != usual else name


def _explain(figure: Figure) -> None:
    from matplotlib.patches import Patch

    handles = [
        Patch(color=_NORMAL, label="normal numbers of the format"),
        Patch(color=_SUBNORMAL, label="subnormal: fewer digits"),
        Patch(color=_OUTSIDE, label="not in the format: zero or overflow; below half an ulp"),
    ]
    figure.legend(handles=handles, loc="outside upper right", ncols=3, fontsize=9.5)


# Updates and loss scales --------------------------------------------------------------------------


def overview_figure(report: Mapping[str, Any]) -> Figure | None:
    """Gradients against the range of their format, and updates in ulps of their weight.

    None where neither was recorded.
    """
    from ipu.run.pages.drawing import new_figure

    gradients = _rows(report["exponents"].get("gradients", []))
    updates = _update_rows(report.get("swallowed", {}))
    mosaic = [name for name, rows in (("gradients", gradients), ("updates", updates)) if rows]
    if not mosaic:
        return None
    n = max(len(gradients), len(updates))
    figure, axes = new_figure(10.5, 1.9 + 0.34 * max(n, 4), mosaic=[mosaic])
    panels = dict(zip(mosaic, axes, strict=True))
    if gradients:
        _panel(panels["gradients"], gradients, _PANELS["gradients"], _limits({"": gradients}))
        panels["gradients"].set_xlabel(_EXPONENT)
    if updates:
        _update_panel(panels["updates"], updates)
    _explain(figure)
    return figure


def scale_figure(report: Mapping[str, Any]) -> Figure | None:
    """Digits that gradients lose, by loss scale; None without gradients in a narrow format."""
    from ipu.run.pages.drawing import new_figure

    scales = report.get("loss_scale")
    if not scales or not scales["curve"]:
        return None
    figure, (axes,) = new_figure(10.5, 3.6)
    _scale_panel(axes, scales)
    return figure


def _update_rows(swallowed: Mapping[str, Row]) -> list[dict[str, Any]]:
    swallowed = {layer: row for layer, row in swallowed.items() if row["in_ulps"]}
    groups = grouped(swallowed)
    rows: dict[str, dict[str, Any]] = {}
    for layer, update in swallowed.items():
        row = rows.setdefault(
            groups[layer], {"layer": groups[layer], "nonzero": 0, "swallowed": 0, "counts": {}}
        )
        row["nonzero"] += update["nonzero"]
        row["swallowed"] += update["swallowed"]
        for size, n in update["in_ulps"].items():
            row["counts"][int(size)] = row["counts"].get(int(size), 0) + n
    return sorted(rows.values(), key=lambda row: row["layer"] == _OTHERS)


def _update_panel(axes: Axes, rows: Sequence[Row]) -> None:
    from ipu.run.pages import drawing

    sizes = [size for row in rows for size in row["counts"]]
    low, high = min([-4, *sizes]) - 1, max([2, *sizes]) + 9
    for place, row in enumerate(rows):
        y = len(rows) - 1 - place
        axes.barh(y, high - low, 0.94, low, align="edge", color=_NORMAL, zorder=0)
        axes.barh(y, -1 - low, 0.94, low, align="edge", color=_OUTSIDE, zorder=0)
        at = np.arange(low, high)
        counts = np.array([row["counts"].get(int(e), 0) for e in at], float)
        axes.stairs(y + 0.82 * counts / (counts.max() or 1), np.append(at, high), baseline=y,
                    fill=True, color=drawing.BLUE, alpha=0.85, linewidth=0)
        axes.axhline(y, color="#444444", linewidth=0.5)
        axes.text(0.985, y + 0.5, f"{row['swallowed'] / row['nonzero']:.0%} swallowed", ha="right",
                  transform=axes.get_yaxis_transform(), va="center", fontsize=8.5)
    axes.set(title="Updates in ulps of their weight", xlim=(low, high),
             ylim=(-0.08, len(rows) + 0.02), xlabel="update / ulp of the weight")
    ticks = [e for e in range(-40, 41, 4 if high - low < 30 else 8) if low <= e <= high]
    axes.set_xticks(ticks, [f"$2^{{{e}}}$" for e in ticks])
    axes.set_yticks([len(rows) - 0.6 - i for i in range(len(rows))],
                    [_label({**row, "format": ""}, "") for row in rows], fontsize=9.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")


def _scale_panel(axes: Axes, scales: Mapping[str, Any]) -> None:
    from ipu.run.pages import drawing

    present = int(np.log2(scales["present"]))
    k = np.array([int(e) for e in scales["curve"]]) + present
    lost = 100 * np.array(list(scales["curve"].values()))
    axes.plot(k, lost, color=drawing.BLUE, marker="o", markersize=3.5)
    axes.set(title="Digits that gradients lose, by loss scale", xlabel="loss scale",
             ylabel="significant digits lost (%)")
    step = 4 if k[-1] - k[0] < 36 else 8
    ticks = [e for e in range(-80, 81, step) if k[0] <= e <= k[-1]]
    axes.set_xticks(ticks, [f"$2^{{{e}}}$" for e in ticks])
    axes.set_ylim(bottom=-0.04 * max(lost.max(), 0.1))
    axes.axvline(present, color=drawing.GREY, linestyle=":", label="present")
    if scales["best"] is not None:
        best, safe = np.log2(scales["best"]), np.log2(scales["highest_safe"])
        axes.axvline(best, color=drawing.GREEN, label=f"best: {scale_text(scales['best'])}")
        axes.axvspan(safe + 0.5, k[-1] + 0.5, color=_OUTSIDE, zorder=0, linewidth=0,
                     label=f"overflow above {scale_text(scales['highest_safe'])}")
    axes.set_xlim(k[0] - 0.5, k[-1] + 0.5)
    axes.legend(fontsize=9.5, loc="upper left", bbox_to_anchor=(1.005, 1.0))


# Losses -----------------------------------------------------------------------------------------


def loss_figure(curves: Mapping[str, Sequence[float]]) -> Figure | None:
    """Loss by step, one line for each way; None where no way has two losses."""
    from ipu.run.pages import drawing

    curves = {name: losses for name, losses in curves.items() if len(losses) > 1}
    if not curves:
        return None
    figure, (axes,) = drawing.new_figure(10.5, 4.0)
    colors = [drawing.BLACK, drawing.BLUE, drawing.ORANGE, drawing.GREEN, drawing.RED,
              drawing.PURPLE, drawing.SKY, drawing.GREY]
    widths = np.linspace(3.2, 1.2, len(curves))
    for i, (name, losses) in enumerate(curves.items()):
        values = np.asarray(losses, float)
        finite = np.isfinite(values)
        label = drawing.literal(name)
        if not finite.all():
            label += f" (not finite from step {int(np.argmin(finite))})"
        axes.plot(np.arange(values.size), np.where(finite, values, np.nan),
                  color=colors[i % len(colors)], linewidth=widths[i], label=label,
                  marker="o" if finite.sum() < 3 else None, markersize=5)
    axes.set(xlabel="step of the optimiser", ylabel="loss")
    drawing.count_ticks(axes.xaxis)
    axes.legend(fontsize=9.5, loc="upper left", bbox_to_anchor=(1.005, 1.0))
    return figure
