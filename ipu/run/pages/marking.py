"""What a script needs of a figure: its panels, series and legends, as attributes in its SVG.

`figure.js` reads them. A panel is one pair of axes; a series is what one entry of a legend names.
"""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.category import StrCategoryFormatter
from matplotlib.collections import Collection, PathCollection
from matplotlib.colors import to_hex
from matplotlib.container import BarContainer
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.spines import Spine
from matplotlib.text import Annotation
from matplotlib.ticker import FixedFormatter, FixedLocator, FuncFormatter

from ipu.run.pages.drawing import BLACK

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend

__all__ = ["TIP", "Marks"]

#: Marks the tooltip of an artist in its group id.
TIP = "tip "
#: Begins the group id of a marked artist; its number follows.
_MARK = "mark "
#: Points in an inch of an SVG.
_POINTS = 72.0
#: A figure with more points carries none: its data file has them, and the page stays small.
_MOST = 40_000

Attributes = Mapping[str, object]
Look = tuple[str, ...]


class Marks:
    """Numbers the artists of a figure before it is drawn, and tells their attributes after.

    A layout is known once it is drawn, so what needs it is asked for then.

    >>> from ipu.run.pages.drawing import new_figure
    >>> figure, (axes,) = new_figure(4, 3)
    >>> _ = axes.plot([1, 2], [0.5, 0.25], label="FP16")
    >>> marks = Marks(figure)
    >>> marks.group(axes.lines[0].get_gid())
    '<g class="series" data-name="FP16" data-points-x="1.0 2.0" data-points-y="0.5 0.25">'
    """

    def __init__(self, figure: Figure) -> None:
        self._figure = figure
        self._told: list[tuple[str, Callable[[], Attributes]]] = []
        self._names = _names_by_look(figure)
        self._points = sum(map(_n_points, chain.from_iterable(a.lines for a in figure.axes)))
        for number, axes in enumerate(figure.axes):
            self._mark_panel(number, axes)
        for legend in figure.legends:
            self._mark_legend(legend)

    def group(self, gid: str) -> str:
        """The opening tag of the group with this id, with its tooltip; "" for an unmarked one."""
        if gid.startswith(TIP):
            return f"<g><title>{html.escape(gid.removeprefix(TIP))}</title>"
        if not gid.startswith(_MARK):
            return ""
        tip, attributes = self._told[int(gid.removeprefix(_MARK))]
        words = " ".join(
            f'{name}="{html.escape(str(value))}"' for name, value in attributes().items()
        )
        return f"<g {words}>" + (f"<title>{html.escape(tip)}</title>" if tip else "")

    def _mark(self, artist: Artist, attributes: Callable[[], Attributes]) -> None:
        gid = artist.get_gid() or ""
        if gid.startswith(_MARK):
            return
        self._told.append((gid.removeprefix(TIP), attributes))
        artist.set_gid(f"{_MARK}{len(self._told) - 1}")

    def _mark_panel(self, number: int, axes: Axes) -> None:
        if axes.name != "rectilinear":
            return
        self._mark(axes, lambda: self._panel(number, axes))
        for name, axis in (("x", axes.xaxis), ("y", axes.yaxis)):
            self._mark(axis, partial(dict, {"class": "axis", "data-axis": name}))
            self._mark(axis.label, lambda: {"class": "axis-label"})
        for container in axes.containers:
            if isinstance(container, BarContainer):
                for bar in container.patches:
                    self._mark(bar, _bar(bar, str(container.get_label()), container.orientation))
        if axes.get_legend():
            self._mark_legend(axes.get_legend())
        for artist in axes.get_children():
            if artist is axes.patch:
                self._mark(artist, lambda: {"class": "fixed"})
            elif artist not in (axes.xaxis, axes.yaxis) and artist not in axes.child_axes:
                self._mark_child(artist, axes)

    def _mark_child(self, artist: Artist, axes: Axes) -> None:
        if not _moves(artist, axes):
            self._mark(artist, lambda: {"class": "fixed"})
        elif isinstance(artist, (Line2D, Patch, Collection)):
            label = str(artist.get_label())
            name = self._names.get(_look(artist), "") if label.startswith("_") else label
            self._mark(artist, lambda: self._series(artist, name))

    def _panel(self, number: int, axes: Axes) -> Attributes:
        width, height = self._figure.get_size_inches() * _POINTS
        box = axes.get_position()
        edges = (box.x0 * width, (1 - box.y1) * height, box.width * width, box.height * height)
        shared = [other for other in self._figure.axes
                  if axes.get_shared_x_axes().joined(axes, other) or _same_range(axes, other)]
        return {
            "class": "panel", "data-box": " ".join(f"{edge:.3f}" for edge in edges),
            "data-number": number, "data-link": self._figure.axes.index(shared[0]),
            "data-title": axes.get_title("left") or axes.get_title(),
            **_axis("x", axes.xaxis), **_axis("y", axes.yaxis),
        }

    def _series(self, artist: Artist, name: str) -> Attributes:
        x, y = _points_of(artist) if self._points <= _MOST else ((), ())
        points = {"data-points-x": _numbers(x), "data-points-y": _numbers(y)} if len(x) else {}
        # Markers keep their size; the paths of other collections are places themselves.
        markers = isinstance(artist, (Line2D, PathCollection))
        return {"class": "series" if markers else "series drawn", "data-name": name, **points}

    def _mark_legend(self, legend: Legend) -> None:
        self._mark(legend, lambda: {"class": "fixed legend"})
        for handle, text in zip(legend.legend_handles, legend.get_texts(), strict=True):
            attributes = {"class": "key", "data-name": text.get_text()}
            for artist in (handle, text):
                if artist is not None:
                    self._mark(artist, partial(dict, attributes))


def _names_by_look(figure: Figure) -> dict[Look, str]:
    """Names of legend entries by colour and line, where these name one entry.

    A policy has one colour in all panels of a figure, and often one legend names it.
    """
    legends = [*figure.legends, *(a.get_legend() for a in figure.axes if a.get_legend())]
    pairs = {
        (_look(handle), text.get_text())
        for legend in legends
        for handle, text in zip(legend.legend_handles, legend.get_texts(), strict=True)
        if handle is not None
    }
    times = Counter(look for look, _ in pairs)
    return {look: name for look, name in pairs if look and times[look] == 1}


def _look(artist: Artist) -> Look:
    """Kind and colour of an artist; () of one that has several colours or none."""
    if isinstance(artist, Line2D):
        line = str(artist.get_linestyle())
        if artist.get_color() == BLACK:
            return ()  # theory, which is another in each panel
        return ("line", to_hex(artist.get_color(), keep_alpha=True), line)
    if isinstance(artist, Patch):
        return ("face", to_hex(artist.get_facecolor(), keep_alpha=True))
    if isinstance(artist, Collection):
        colours = np.atleast_2d(np.asarray(artist.get_facecolor()))
        if len(colours) == 1 and colours.size == 4:
            return ("face", to_hex(tuple(colours[0]), keep_alpha=True))
    return ()


def _moves(artist: Artist, axes: Axes) -> bool:
    """Whether an artist stands at data, and not at a place of the panel."""
    if isinstance(artist, Spine):
        return False
    if isinstance(artist, Annotation):
        return bool(artist.xycoords == "data")
    if isinstance(artist, Collection):
        transform = artist.get_offset_transform()
        if isinstance(artist, PathCollection):
            return bool(any(transform.contains_branch_seperately(axes.transData)))
    return bool(any(artist.get_transform().contains_branch_seperately(axes.transData)))


def _same_range(axes: Axes, other: Axes) -> bool:
    """Panels under each other with the same numbers along x, as the parts of a plan's sheet."""
    first, second = axes.get_position(), other.get_position()
    return bool(
        axes.get_xlim() == other.get_xlim() and abs(first.x0 - second.x0) < 1e-6
        and axes.get_xscale() == other.get_xscale()
    )


def _axis(name: str, axis: Axis) -> Attributes:
    """What an axis counts: its scale, or `rows` where its ticks are given, and its limits."""
    low, high = (float(limit) for limit in axis.get_view_interval())
    scale = axis.get_scale()
    formatter = axis.get_major_formatter()
    is_fixed = isinstance(axis.get_major_locator(), FixedLocator) or isinstance(
        formatter, (FixedFormatter, FuncFormatter, StrCategoryFormatter)
    )
    if is_fixed and scale != "log":
        scale = "rows"
    return {
        f"data-{name}": f"{scale} {low!r} {high!r}", f"data-{name}-label": axis.label.get_text(),
        f"data-{name}-ticks": "fixed" if is_fixed else "free",
    }


def _bar(bar: Rectangle, name: str, orientation: str | None) -> Callable[[], Attributes]:
    def attributes() -> Attributes:
        x, y = bar.get_x() + bar.get_width() / 2, bar.get_y() + bar.get_height() / 2
        if orientation == "horizontal":
            x = bar.get_x() + bar.get_width()
        else:
            y = bar.get_y() + bar.get_height()
        return {
            "class": "series drawn", "data-name": "" if name.startswith("_") else name,
            "data-points-x": repr(float(x)), "data-points-y": repr(float(y)),
        }

    return attributes


def _n_points(line: Line2D) -> int:
    return len(line.get_xdata())


def _points_of(artist: Artist) -> tuple[Any, Any]:
    """The points of a line or of a scatter, as they are drawn."""
    if isinstance(artist, Line2D) and len(artist.get_xdata()):
        return artist.get_xdata(orig=False), artist.get_ydata(orig=False)
    if isinstance(artist, PathCollection):
        offsets = np.ma.filled(artist.get_offsets(), np.nan)
        return offsets[:, 0], offsets[:, 1]
    return (), ()


def _numbers(values: Any) -> str:
    return " ".join(_digits(values))


def _digits(values: Any) -> Iterator[str]:
    """Shortest digits that give the same binary64 number back."""
    for value in np.asarray(values, np.float64).tolist():
        yield repr(value)
