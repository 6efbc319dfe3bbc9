"""Figures as instruments, in Chromium: zoom, links, legends, points, keys, print (golden)."""

from __future__ import annotations

import re

import numpy as np
import pytest

import fpsim as fp
from ipu.run.pages.drawing import BLUE, GREEN, new_figure
from ipu.run.pages.rendering import environment
from ipu.run.pages.vector import inline, to_svg
from tests.experiments.browser import ask, print_page

PAGE = """{% extends "page.html.jinja" %}{% import "parts.html.jinja" as parts %}
{% block page %}{% for svg in figures %}{{ parts.instrument(svg, "F", "C.", "twin") }}{% endfor %}
{% endblock %}{% block scripts %}<script>{% include "figure.js" %}</script>{% endblock %}"""

HELPERS = """
  const [box, twin] = document.querySelectorAll(".zoom"), svg = box.querySelector("svg");
  const seen = (which, name) => which.panels.map((p) => p[name].ends.map((v) =>
    Math.round(v * 1e6) / 1e6));
  const key = (name, target, more) => { const event = new KeyboardEvent("keydown", { key: name,
    bubbles: true, cancelable: true, ...more }); (target || box).dispatchEvent(event);
    return event.defaultPrevented; };
  const client = (x, y) => { const p = new DOMPoint(x, y).matrixTransform(svg.getScreenCTM());
    return { clientX: p.x, clientY: p.y, pointerId: 1, button: 0, bubbles: true,
      cancelable: true }; };
  const at = (panel, x, y) => client(panel.x.spot(panel.x.share(x)),
    panel.y.spot(panel.y.share(y)));
  const pointer = (kind, place) => svg.dispatchEvent(new PointerEvent(kind, place));
  const told = () => box.querySelector(".told").textContent;
  const shown = (panel, name) => panel.axes.find((t) => t.axis.name === name);
  svg.setPointerCapture = () => {};
"""


def draw(offset=0.0):
    """Two panels over the same x, one with rows, and a logarithmic one below them."""
    figure, (top, rows, log) = new_figure(10, 7, mosaic="A;B;C")
    top.plot([0, 1, 2, 4], [0.5, 0.1, 0.25, 3 + offset], color=BLUE, label="FP16", marker="o")
    top.plot([0, 4], [1, 2], color=GREEN, label="FP32")
    top.set(xlim=(0, 4), ylim=(0, 4), title="Top", xlabel="n", ylabel="sum")
    top.legend()
    rows.barh([0, 1], [2, 4], color=GREEN)
    rows.set(xlim=(0, 4))
    rows.set_yticks([0, 1], ["one", "two"])
    rows.text(2, 0, "17")
    log.loglog([1, 1000], [1e-3, 1], color=BLUE)
    log.set(xlim=(1, 1000), ylim=(1e-3, 1))
    return figure


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    svgs = [inline(to_svg(draw(n), "F"), f"f{n}-").svg for n in (0, 1)]
    path = tmp_path_factory.mktemp("page") / "instrument.html"
    path.write_text(environment().from_string(PAGE).render(figures=svgs), encoding="utf-8")
    return path


def look_at(page, folder, body, **options):
    return ask(page, folder, f"() => {{ {HELPERS} {body} }}", **options)


def test_keys_zoom_all_panels_and_axes_and_rows_stay(page, tmp_path):
    told = look_at(page, tmp_path, """
      const before = [seen(box, "x"), seen(box, "y")];
      const unmoved = key("ArrowLeft");
      key("+"); key("+");
      const [top, rows, log] = box.panels;
      const labels = (panel, name) => [...shown(panel, name).made.querySelectorAll("text")]
        .map((t) => t.textContent);
      const hidden = (panel, name) => shown(panel, name).given
        .every((n) => n.style.display === "none");
      const answer = [before, unmoved, seen(box, "x"), seen(box, "y"), labels(top, "x"),
        hidden(top, "x"), hidden(rows, "y"), labels(log, "x"),
        [key("+", box, { ctrlKey: true }), key("x")]];
      key("0");
      return [...answer, seen(box, "x"), labels(top, "x"), hidden(top, "x")];
    """)
    third = 4 / 2.25 / 2
    assert told[0] == [[[0, 4], [0, 4], [0, 3]], told[0][1]]
    assert told[1] is False, "nothing to move: the page may scroll"
    assert told[2][:2] == [[pytest.approx(2 - third), pytest.approx(2 + third)]] * 2
    assert told[3][1] == told[0][1][1], "rows stay"
    assert told[4] == ["1.5", "2", "2.5"]
    assert told[5] is True
    assert told[6] is False
    assert told[7] == ["10", "100"]
    assert told[8] == [False, False]
    assert told[9] == told[0][0]
    assert told[10:] == [[], False]


def test_the_wheel_zooms_about_the_pointer_and_its_twin_follows(page, tmp_path):
    told = look_at(page, tmp_path, """
      const wheel = () => { const event = new WheelEvent("wheel", { deltaY: -400,
        ...at(box.panels[0], 1, 2) }); svg.dispatchEvent(event); return event.defaultPrevented; };
      const first = wheel();
      box.focus();
      return [first, wheel(), seen(box, "x"), seen(twin, "x"), seen(box, "y")[0],
        seen(twin, "y")[0]];
    """)
    assert told[:2] == [False, True], "the page scrolls until the figure has the focus"
    low, high = told[2][0]
    assert (high - low) == pytest.approx(4 / np.e, abs=0.02)
    assert (1 - low) / (high - low) == pytest.approx(0.25, abs=0.02)
    assert told[2][1] == told[2][0], "the panel over the same numbers moves along"
    assert told[2][2] == [0, 3], "another axis does not"
    assert told[3] == told[2]
    assert told[4] == told[5] != [0, 4]


def test_dragging_moves_the_detail(page, tmp_path):
    told = look_at(page, tmp_path, """
      key("+");
      const panel = box.panels[0], from = at(panel, 2, 2), to = at(panel, 2.5, 2.5);
      pointer("pointerdown", from); pointer("pointermove", to);
      const moved = [seen(box, "x")[0], seen(box, "y")[0]];
      pointer("pointerup", to); pointer("pointermove", from);
      return [moved, seen(box, "x")[0], document.activeElement === box, svg.style.touchAction];
    """)
    edge = 2 - 4 / 3
    assert told[0][0][0] == pytest.approx(edge - 0.5, abs=0.02)
    assert told[0][1][0] == pytest.approx(edge - 0.5, abs=0.02)
    assert told[1] == told[0][0]
    assert told[2:] == [True, "none"]


def test_what_is_drawn_stands_where_the_axes_say(page, tmp_path):
    told = look_at(page, tmp_path, """
      const panel = box.panels[0];
      const line = panel.series[0].querySelector("path");
      const where = () => { const matrix = line.getScreenCTM();
        const end = line.getPointAtLength(line.getTotalLength());
        const p = new DOMPoint(end.x, end.y).matrixTransform(matrix);
        const q = at(panel, 4, 3); return [p.x - q.clientX, p.y - q.clientY]; };
      const size = () => panel.series[0].querySelector("use").getBoundingClientRect().width;
      const before = [where(), size()];
      key("+"); key("+"); key("ArrowRight"); key("ArrowUp");
      return [before, [where(), size()]];
    """)
    for (x, y), _ in told:
        assert abs(x) < 0.1
        assert abs(y) < 0.1
    assert told[0][1] == pytest.approx(told[1][1], rel=0.02), "markers keep their size"


def test_legends_hide_and_show_by_click_and_by_key(page, tmp_path):
    told = look_at(page, tmp_path, """
      const entry = [...box.querySelectorAll(".key[role=button]")]
        .find((n) => n.dataset.name === "FP16");
      const off = () => [...box.querySelectorAll(".series")]
        .filter((n) => n.dataset.name === "FP16").map((n) => getComputedStyle(n).display);
      const state = () => [off(), entry.getAttribute("aria-pressed")];
      const states = [state(), entry.tabIndex];
      entry.dispatchEvent(new MouseEvent("click", { bubbles: true }));
      states.push(state());
      pointer("pointermove", at(box.panels[0], 4, 3));
      states.push(told());
      key("Enter", entry);
      states.push(state());
      return states;
    """)
    assert told[1] == 0
    assert set(told[0][0]) == {"inline"}
    assert told[2] == [["none"] * len(told[0][0]), "false"]
    assert "FP16" not in told[3], "a hidden series tells no point"
    assert told[4] == told[0]


def test_a_point_tells_its_numbers_and_their_codes(page, tmp_path):
    told = look_at(page, tmp_path, """
      pointer("pointermove", at(box.panels[0], 1, 0.1));
      const words = [told()];
      pointer("pointermove", at(box.panels[0], 3, 3.9));
      words.push(told());
      key("n"); words.push(told()); key("n"); words.push(told()); key("p"); words.push(told());
      return words;
    """)
    double = np.float64(0.1).view(np.uint64)
    words = ("FP16", "n: 1 (0x3c00 in binary16)", f"sum: 0.1 ({double:#x} in binary64)")
    assert told[0] == " \u00b7 ".join(words)
    assert told[1] == ""
    assert told[2].startswith("FP16 \u00b7 n: 0 (0x0000 in binary16) \u00b7 sum: 0.5 (0x3800")
    assert (told[3] == told[0], told[4] == told[2]) == (True, True)


def test_codes_are_those_of_the_library(page, tmp_path):
    numbers = [1.0, -2.0, 65504.0, 65520.0, 2.0**-24, 2.0**-25, 1023 * 2.0**-24, 2.0**-14, 0.1,
               np.float64(np.float32(0.1)), 2049.0, 2.0**-149, 1e300, -0.0, np.inf, -np.inf, 3e-8]
    script = [repr(float(x)).replace("inf", "Infinity") for x in numbers]
    told = look_at(page, tmp_path, f"return [{', '.join(script)}].map(code);")
    for number, text in zip(numbers, told, strict=True):
        formats = (fp.BINARY16, fp.BINARY32, fp.BINARY64)
        fmt = next(f for f in formats if float(fp.round_to(number, f)) == number)
        expected = f"{int(fp.encode(number, fmt)):#0{2 + fmt.bits // 4}x} in {fmt.name}"
        assert text == expected, number


def test_print_shows_all(page, tmp_path):
    told = look_at(page, tmp_path, """
      key("+"); key("+");
      dispatchEvent(new Event("beforeprint"));
      const rules = [...document.styleSheets[0].cssRules]
        .filter((r) => r.media?.mediaText === "print").flatMap((r) => [...r.cssRules]);
      for (const rule of rules) document.styleSheets[0].insertRule(rule.cssText,
        document.styleSheets[0].cssRules.length);
      return [seen(box, "x")[0], getComputedStyle(box.querySelector(".ways")).display];
    """)
    assert told == [[0, 4], "none"]
    assert print_page(page, tmp_path).startswith(b"%PDF")


@pytest.mark.parametrize("dark", [False, True])
def test_words_have_contrast_enough(dark, page, tmp_path):
    """WCAG 2.2 success criterion 1.4.3, level AA: 4.5 to 1."""
    inks, background = look_at(page, tmp_path, """
      return [[...document.querySelectorAll("svg text, figcaption, button, .told")].map((t) => {
        const style = getComputedStyle(t);
        return [t.textContent.trim().slice(0, 20), t.localName === "text" ? style.fill
          : style.color, style.backgroundColor]; }),
        getComputedStyle(document.body).backgroundColor];
    """, dark=dark)
    assert inks
    for word, ink, behind in inks:
        ground = background if behind.endswith(", 0)") else behind
        assert contrast(ink, ground) >= 4.5, (word, ink, ground)


def contrast(ink, ground):
    """The ratio of relative luminances."""
    def luminance(colour):
        parts = np.array([int(n) for n in re.findall(r"\d+", colour)[:3]]) / 255
        linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722])

    low, high = sorted((luminance(ink), luminance(ground)))
    return (high + 0.05) / (low + 0.05)
