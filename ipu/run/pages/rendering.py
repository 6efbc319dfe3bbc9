"""Templates of pages: one set of options, and the style sheet that every page includes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jinja2

__all__ = ["environment"]

#: Holds style.css.
SHARED = Path(__file__).parent / "templates"


def environment(folder: Path) -> jinja2.Environment:
    """The templates of a folder; those of HTML escape what they insert.

    Raises    jinja2.UndefinedError from a template that reads a value that is not there.

    >>> "max-width" in environment(SHARED).get_template("style.css").render()
    True
    """
    options: dict[str, Any] = {"trim_blocks": True, "lstrip_blocks": True}
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader((folder, SHARED)),
        autoescape=lambda name: name is not None and ".html" in name,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
        **options,
    )
