"""One maker of pages: a template of the one folder, with its content, written as a whole.

Every page extends `page.html.jinja`, which has the style sheet; figures and data travel inside a
page as data URLs.
"""

from __future__ import annotations

import base64
import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2

from fpsim.state.files import write_whole
from ipu.run.sentences import capital
from ipu.run.verdict import SPREAD

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["data_url", "dead_links", "environment", "png_url", "write_figures", "write_page",
           "write_table"]

_TEMPLATES = Path(__file__).parent / "templates"


def environment(folder: Path = _TEMPLATES) -> jinja2.Environment:
    """The templates of a folder; those of HTML escape what they insert.

    Raises    jinja2.UndefinedError from a template that reads a value that is not there.

    >>> "max-width" in environment().get_template("style.css").render()
    True
    """
    options: dict[str, Any] = {"trim_blocks": True, "lstrip_blocks": True}
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        autoescape=lambda name: name is not None and ".html" in name,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
        **options,
    )
    templates.filters["capital"] = capital
    return templates


def write_page(path: Path, template: str, content: Mapping[str, Any]) -> Path:
    """Write a page; its template is TEMPLATE.html.jinja, or .md.jinja for a path that ends so.

    Beside `content` a template may use `date`, and `spread`, the sentence on what ± means.
    """
    date = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    page = environment().get_template(f"{template}{path.suffix}.jinja")
    text = page.render(date=date, spread=SPREAD, **content)
    if path.suffix == ".html":
        dead = dead_links(text)
        assert not dead, f"{path.name} is forwarded alone, and these links lead out of it: {dead}"
    write_whole(path, text.encode())
    return path


def dead_links(page: str) -> list[str]:
    """Links and sources of a page that lead nowhere once it is forwarded alone.

    Those that live are anchors of the page, contents as `data:`, and absolute addresses.

    >>> dead_links('<p id="a"><a href="#a"></a><a href="#b"></a><img src="c.png">')
    ['#b', 'c.png']
    """
    anchors = set(re.findall(r'\bid="([^"]*)"', page))
    links = re.findall(r'\b(?:href|src)="([^"]*)"', page)
    return [
        link for link in links
        if not (link.startswith(("data:", "https://")) or (link[:1] == "#" and link[1:] in anchors))
    ]


def data_url(kind: str, content: bytes) -> str:
    """A file's content as a URL that holds it.

    >>> data_url("text/csv", b"a,b")
    'data:text/csv;base64,YSxi'
    """
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def write_table(path: Path, heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Write a table as CSV; returns it as a URL that holds it."""
    with io.StringIO(newline="") as text:
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(heads)
        writer.writerows(rows)
        content = text.getvalue().encode()
    write_whole(path, content)
    return data_url("text/csv", content)


def png_url(png: bytes) -> str:
    """A picture as a URL that holds it; "" for none."""
    return data_url("image/png", png) if png else ""


def write_figures(folder: Path, figures: Mapping[str, Figure | None]) -> dict[str, str]:
    """Write NAME.png for each figure; returns each as SVG for a page, "" where there is none."""
    from ipu.run.pages.drawing import fix_layout, to_png
    from ipu.run.pages.vector import inline, to_svg

    images = {}
    for name, figure in figures.items():
        path = folder / f"{name}.png"
        path.unlink(missing_ok=True)
        images[name] = ""
        if figure is not None:
            fix_layout(figure)
            write_whole(path, to_png(figure))
            images[name] = inline(to_svg(figure, name), f"{name}-").svg
    return images
