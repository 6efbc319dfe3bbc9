"""A table of a page, from lines of text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from docutils import nodes

__all__ = ["table"]


def table(
    heads: Sequence[str], widths: Sequence[int], lines: Iterable[Sequence[str]]
) -> nodes.table:
    """A table with a line of heads; widths are shares of the page."""
    group = nodes.tgroup(cols=len(heads))
    group += [nodes.colspec(colwidth=width) for width in widths]
    rows = [
        nodes.row("", *(nodes.entry("", nodes.paragraph(text=text)) for text in line))
        for line in (heads, *lines)
    ]
    group += nodes.thead("", rows[0])
    group += nodes.tbody("", *rows[1:])
    return nodes.table("", group)
