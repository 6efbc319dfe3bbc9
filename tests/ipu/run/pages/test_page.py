"""The page of a run: files, sentences, escaping (golden, law)."""

from __future__ import annotations

import json

from ipu.run.advising import advise
from ipu.run.pages.page import headline, plain, read_report, where_rows, write_run
from ipu.run.ways import Way
from tests.experiments.accessible import NARROW, faults, walk
from tests.ipu.run.runs import born, make_report, quiet_report

HALF = Way.parse("fp16")


def test_a_folder_holds_the_page_its_data_and_its_figures(tmp_path):
    report = make_report()
    page = write_run(tmp_path / "run", report, advise(report, HALF), "<net>")
    names = {path.name for path in page.parent.iterdir()}
    assert names == {
        "index.html", "report.json", "report.txt", "losses.png", "exponents.png", "overview.png",
        "scales.png",
    }
    text = page.read_text(encoding="utf-8")
    assert "&lt;net&gt;: where it hurts" in text
    assert "1e-08" in text
    assert text.count("<svg") == 4
    assert "net.a" in text
    assert "Set eps=0.0001" in (page.parent / "report.txt").read_text(encoding="utf-8")


def test_the_page_is_read_light_and_dark_and_used_by_keys(browser, tmp_path):
    page = write_run(tmp_path, make_report(), advise(make_report(), HALF), "net")
    assert (faults(browser, page), walk(browser, page, NARROW)) == ([], [])


def test_the_data_are_json_and_come_back(tmp_path):
    report = make_report()
    write_run(tmp_path, report, advise(report, HALF))
    json.loads((tmp_path / "report.json").read_text(), parse_constant=lambda x: 1 / 0)
    again = read_report(tmp_path / "report.json")
    assert again["layers"] == report["layers"]
    assert again["losses"][0] == 2.0
    assert again["losses"][1] != again["losses"][1]
    assert read_report(tmp_path / "other.json") is None
    assert plain({1: (float("inf"), None)}) == {"1": ["inf", None]}


def test_figures_of_an_earlier_run_are_gone(tmp_path):
    write_run(tmp_path, make_report(), advise(make_report(), HALF))
    write_run(tmp_path, quiet_report(), advise(quiet_report(), HALF))
    assert not (tmp_path / "exponents.png").exists()
    assert "This session did not count" in (tmp_path / "index.html").read_text()


def test_the_headline_is_the_way_from_the_symptom_back_to_the_cause():
    assert headline(make_report()) == (
        "The loss is NaN from step 1 on: the constant 1e-08 is zero in binary16, so the divide "
        "divides by zero (optimizer, step 0), and the weights of net.a become infinite."
    )
    without = make_report() | {
        "first": [], "births": [], "losses": [2.0, 1.0], "loss_scale": {},
    }
    assert headline(without).startswith("Updates are swallowed: 6 of 8 updates of net.a")


def test_a_division_by_a_difference_says_so():
    report = make_report() | {"losses": [2.0, float("inf")], "loss_scale": {}, "constants": []}
    report["births"] = [born("division by zero", operation="aten.log",
                             detail="what the rsub of equal numbers gives")]
    report["symptom"] = {"step": 1, "births": {"infinity": 0}}
    assert ("the log of net.a takes the logarithm of zero, what the rsub of equal numbers gives in "
            "binary16") in headline(report)


def test_harmless_births_are_told_as_harmless():
    report = make_report() | {"losses": [2.0, 1.0], "swallowed": {}, "loss_scale": {}, "births": [
        born("saturation", harmless=True, deaths={"aten._softmax": 3}, count=4),
    ]}
    assert headline(report) == (
        "No harm was found: 4 results of the mul of net.a left the range of binary16, and die in "
        "softmax."
    )


def test_a_run_that_computed_nothing_is_not_one_that_did_not_count(tmp_path):
    nothing = make_report() | {"layers": {}, "first": [], "swallowed": {}, "losses": []}
    text = write_run(tmp_path, nothing, advise(nothing, HALF)).read_text()
    assert "Nothing was computed." in text
    assert "did not count" not in text
    assert headline(quiet_report()) == "This session did not count; use count=True."


def test_rows_of_layers_are_those_with_exceptions():
    rows = where_rows(make_report())
    assert [row["layer"] for row in rows] == ["net.a", "net.b", "optimizer"]
    division = rows[-1]["cells"][2]
    assert division == ("64", 100)
    assert rows[0]["cells"][2] == ("", 0)
