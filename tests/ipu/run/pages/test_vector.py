"""Pictures to zoom: text stays text, ids and inks fit a page (law); moves in Chromium (golden)."""

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
from tests.experiments.browser import ask, look, print_page
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
            "data.csv", "figure.png", "meta.json", "picture-1.svg", "picture-2.svg", "trace.json",
        ]
        result, _ = store.load(out / "zoomed")
        assert result.files == {"trace.json": "[]"}
        assert find("zoomed").pictures(result).keys() == {"First <1>", "Second"}
        yield write_report(out)


def test_the_page_holds_pictures_script_and_files(page):
    text = page.read_text()
    assert text.count("<svg") == 2
    assert text.count("<script>") == 1
    assert "First &lt;1&gt;" in text
    assert "First <1>" not in text
    assert re.findall(r"<link|<iframe|@import|<script [^>]|src=\"(?!data:)", text) == []
    assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)\)", text))
    assert 'download="zoomed-trace.json"' in text
    markdown = page.with_suffix(".md").read_text()
    assert "![First <1>](zoomed/picture-1.svg)" in markdown
    assert "[trace.json](zoomed/trace.json)" in markdown


HELPERS = """
  const box = document.querySelectorAll(".zoom")[%d], svg = box.querySelector("svg");
  const scene = svg.querySelector("g"), area = svg.getBoundingClientRect();
  const view = () => { const m = new DOMMatrix(getComputedStyle(scene).transform);
                       return [m.a, m.e, m.f].map((x) => Math.round(x * 100) / 100); };
  const key = (key, more) => { const event = new KeyboardEvent("keydown",
    { key, bubbles: true, cancelable: true, ...more }); box.dispatchEvent(event);
    return event.defaultPrevented; };
  const wheel = (x, y, deltaY) => { const event = new WheelEvent("wheel", { deltaY, bubbles: true,
    cancelable: true, clientX: area.left + x * area.width, clientY: area.top + y * area.height });
    svg.dispatchEvent(event); return event.defaultPrevented; };
  const pointer = (type, x, y, target) => (target || svg).dispatchEvent(new PointerEvent(type,
    { pointerId: 1, button: 0, bubbles: true, cancelable: true, clientX: area.left + x * area.width,
      clientY: area.top + y * area.height }));
  svg.setPointerCapture = () => {};
"""
#: Width and height of the picture: 10 by 3 inches in points.
WIDE, HIGH = 720, 216


def script(body, which=0):
    return f"() => {{ {HELPERS % which} {body} }}"


def test_keys_zoom_move_and_reset(page, tmp_path):
    body = """
      const seen = [view()];
      seen.push(key("ArrowLeft"), view());      // nothing to move: the page may scroll
      for (const k of ["+", "+", "ArrowLeft", "ArrowUp"]) { seen.push(key(k), view()); }
      seen.push(key("+", { ctrlKey: true }), key("x"), view());
      seen.push(key("0"), view());
      for (const k of ["=", "ArrowRight", "ArrowDown", "-", "-"]) { key(k); seen.push(view()); }
      return seen;
    """
    answers = ask(page, tmp_path, script(body))
    w, h = WIDE / 2, HIGH / 2
    assert answers[:3] == [[1, 0, 0], False, [1, 0, 0]]
    assert answers[3:7] == [True, [1.5, -w / 2, -h / 2], True, [2.25, -1.25 * w, -1.25 * h]]
    assert answers[7:11] == [True, [2.25, -450 + 60, -135], True, [2.25, -390, -135 + 18]]
    assert answers[11:14] == [False, False, [2.25, -390, -117]]
    assert answers[14:16] == [True, [1, 0, 0]]
    assert answers[16:] == [
        [1.5, -180, -54], [1.5, -240, -54], [1.5, -240, -72], [1, 0, 0], [1, 0, 0],
    ]


def test_the_wheel_zooms_about_the_pointer_once_the_picture_has_the_focus(page, tmp_path):
    body = """
      const seen = [wheel(0.5, 0.5, -400), view()];
      box.focus();
      seen.push(wheel(0.25, 0.5, -400), view(), wheel(0.25, 0.5, 400), view());
      return seen;
    """
    answers = ask(page, tmp_path, script(body, 1))
    e = 2.718281828
    assert answers[:2] == [False, [1, 0, 0]], "the page scrolls"
    assert answers[2] is True
    x, y = 0.25 * WIDE * (1 - e), 0.5 * HIGH * (1 - e)
    assert answers[3] == [pytest.approx(v, abs=2) for v in (e, x, y)]  # a pointer's whole pixels
    assert answers[5] == [1, 0, 0]


def test_dragging_moves_and_text_is_left_to_be_selected(page, tmp_path):
    body = """
      key("+");
      const seen = [view()];
      pointer("pointerdown", 0.5, 0.5); pointer("pointermove", 0.6, 0.4);
      seen.push(view());
      pointer("pointerup", 0.6, 0.4); pointer("pointermove", 0.9, 0.9);
      seen.push(view(), document.activeElement === box);
      const text = [...svg.querySelectorAll("text")].find((t) => t.textContent.trim() === "17");
      pointer("pointerdown", 0.5, 0.5, text); pointer("pointermove", 0.1, 0.1);
      seen.push(view());
      getSelection().selectAllChildren(text);
      seen.push(getSelection().toString().trim(), getComputedStyle(text).userSelect);
      box.querySelector("button[value='0']").click();
      seen.push(view());
      return seen;
    """
    told = ask(page, tmp_path, script(body))
    assert told[0] == [1.5, -180, -54]
    assert told[1] == [1.5, pytest.approx(-180 + 72, abs=0.5), pytest.approx(-54 - 21.6, abs=0.5)]
    assert told[2:4] == [told[1], True]
    assert told[4] == told[1]
    assert told[5:] == ["17", "text", [1, 0, 0]]


@pytest.mark.parametrize("width", pick([390], *[[390, 1000]] * 2))
def test_nothing_overflows(width, page, tmp_path):
    shown = look(page, width, tmp_path)
    assert shown.out == []
    assert shown.scroll <= shown.width <= width


@pytest.mark.parametrize("dark", [False, True])
def test_words_are_read_in_both_schemes(dark, page, tmp_path):
    body = """
      const inks = [...svg.querySelectorAll("text")].map((t) => [t.textContent.trim(),
        getComputedStyle(t).fill]);
      return [inks, getComputedStyle(document.body).backgroundColor];
    """
    inks, background = ask(page, tmp_path, script(body), dark=dark)

    def light(colour):
        return sum(map(int, re.findall(r"\d+", colour)[:3])) / 765

    assert (light(background) < 0.2) == dark
    assert {"17", "Bars"} <= {word for word, _ in inks}
    for word, ink in inks:
        if word == "17":
            assert ink == "rgb(17, 17, 17)", "numbers stand on bars, which keep their colours"
        else:
            assert abs(light(ink) - light(background)) > 0.6, word


def test_print_shows_the_whole_picture(page, tmp_path):
    """The rule of print is read from the page's own style sheet."""
    body = """
      key("+"); key("+");
      const sheet = document.styleSheets[0];
      const rules = [...sheet.cssRules].filter((r) => r.media?.mediaText === "print")
        .flatMap((r) => [...r.cssRules]);
      const before = view();
      for (const rule of rules) { sheet.insertRule(rule.cssText, sheet.cssRules.length); }
      const ways = getComputedStyle(box.querySelector(".ways"));
      return [before, getComputedStyle(scene).transform, ways.display];
    """
    before, transform, ways = ask(page, tmp_path, script(body))
    assert before[0] == 2.25
    assert transform == "none"
    assert ways == "none"
    assert print_page(page, tmp_path).startswith(b"%PDF")
