"""Running, storing and reporting, seen from the command line, with a tiny experiment."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re

import pytest

from ipu.experiments.lab import store
from ipu.experiments.lab.caption import caption
from ipu.experiments.lab.catalogue import find
from ipu.experiments.lab.report import write_report
from ipu.experiments.lab.result import Result, Table, UnitUsed
from ipu.experiments.lab.versions import commit, processor
from ipu.run.verdict import SPREAD
from tests.experiments.accessible import NARROW, WIDE, faults, walk
from tests.experiments.browser import look
from tests.tiers import pick

FILES = ["data.csv", "figure.png", "figure.svg", "meta.json"]


def test_a_run_leaves_data_description_figure_and_report(out):
    assert sorted(p.name for p in (out / "dice").iterdir()) == FILES
    assert sorted(p.name for p in out.iterdir()) == ["dice", "index.html", "index.md"]
    meta = json.loads((out / "dice" / "meta.json").read_text())
    data = (out / "dice" / "data.csv").read_bytes()
    assert meta["seed"] == 3
    assert meta["policy"] == "p=fair"
    assert meta["units"] == [{"name": "die", "evidence": "ASSUMED", "source": "a game"}]
    assert meta["data_sha256"] == hashlib.sha256(data).hexdigest()
    assert {"fpsim", "numpy", "Python"} <= meta["versions"].keys()
    assert meta["wall_seconds"] >= 0


def test_the_page_needs_no_other_file_and_tells_all(out):
    page = (out / "index.html").read_text()
    assert re.findall(r"<(?:link|iframe)|<script [^>]|@import|url\((?!#)", page) == []
    assert all(source.startswith("data:") for source in re.findall(r'src="([^"]*)', page))
    meta = json.loads((out / "dice" / "meta.json").read_text())
    for part in (meta["question"], meta["answer"], "p=fair", "ASSUMED", "a game", "<svg"):
        assert part in page
        assert part in (out / "index.md").read_text() or part == "<svg"


def test_text_of_results_cannot_become_markup(out):
    folder = out / "dice"
    result, meta = store.load(folder)
    sly = type(result)(result.rows, "<b>bold</b>", result.policy, {}, result.units)
    store.save_data(folder, sly, meta)
    assert "<b>bold" not in write_report(out).read_text()


def test_a_stored_result_is_the_one_that_ran_and_draws_the_same_figure(out):
    from ipu.run.pages.drawing import to_png

    result, meta = store.load(out / "dice")
    fresh = find("dice").run(quick=False, seed=3)
    assert (result.to_csv(), result.answer) == (fresh.to_csv(), meta["answer"])
    stored_figure = (out / "dice" / "figure.png").read_bytes()
    assert to_png(find("dice").plot(result)) == stored_figure


DAMAGES = {
    "meta.json is cut": lambda f: (f / "meta.json").write_text("{"),
    "data.csv is another": lambda f: (f / "data.csv").write_text("roll\n1\n"),
    "an older fpsim wrote it": lambda f: store.save_data(f, store.load(f)[0], {"name": "dice"}),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_result_is_named_with_the_reason(damage, out):
    DAMAGES[damage](out / "dice")
    write_report(out)
    for name in ("index.html", "index.md"):
        page = (out / name).read_text()
        assert "dice is not shown: " in page
        assert "fpsim run dice" in page


def test_the_page_says_when_by_what_and_where_it_was_made(out):
    meta = json.loads((out / "dice" / "meta.json").read_text())
    assert meta["command"] == "fpsim run dice --seed 3"
    for name in ("index.html", "index.md"):
        page = (out / name).read_text()
        for part in (meta["command"], meta["date"][:10], processor(), commit()):
            assert html.escape(part) in page or part in page


def test_a_forwarded_page_carries_its_data(out):
    page = (out / "index.html").read_text()
    links = re.findall(r'href="data:[^,"]*,([^"]*)" download="dice-([^"]+)"', page)
    files = {name: base64.b64decode(url) for url, name in links}
    assert files.keys() == {"data.csv", "meta.json"}
    for name, content in files.items():
        assert content == (out / "dice" / name).read_bytes()


def test_the_first_screen_is_a_table_of_questions_and_short_answers(out):
    result, meta = store.load(out / "dice")
    short = "Yes. It shows 3 (n = 30), by the thirtieth roll."
    answer = f"{short} Other dice show less."
    told = Result(result.rows, answer, result.policy, {}, result.units)
    store.save_data(out / "dice", told, meta)
    write_report(out)
    for name in ("index.html", "index.md"):
        page = (out / name).read_text()
        assert page.count(short) == 2
        assert page.count(answer) == 1, "the whole answer is read once, in its section"
        assert page.index(short) < page.index(answer)
        question = '<a href="#dice">' if name == "index.html" else "[What does a die show?](#dice)"
        assert question in page


def test_a_figure_too_large_for_the_page_is_a_png(out, monkeypatch):
    from ipu.experiments.lab import report

    monkeypatch.setattr(report, "LARGEST_FIGURE", 100)
    page = write_report(out).read_text()
    assert "data:image/png" in page
    assert "<svg" not in page


def test_a_caption_says_what_is_drawn_how_much_of_it_and_what_an_interval_is(out):
    page = (out / "index.html").read_text()
    assert "n: 30 rows of data.csv, seed 3." in page
    assert page.count("Student") == 1, "no ± in this figure: only the foot of the page explains it"
    result, meta = store.load(out / "dice")
    told = Result(result.rows, "It is 3 ± 1.", result.policy, {"seeds": [1, 2]}, result.units)
    text = caption('<g class="panel" data-title="A" data-y-label="b">', told, meta)
    assert text == f"A: b. n: 30 rows of data.csv, 2 seeds, seed 3. {SPREAD}"


def test_links_lead_to_sections_and_back(out):
    page = (out / "index.html").read_text()
    targets = re.findall(r'href="#([^"]*)"', page)
    assert {"dice", "contents"} <= set(targets)
    assert all(f'id="{target}"' in page for target in targets)


def test_times_are_true(out):
    result, meta = store.load(out / "dice")
    times = {"wall_seconds": 95.45, "budget_seconds": 14.0, "threads": 2}
    store.save_data(out / "dice", result, meta | times)
    page = write_report(out).read_text()
    assert "1 min 35 s with 2 threads on " in page
    assert "a full run on two quiet cores: 14 s at most" in page


def test_tables_are_text_of_the_page(out, monkeypatch):
    table = Table("Rolls", ["a|b", "c"], [["1 < 2", "x|y"]], "A note.")
    monkeypatch.setattr(type(find("dice")), "tables", lambda self, result: [table])
    page = write_report(out).read_text()
    assert "<td>1 &lt; 2</td><td>x|y</td>" in page
    assert "A note." in page
    assert "| 1 < 2 | x\\|y |" in (out / "index.md").read_text()


@pytest.fixture
def wide(out, monkeypatch):
    """A page with all that is wide: long names, a table of many columns, long parameters."""
    result, meta = store.load(out / "dice")
    units = (UnitUsed("a_name_of_a_unit_" * 8, "INFERRED", "somewhere/" * 20),)
    policy, answer = "p=f32,c=f16;" * 20, "0.123456789" * 12
    parameters = {"strategies": {"word" * 20: "value" * 30}}
    store.save_data(out / "dice", Result(result.rows, answer, policy, parameters, units), meta)
    cells = [f"column number {i}" for i in range(14)]
    table = Table("Rolls", cells, [cells] * 3, "note" * 60)
    monkeypatch.setattr(type(find("dice")), "tables", lambda self, result: [table])
    return write_report(out)


@pytest.mark.parametrize("width", pick([390], *[[390, 820, 1400]] * 2))
def test_nothing_overflows_in_a_browser(width, wide, tmp_path_factory):
    shown = look(wide, width, tmp_path_factory.mktemp("browser"))
    assert shown.width <= width
    assert shown.out == []
    assert shown.scroll <= shown.width


def test_the_page_is_read_light_and_dark_and_used_by_keys(wide, browser):
    assert faults(browser, wide) == []
    assert [walk(browser, wide, width) for width in (NARROW, WIDE)] == [[], []]


@pytest.mark.parametrize("dark", [False, True])
def test_the_page_has_a_light_and_a_dark_scheme(dark, wide, tmp_path_factory):
    shown = look(wide, 820, tmp_path_factory.mktemp("browser"), dark)
    ink, page = (
        sum(map(int, re.findall(r"\d+", colour)[:3])) / 765 for colour in (shown.ink, shown.page)
    )
    assert (ink > 0.8, page < 0.2) == (dark, dark)
    assert abs(ink - page) > 0.6
