"""The built site for people who see little, use no pointer, or have a phone (law, in a browser).

Every page is measured: contrast (WCAG 2.1 AA) light and dark, what no key reaches, fields without a
name, the width of a phone. Tab walks through one page of each kind.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.experiments.accessible import NARROW, WIDE, faults, walk

SITE = Path(os.environ.get("FPSIM_SITE", ""))
built = pytest.mark.skipif(not os.environ.get("FPSIM_SITE"), reason="make site builds it")

#: One of each kind: text, the page of bits, a figure, cells with drawings, signatures, tables.
KINDS = ("index", "bits", "gallery/swamping", "tutorials/rounding", "reference/chop",
         "gallery/index", "search")


@built
def test_every_page_is_read_and_used_light_and_dark_on_a_phone_and_beside_it(browser):
    pages = [page for page in sorted(SITE.rglob("*.html")) if "_static" not in page.parts]
    wrong = {page.relative_to(SITE): told for page in pages if (told := faults(browser, page))}
    assert wrong == {}


@built
@pytest.mark.parametrize("width", [NARROW, WIDE])
@pytest.mark.parametrize("page", KINDS)
def test_tab_reaches_everything_in_sight(browser, page, width):
    assert walk(browser, SITE / f"{page}.html", width) == []


@built
def test_the_keyboard_opens_and_closes_the_navigation_of_a_phone(browser):
    browser.show(NARROW)
    browser.open((SITE / "index.html").resolve().as_uri())
    menu = "document.querySelector('.sidebar-brand').checkVisibility({visibilityProperty: true})"
    assert not browser.evaluate(menu)
    browser.evaluate("document.querySelector('.nav-overlay-icon').focus()")
    browser.press("Enter", 13, "\r")
    assert browser.evaluate(menu)
    browser.press("Escape", 27)
    assert not browser.evaluate(menu)


FAULTY = """<!doctype html><html lang="en"><body style="background: #fff; color: #000">
<p style="color: #888">pale</p><p style="color: rgba(0, 0, 0, 0.5)">half</p>
<p style="color: #767676">just enough</p><p style="color: #888; font-size: 24px">large</p>
<svg width="90" height="90"><rect width="90" height="90" fill="#222"></rect>
<text x="20" y="50" fill="#fff">on a shape</text></svg>
<div onclick="0" style="cursor: pointer">a pointer alone</div><input>
<a href="#a" style="outline: none">no ring</a>
<a href="#b" style="position: absolute; left: -500px">far out</a>
<a href="#c" tabindex="3">first</a>%s</body></html>"""


def test_what_is_wrong_with_a_page_is_found(browser, tmp_path):
    page = tmp_path / "page.html"
    page.write_text(FAULTY % '<div style="width: 1000px">wide</div>', encoding="utf-8")
    told = faults(browser, page)
    faint = [row for row in told if row[:2] == ("faint", f"{WIDE} px, light")]
    assert {text: ratio for _, _, _, text, ratio, _ in faint} == {"half": "3.98", "pale": "3.54"}
    assert [kind for kind, *_ in told if kind != "faint"] == [
        "no key reaches", "no name", "scrolls sideways", "scrolls sideways"]
    stops = walk(browser, page, WIDE)
    assert [(kind, html[-11:]) for kind, html in stops] == [
        ("not marked", "no ring</a>"), ("out of sight", "far out</a>")]
