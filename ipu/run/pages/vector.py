"""Figures as SVG that a page holds: text stays text, bars have tooltips, inks follow the page.

A picture in its file is plain SVG with the colours of print. Inside a page its inks become the
page's own, so that it is read in a dark scheme too, and its ids get a prefix, so that several
pictures share a page. `marking` tells the page's script (`figure.js`) where panels, series and
legends are. Kept libraries were looked at: svg-pan-zoom 3.6.2 (30 kB, no keyboard, axes leave the
view), @panzoom/panzoom 4.6.2 (no keyboard), mpld3 0.5.12 (brings D3, draws its own axes) and
plotly or bokeh (megabytes on each page).
"""

from __future__ import annotations

import html
import io
import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.figure import Figure

__all__ = ["Picture", "add_tip", "inline", "to_svg"]

#: Inks of print and what a page puts in their place.
_INKS = {
    "#000000": "var(--ink)", "#222222": "var(--ink)", "#444444": "var(--ink)",
    "#e4e4e4": "var(--line)", "#ffffff": "var(--page)",
}
#: Text in the colour of a series; the two inks of numbers on bars are chosen against the bar.
_COLOURED = re.compile(r'(<text style="[^"]*?)fill: (#(?!111111|fefefe)[0-9a-f]{6})')
#: That colour, nearer to the page's ink, so that it is read on light and dark (WCAG 1.4.3); where
#: a browser cannot mix, the colour itself.
_MIXED = r"\1fill: \2; fill: color-mix(in srgb, \2 60%, var(--ink))"
#: What an SVG could do on a page beside being seen.
_ACTIVE = re.compile(r"<\s*(script|foreignObject|iframe)|\son\w+\s*=|javascript:", re.IGNORECASE)


class Picture(NamedTuple):
    """A picture as a page shows it; no svg where its file cannot be shown."""

    title: str
    svg: str


def add_tip(artist: Artist, text: str) -> None:
    """Gives an artist a tooltip, in SVG only."""
    artist.set_gid("tip " + text)


def to_svg(figure: Figure, title: str) -> str:
    """The figure as SVG with a title; it is closed.

    >>> from ipu.run.pages.drawing import new_figure
    >>> figure, (axes,) = new_figure(4, 3)
    >>> add_tip(axes.barh([0], [2])[0], "two & a half")
    >>> svg = to_svg(figure, "Bars")
    >>> svg[:4], "<title>Bars</title>" in svg, "<title>two &amp; a half</title>" in svg
    ('<svg', True, True)
    """
    from matplotlib import pyplot as plt
    from matplotlib import rc_context

    from ipu.run.pages.marking import Marks

    marks = Marks(figure)
    text = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "fpsim"}):
        figure.savefig(text, format="svg", metadata=nothing, transparent=True)
    plt.close(figure)
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(
        r"""<g id=(["'])((?:tip|mark) .*?)\1>""",
        lambda match: marks.group(html.unescape(match[2])), svg,
    )
    return re.sub(r"(<svg[^>]*>)", rf"\1\n<title>{html.escape(title)}</title>", svg, count=1)


def inline(svg: str, prefix: str) -> Picture:
    """A stored picture as part of a page; ids get the prefix.

    >>> inline('<svg width="9pt" viewBox="0 0 9 9"><title>T</title><g id="a"/></svg>', "p-")
    Picture(title='T', svg='<svg viewBox="0 0 9 9"><g id="p-a"/></svg>')
    """
    title = re.search(r"<title>([^<]*)</title>", svg)
    if not title or not svg.startswith("<svg") or _ACTIVE.search(svg):
        return Picture("", "")
    head, body = svg[: title.start()].rstrip(), svg[title.end() :]
    head = re.sub(r'\s(width|height|xmlns\S*|version)="[^"]*"', "", head)
    body = re.sub(r"<style[^>]*>.*?</style>", "", body, flags=re.DOTALL)
    body = re.sub(r'(\bid="|href="#|url\(#)', rf"\1{prefix}", body)
    for ink, colour in _INKS.items():
        body = re.sub(rf"{ink}\b", colour, body, flags=re.IGNORECASE)
    body = _COLOURED.sub(_MIXED, body)
    return Picture(html.unescape(title.group(1)), head + body.rstrip())
