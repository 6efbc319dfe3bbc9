"""A report of a run as a part of a notebook: what hurt first, counts by layer, gradients."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from ipu.run.pages.page import headline, where_rows
from ipu.run.pages.rendering import environment
from ipu.run.pages.vector import inline, to_svg
from ipu.run.text import COUNTERS

__all__ = ["report_html"]

#: Rows of the table of layers; the page of the run has more.
_ROWS = 12


def report_html(report: Mapping[str, Any]) -> str:
    """HTML without a style sheet or a script of its own."""
    from ipu.run.pages.figures import overview_figure

    figure = overview_figure(report)
    svg = "" if figure is None else to_svg(figure, "Gradients and updates")
    # Two reports of one notebook share no id.
    prefix = f"run-{hashlib.sha256(svg.encode()).hexdigest()[:8]}-"
    rows = where_rows(report)
    content = {
        "report": report, "headline": headline(report), "rows": rows[:_ROWS],
        "left_out": max(0, len(rows) - _ROWS), "heads": list(COUNTERS.values()),
        "picture": inline(svg, prefix).svg,
    }
    return environment().get_template("notebook.html.jinja").render(content)
