"""The figure of `fpsim profile`: where the magnitudes of arrays lie beside what formats hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from fpsim.inspect.profile import Profile

#: Panels in one figure; of more arrays, the first ones are drawn.
PANELS = 6


def exponent_figure(profiles: Sequence[tuple[str, Profile]]) -> Figure:
    """One panel per array: shares of elements per binade, and the range of each format below."""
    from ipu.run.pages.drawing import new_figure

    arrays: dict[str, list[Profile]] = {}
    for name, profile in profiles:
        arrays.setdefault(name, []).append(profile)
    drawn = list(arrays.items())[:PANELS]
    n_formats = len(drawn[0][1])
    figure, panels = new_figure(
        13, 0.6 + (2.2 + 0.18 * n_formats) * len(drawn),
        mosaic=[[f"{i} values", f"{i} scales"] for i in range(len(drawn))], width_ratios=[1.5, 1],
    )
    exponents = np.concatenate([p[0].exponents for _, p in drawn] + [np.array([-26, 17])])
    limits = int(exponents.min()) - 2, int(exponents.max()) + 2
    values, scales = panels[::2], panels[1::2]
    for above, beside, (name, by_format) in zip(values, scales, drawn, strict=True):
        _panel(above, name, by_format, limits)
        _curve(beside, by_format)
    values[0].legend(loc="upper right", fontsize=8.5, ncols=min(n_formats, 3))
    values[-1].set_xlabel(
        "exponent of the magnitude, floor(log2 |x|)\nbars below: normal range, subnormals pale"
    )
    scales[-1].set_xlabel("k of the scale $2^k$ (dots: best)")
    if len(arrays) > PANELS:
        figure.suptitle(f"The first {PANELS} of {len(arrays)} arrays", fontsize=10)
    return figure


def losses(profiles: Sequence[tuple[str, Profile]]) -> Iterator[str]:
    """For each format, the array that loses most; the arrays with elements that are not finite."""
    worst: dict[str, tuple[str, Profile]] = {}
    for name, p in profiles:
        before = worst.setdefault(p.format.name, (name, p))
        if _lost(p) > _lost(before[1]):
            worst[p.format.name] = (name, p)
    for fmt, (name, p) in worst.items():
        if _lost(p):
            yield (
                f"{fmt}: the largest loss is in {name}, where {p.share('underflows'):.2%} of the "
                f"elements underflow and {p.share('overflows'):.2%} overflow"
            )
        else:
            yield f"{fmt}: nothing underflows or overflows"
    for name, p in {name: p for name, p in profiles if _not_finite(p)}.items():
        yield (
            f"{name}: {p.share('nans'):.2%} of the elements are NaN and "
            f"{p.share('infinities'):.2%} infinite, which neither underflow nor overflow"
        )


def _lost(p: Profile) -> float:
    return p.share("underflows") + p.share("overflows")


def _not_finite(p: Profile) -> float:
    return p.share("nans") + p.share("infinities")


def _colors() -> tuple[str, ...]:
    from ipu.run.pages import drawing

    return (drawing.BLUE, drawing.ORANGE, drawing.GREEN, drawing.RED, drawing.PURPLE, drawing.SKY)


def _curve(axes: Axes, profiles: Sequence[Profile]) -> None:
    """What every scale loses, where any loses less than everything."""
    colors = _colors()
    low = min(int(p.scales[p.lost < 1][0]) if (p.lost < 1).any() else 0 for p in profiles)
    high = max(int(p.scales[p.lost < 1][-1]) if (p.lost < 1).any() else 0 for p in profiles)
    for i, p in enumerate(profiles):
        color = colors[i % len(colors)]
        axes.plot(p.scales, 100 * p.lost, color=color, linewidth=1.2)
        axes.plot([p.scale_exponent], [100 * p.lost_at(p.scale_exponent)], "o", color=color)
    axes.set(title="Significant digits lost", ylabel="share (%)", ylim=(-4, 104),
             xlim=(low - 2, high + 2))


def _panel(axes: Axes, name: str, profiles: Sequence[Profile], limits: tuple[int, int]) -> None:
    from ipu.run.pages import drawing

    first = profiles[0]
    share = 100 * first.counts / max(first.n, 1)
    top = float(share.max(initial=0.0)) or 1.0
    axes.bar(first.exponents, share, width=0.9, color=drawing.GREY)
    colors = _colors()
    for i, p in enumerate(profiles):
        fmt, y, color = p.format, -top * 0.16 * (i + 1), colors[i % len(colors)]
        smallest = fmt.emin - fmt.precision + 1
        axes.barh(y, fmt.emin - smallest, top * 0.1, smallest - 0.5, color=color, alpha=0.35)
        axes.barh(
            y, fmt.emax + 1 - fmt.emin, top * 0.1, fmt.emin - 0.5, color=color, label=fmt.name
        )
    axes.axhline(0, color="#444444", linewidth=0.8)
    axes.set(title=f"{name}: {first.n} elements", ylabel="elements (%)", xlim=limits)
    axes.set_ylim(-top * 0.16 * (len(profiles) + 0.7), top * 1.3)
    axes.set_yticks([t for t in axes.get_yticks() if 0 <= t <= top * 1.2])
