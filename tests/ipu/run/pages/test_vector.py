"""Pictures to zoom: text stays text, ids and inks fit a page (law)."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest

from ipu.experiments.cli import main
from ipu.experiments.lab import store
from ipu.experiments.lab.catalogue import find
from ipu.experiments.lab.report import write_report
from ipu.run.pages.drawing import new_figure
from ipu.run.pages.vector import add_tip, inline, to_svg
from tests.experiments.browser import look
from tests.tiers import pick


def draw():
    figure, (axes,) = new_figure(10, 3)
    axes.plot([1, 2], [3, 4], label="a")
    axes.text(1.5, 3.5, "<7>", color="#111111", clip_on=True)
    add_tip(axes.barh([3], [2])[0], 'a "tip" & more')
    axes.legend()
    return figure


def test_the_same_figure_is_the_same_text_and_is_well_formed():
    svg = to_svg(draw(), "T < U")
    assert svg == to_svg(draw(), "T < U")
    root = ET.fromstring(svg)
    texts = {"".join(node.itertext()) for node in root.iter("{http://www.w3.org/2000/svg}text")}
    assert "<7>" in texts, "numbers are text, no outlines"
    titles = [node.text for node in root.iter("{http://www.w3.org/2000/svg}title")]
    assert titles == ["T < U", 'a "tip" & more']


def test_two_pictures_of_one_page_share_no_id():
    svg = to_svg(draw(), "T")
    first, second = (inline(svg, prefix).svg for prefix in ("a-", "b-"))
    ids = [set(re.findall(r'\bid="([^"]*)"', text)) for text in (first, second)]
    assert ids[0]
    assert not ids[0] & ids[1]
    for text, own_ids in zip((first, second), ids, strict=True):
        used = set(re.findall(r'href="#([^"]*)"|url\(#([^)]*)\)', text))
        assert used
        assert {a or b for a, b in used} <= own_ids


def test_inks_follow_the_page_and_colours_of_data_stay():
    picture = inline(to_svg(draw(), "T"), "p-")
    assert picture.title == "T"
    assert "var(--ink)" in picture.svg
    assert "var(--line)" in picture.svg
    assert "#111111" in picture.svg
    for ink in ("#444444", "#e4e4e4", "#000000"):
        assert ink not in picture.svg
    assert not re.search(r"<svg[^>]*\s(width|height)=", picture.svg)
    assert "<style" not in picture.svg


@pytest.mark.parametrize(
    "text",
    ["", "no picture", "<svg><title>T</title><script>alert(1)</script></svg>",
     '<svg><title>T</title><g onclick="x()"/></svg>', "<svg><g/></svg>",
     '<svg><title>T</title><a href="javascript:x()"/></svg>'],
)
def test_what_is_no_plain_picture_is_not_shown(text):
    assert inline(text, "p-").svg == ""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A report whose experiment has two pictures to zoom and files."""
    import ipu.experiments
    from tests.experiments.conftest import DICE

    folder, out = (tmp_path_factory.mktemp(name) for name in ("more", "out"))
    more = """
def pictures(result):
    from ipu.run.pages.drawing import new_figure
    titles = {}
    for title in ("First <1>", "Second"):
        figure, (axes,) = new_figure(10, 3)
        axes.barh([0, 1], [3, 4])
        axes.text(1.5, 0, "17", color="#111111", clip_on=True)
        axes.set_title("Bars")
        titles[title] = figure
    return titles
"""
    plain = 'return Result(rows, f"It shows {rolls[0]}.", "p=fair", {"sides": 6}, units)'
    files = plain.replace("units)", 'units, files={"trace.json": "[]"})')
    (folder / "games").mkdir()
    (folder / "games" / "zoomed.py").write_text(DICE.replace(plain, files) + more)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ipu.experiments, "__path__", [*ipu.experiments.__path__, str(folder)])
        assert main(["run", "zoomed", "--out", str(out)]) == 0
        assert sorted(p.name for p in (out / "zoomed").iterdir()) == [
            "data.csv", "figure.png", "figure.svg", "meta.json", "picture-1.svg",
            "picture-2.svg", "trace.json",
        ]
        result, _ = store.load(out / "zoomed")
        assert result.files == {"trace.json": "[]"}
        assert find("zoomed").pictures(result).keys() == {"First <1>", "Second"}
        yield write_report(out)


def test_the_page_holds_pictures_script_and_files(page):
    text = page.read_text()
    assert text.count("<svg") == 3
    assert text.count("<script>") == 1
    assert "First &lt;1&gt;" in text
    assert "First <1>" not in text
    assert re.findall(r"<link|<iframe|@import|<script [^>]|src=\"(?!data:)", text) == []
    assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)\)", text))
    assert 'download="zoomed-trace.json"' in text
    markdown = page.with_suffix(".md").read_text()
    assert "![First <1>](zoomed/picture-1.svg)" in markdown
    assert "[trace.json](zoomed/trace.json)" in markdown


@pytest.mark.parametrize("width", pick([390], *[[390, 1000]] * 2))
def test_nothing_overflows(width, page, tmp_path):
    shown = look(page, width, tmp_path)
    assert shown.out == []
    assert shown.scroll <= shown.width <= width
