"""Every kind of page that the command line writes has a reader; small pages have theirs here (law).

A page of figures alone would need none; none is.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import ipu.run.pages
from ipu.experiments.cli import main
from ipu.experiments.lab.result import Result, rows_from_csv
from ipu.experiments.lab.study import study
from ipu.experiments.lab.training_panels import exception_table
from ipu.experiments.lab.variants import Variant
from ipu.experiments.published.gallery import write_gallery
from ipu.feed.data import digits
from ipu.learn.nn import dense
from ipu.learn.optim import SGD
from ipu.learn.policy import FP16, FP32
from ipu.ops import reshape
from tests.experiments.readers import (
    beside,
    comparisons,
    plans,
    run_pages,
    sheets,
    trainings,
    trials,
)
from tests.experiments.readers.pages import Reading, Table, WholePage, agrees, sections_of
from tests.experiments.readers.published import NO, OPEN, YES
from tests.experiments.readers.runs import lost_updates, read_run
from tests.ipu.run.runs import make_report

TEMPLATES = Path(ipu.run.pages.__file__).parent / "templates"


def read_study_page(text, name):
    """The answer of a study and its table of exceptions."""
    answer, note, rows = sections_of(text)[name]
    reading, table = Reading(answer), Table(rows)
    trainings.read_study(reading, table)
    reading.is_read()
    page = WholePage(text)
    assert answer.startswith(page.tables[0][1][1].removesuffix(" quick run"))
    (cells,) = [table for table in page.tables if table[0][0] == "layer, phase"]
    read_exceptions(cells, table)
    assert note.startswith("Share of results that underflowed")


def read_exceptions(cells, table):
    """Each cell of the table by layer and phase."""
    names = cells[0][1:]
    raised = dict.fromkeys(
        (row["layer"], row["phase"]) for row in table.where(part="exceptions")
        if any(row[flag] for flag in ("OFLO", "INV", "DIV0", "underflow")))
    if not raised:
        assert cells[1:] == [["nothing raised", *[""] * len(names)]]
        return
    assert [tuple(row[0].rsplit(", ", 1)) for row in cells[1:]] == list(raised)
    for place, *shares in cells[1:]:
        layer, phase = place.rsplit(", ", 1)
        for name, cell in zip(names, shares, strict=True):
            rows = table.where(part="exceptions", policy=name, layer=layer, phase=phase)
            if not rows:
                assert cell == ""
                continue
            (row,) = rows
            share = 100 * row["underflow"] / max(row["results"], 1)
            text, *loud = cell.split(", ")
            assert text == "–" if not share else (text == "< 0.1%" and share < 0.1) or agrees(
                text.rstrip("%"), share)
            assert loud == [f"{flag} {row[flag]:.0f}" for flag in ("OFLO", "INV", "DIV0")
                            if row[flag]]


def read_notebook(text, report):
    """The part of a notebook, from the report that is shown."""
    page = WholePage(text)
    losses = [float(loss) for loss in report["losses"]]
    first, headline = [piece for _, _, piece in page.texts if piece][:2]
    reading = Reading(first)
    reading.skips(report["policy"], report["target"])
    reading.says("{} steps", report["steps"])
    if losses:
        reading.says("loss {} → {}", losses[0], losses[-1])
    reading.is_read()
    read_run(f"   {headline}", report)
    run_pages.read_layers(page.tables[0][1:], report)


def read_gallery(text, folder):
    """Verdicts of published claims, counted, and their tables from each claim's data."""
    page = WholePage(text)
    verdicts = [row[1] for row in page.tables[0][1:]]
    reading = Reading(page.text("Written ").partition(": ")[2].partition(". Figures")[0])
    for verdict in (NO, OPEN, YES):
        reading.says(f"{{}} {verdict}", verdicts.count(verdict))
    reading.is_read()
    shown = [table[1:] for table in page.tables[1:]]
    for (_, _, place), lines in zip(page.tables[0][1:], shown, strict=True):
        name, part = place.removesuffix(" (quick run)").split(", ", 1)
        rows = rows_from_csv((folder / name / "data.csv").read_text())
        assert lines == [
            [str(row[column]).removeprefix("'") for column in (
                "quantity", "published", "ours", "agrees")]
            for row in rows if row.get("row") == "comparison" and row["part"] == part]


#: The reader of each template.
READERS = {
    "report": sections_of, "study": read_study_page, "run": run_pages.read_run_page,
    "trials": trials.read_trials, "compare": comparisons.read_first_pair,
    "plan": plans.read_plan_page, "sheet": sheets.read_sheet, "beside": beside.read_beside,
    "sweep": "tests.experiments.readers.test_sweeps", "published": read_gallery,
    "notebook": read_notebook,
}


def test_every_template_has_a_reader():
    bases = {"page", "parts"}
    kinds = {path.name.partition(".")[0] for path in TEMPLATES.glob("*.jinja")} - bases
    assert kinds == set(READERS) - {"study", "trials"}


def network(x):
    return dense(reshape(x, shape=(x.shape[0], 64)), 10, "output")


@pytest.fixture(scope="module")
def page_of_a_study(tmp_path_factory):
    out = tmp_path_factory.mktemp("study")
    ways = (Variant("FP32", FP32), Variant("FP16", FP16), Variant("FP16 + SR", FP16, True))
    page = study("mine", network, digits(), SGD(0.5), ways, epochs=1, batch=300, seeds=5, out=out)
    return page.read_text(encoding="utf-8")


def test_the_page_of_a_study_follows_from_its_data(page_of_a_study):
    read_study_page(page_of_a_study, "mine")


def test_a_number_of_a_study_that_is_not_the_data_s_is_noticed(page_of_a_study):
    for pattern in (r"Test accuracy: FP32: \d+(\.\d)", r"[\d.]+(\d)%</td>"):
        match = re.search(pattern, page_of_a_study)
        last = match.end(1) - 1
        wrong = page_of_a_study[:last] + str((int(page_of_a_study[last]) + 5) % 10) + (
            page_of_a_study[last + 1 :])
        with pytest.raises(AssertionError):
            read_study_page(wrong, "mine")


@pytest.mark.parametrize("raised", [0, 3, 2000])
def test_made_up_exceptions(raised):
    rows = [
        {"part": "exceptions", "policy": policy, "layer": layer, "phase": phase, "results": 4000,
         "underflow": raised * (policy == "b"), "OFLO": raised // 3, "INV": 0, "DIV0": 0}
        for policy in "ab" for layer in ("one", "two") for phase in ("forward", "gradient")
    ]
    table = exception_table(Result(rows, "", ""), ["a", "b"])
    read_exceptions([table.heads, *table.lines], Table(rows))


def test_a_report_in_a_notebook_follows_from_its_data():
    for change in ({}, {"losses": [2.0, 1.5], "births": [], "first": [], "constants": [],
                        "loss_scale": {}, "swallowed": {}}):
        report = make_report() | change
        text = type(make_report())(report)._repr_html_()
        read_notebook(text, report)
        wrong = text.replace(">64<", ">65<")
        assert wrong != text
        with pytest.raises(AssertionError):
            read_notebook(wrong, report)
    assert lost_updates(make_report())[0] == 16


def test_the_gallery_follows_from_each_claim_s_data(tmp_path):
    for name in ("bf16_steps", "chunked_sums"):
        assert main(["run", name, "--quick", "--out", str(tmp_path)]) == 0
    assert len(write_gallery(tmp_path)) >= 2
    page = (tmp_path / "published.html").read_text(encoding="utf-8")
    read_gallery(page, tmp_path)
    wrong = re.sub(r": (\d+) REPRODUCED", ": 9 REPRODUCED", page)
    assert wrong != page
    with pytest.raises(AssertionError):
        read_gallery(wrong, tmp_path)
