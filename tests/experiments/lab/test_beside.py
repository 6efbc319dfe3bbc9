"""Two reports side by side: equal bits are told from others (law); one page of both (golden)."""

from __future__ import annotations

import re
import shutil

import pytest

from ipu.experiments.cli import main
from ipu.experiments.lab import store
from ipu.experiments.lab.beside import compare, differing
from ipu.experiments.lab.result import Result, rows_from_csv, to_csv
from tests.experiments.accessible import NARROW, faults, walk
from tests.experiments.browser import ask, look

SUM = 0.1 + 0.2


def test_a_last_bit_is_a_difference_and_a_stored_table_is_none():
    rows = [{"n": 1, "sum": 0.3, "name": "a"}, {"n": 2, "sum": None, "name": "b"}]
    other = [{"n": 1, "sum": SUM, "name": "a"}, rows[1]]
    assert differing(rows, rows_from_csv(to_csv(rows))) == []
    assert differing(rows, other) == [(1, "sum", "0.3", "0.30000000000000004")]
    assert differing([{"x": 0.0}], [{"x": -0.0}]) == [(1, "x", "0.0", "-0.0")]
    assert differing([{"x": float("nan")}], [{"x": float("nan")}]) == []


@pytest.fixture
def two(out, tmp_path):
    """Two folders of the same experiment; the second has another number in one row."""
    other = tmp_path / "other"
    shutil.copytree(out, other)
    result, meta = store.load(other / "dice")
    rows = [dict(row) for row in result.rows]
    rows[4]["shown"] = 7
    svg = (other / "dice" / store.VECTOR).read_bytes()
    told = Result(rows, "It shows 7.", result.policy, {}, result.units)
    store.save_data(other / "dice", told, meta)
    (other / "dice" / store.VECTOR).write_bytes(svg)
    return out, other


def test_equal_reports_end_with_0_and_others_with_1_and_the_cells(two, tmp_path, capsys):
    first, other = map(str, two)
    page = tmp_path / "page.html"
    assert main(["compare", first, first, "--out", str(page)]) == 0
    assert "dice                       the same bits: 30 rows" in capsys.readouterr().out
    assert main(["compare", first, other, "--out", str(page)]) == 1
    assert "1 of 30 rows differ" in capsys.readouterr().out
    text = page.read_text()
    result, _ = store.load(two[0] / "dice")
    cells = f"<td>5</td><td>shown</td><td>{result.rows[4]['shown']}</td><td>7</td>"
    assert cells in text
    assert text.count("<svg") == 2
    assert len(re.findall(r'\bid="', text)) == len(set(re.findall(r'\bid="([^"]*)"', text)))


def test_what_stands_in_one_report_alone_is_named(two, tmp_path):
    first, other = two
    shutil.copytree(other / "dice", other / "swamping")
    both, alone, damaged = compare(first, other)
    assert [one.name for one in both] == ["dice"]
    assert alone == ["swamping stands in the right report alone"]
    assert damaged == {}


def test_a_folder_without_results_is_refused(two, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    assert main(["compare", str(two[0]), str(tmp_path / "empty")]) == 2
    assert "has no finished results; give the folder that" in capsys.readouterr().err
    assert main(["compare", str(two[0]), str(two[1]), "--out", "page.txt"]) == 2
    assert "out='page.txt' is no page; end it in .html" in capsys.readouterr().err


def test_both_figures_move_together_and_a_phone_does_not_scroll(two, browser, tmp_path):
    page = tmp_path / "page.html"
    assert main(["compare", *map(str, two), "--out", str(page)]) == 1
    assert (faults(browser, page), walk(browser, page, NARROW)) == ([], [])
    told = ask(page, tmp_path, """async () => {
      const [left, right] = document.querySelectorAll(".zoom");
      const ends = (box) => box.panels[0].x.ends;
      const before = ends(right);
      left.dispatchEvent(new KeyboardEvent("keydown", { key: "+", bubbles: true }));
      return [before, ends(left), ends(right)]; }""")
    assert told[1] == told[2] != told[0]
    shown = look(page, 390, tmp_path)
    assert (shown.out, shown.scroll <= shown.width) == ([], True)
