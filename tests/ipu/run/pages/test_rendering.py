"""Templates: escaped in HTML alone, missing values refused, the style sheet included (law)."""

from __future__ import annotations

import jinja2
import pytest

from ipu.run.pages.rendering import environment


def test_html_is_escaped_and_text_is_not(tmp_path):
    for kind in ("html", "txt"):
        (tmp_path / f"page.{kind}.jinja").write_text("{{ name }}")
    pages = environment(tmp_path)
    assert pages.get_template("page.html.jinja").render(name="<b>") == "&lt;b&gt;"
    assert pages.get_template("page.txt.jinja").render(name="<b>") == "<b>"


def test_a_missing_value_is_refused(tmp_path):
    (tmp_path / "page.html.jinja").write_text("{{ nothing }}")
    with pytest.raises(jinja2.UndefinedError, match="nothing"):
        environment(tmp_path).get_template("page.html.jinja").render()


def test_pages_include_the_style_sheet_unescaped(tmp_path):
    (tmp_path / "page.html.jinja").write_text('{% include "style.css" %}')
    text = environment(tmp_path).get_template("page.html.jinja").render()
    assert '"Segoe UI"' in text
