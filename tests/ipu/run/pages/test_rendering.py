"""Templates: escaped in HTML alone, missing values refused, one layout for every page (law)."""

from __future__ import annotations

import re
from types import SimpleNamespace

import jinja2
import pytest

from ipu.run.pages import rendering
from ipu.run.pages.rendering import environment, write_page


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


def test_a_page_is_written_with_its_date_and_the_style_sheet_unescaped(tmp_path):
    path = write_page(tmp_path / "index.html", "compare", {
        "title": "a <b> program", "heads": [], "rows": [], "runs": [], "images": {"losses": ""},
        "layers": [], "columns": [], "pages": {}, "headlines": {}, "reasons": {}, "verdicts": [],
        "comparison": SimpleNamespace(
            declared=SimpleNamespace(digest="0"), ways=["fp32"], reference=0, notes=[]
        ),
    })
    text = path.read_text(encoding="utf-8")
    assert '"Segoe UI"' in text
    assert ".heat" in text
    assert "<title>fpsim: a &lt;b&gt; program</title>" in text
    assert re.search(r"Written \d{4}-\d\d-\d\d \d\d:\d\d UTC", text)


@pytest.mark.parametrize("template", ["compare", "report", "run", "sweep"])
def test_every_page_extends_the_one_layout(template):
    source, _, _ = environment().loader.get_source(environment(), f"{template}.html.jinja")
    assert source.startswith('{% extends "page.html.jinja" %}')
    assert "<head>" not in source


@pytest.mark.parametrize("text", [
    '<a href="index.html">', '<img src="losses.png">', '<a href="#nowhere">',
    '<a href="/data.csv">', '<a href="http://example.org">',
])
def test_a_page_that_leads_out_of_itself_is_never_written(tmp_path, monkeypatch, text):
    """So every page of every command can be forwarded alone: all are written here."""
    page = SimpleNamespace(render=lambda **content: f'<p id="here"><a href="#here">{text}')
    monkeypatch.setattr(rendering, "environment", lambda: SimpleNamespace(
        get_template=lambda name: page))
    with pytest.raises(AssertionError, match="lead out of it"):
        write_page(tmp_path / "page.html", "page", {})
    assert not list(tmp_path.iterdir())
