"""Several ways on one page (golden)."""

from __future__ import annotations

import csv
import statistics
from base64 import b64encode

import pytest

from ipu.run.endpoints import PROGRESS, Outcome
from ipu.run.judging import DEFAULT, judge
from ipu.run.pages.comparison import HEADS, Compared, summary_rows, write_comparison
from ipu.run.paired import Comparison
from tests.experiments.accessible import NARROW, faults, walk
from tests.ipu.run.runs import make_report, quiet_report


def compared():
    """fp16 is worse by 0.5 of a progress of 2, in five pairs."""
    ways, runs = ("fp32", "fp16", "bf16"), [1.0, 1.5]
    outcomes = [[Outcome([3.0] + [end + 0.01 * n] * 4) for n in range(5)] for end in runs]
    comparison = Comparison(DEFAULT, ways, 0, [*outcomes, [Outcome(error="exit status 2")]])
    comparison.judged[1] = judge(PROGRESS, outcomes[1], outcomes[0])
    comparison.notes.append("noise floor: 0 %")
    return comparison


def test_the_page_is_read_light_and_dark_and_used_by_keys(browser, tmp_path):
    page = write_comparison(tmp_path, [], "train.py", compared())
    assert (faults(browser, page), walk(browser, page, NARROW)) == ([], [])


def test_the_answers_follow_from_the_table_of_pairs(tmp_path):
    """Recomputed from pairs.csv alone."""
    page = write_comparison(tmp_path, [], "train.py", compared()).read_text(encoding="utf-8")
    rows = list(csv.DictReader((tmp_path / "pairs.csv").read_text().splitlines()))
    ends = {
        way: [float(r["endpoint"]) for r in rows if r["way"] == way] for way in ("fp32", "fp16")
    }
    starts = [float(r["start"]) for r in rows if r["way"] == "fp32"]
    fell = [start - end for start, end in zip(starts, ends["fp32"], strict=True)]
    least = 0.1 * statistics.median(fell)
    lost = [
        (a - b) / max(f, least)
        for a, b, f in zip(ends["fp16"], ends["fp32"], fell, strict=True)
    ]
    assert lost == pytest.approx([float(r["difference"]) for r in rows if r["way"] == "fp16"])
    assert f"+{100 * statistics.mean(lost):.2g} % ± " in page
    assert "worse" in page
    assert DEFAULT.digest in page
    assert "Noise floor: 0 %." in page


def test_a_page_has_every_way_and_what_it_printed(tmp_path):
    runs = [
        Compared("fp32", quiet_report(), "accuracy 91 %\n"),
        Compared("fp16", make_report(), "\n".join(map(str, range(100))), "fp16/index.html"),
        Compared("bf16", None, "", "", 2),
    ]
    (tmp_path / "fp16").mkdir()
    (tmp_path / "fp16/index.html").write_text("the page of fp16")
    page = write_comparison(tmp_path, runs, "train.py", compared())
    text = page.read_text(encoding="utf-8")
    carried = b64encode(b"the page of fp16").decode()
    for words in ("train.py: side by side", "accuracy 91 %",
                  f'href="data:text/html;base64,{carried}" download="fp16-index.html"',
                  "exited with status 2", "64 ÷ 0"):
        assert words in text
    assert text.count("exited with status") == 1
    assert "\n50\n" not in text  # only the last lines of a long output


def test_a_row_for_each_way():
    rows = summary_rows([Compared("fp16", make_report()), Compared("bf16", None, status=2)])
    assert all(len(row) == len(HEADS) for row in rows)
    assert rows[0][0] == "fp16"
    assert rows[0][HEADS.index("÷ 0")] == "64"
    assert rows[0][HEADS.index("swallowed")] == "75.0%"
    assert rows[0][HEADS.index("cycles")] == "× 1.00"
    assert rows[1][1] == "exit status 2"
    uncounted = make_report() | {"units": []}  # as of a target without a ledger
    assert summary_rows([Compared("fp16", uncounted)])[0][HEADS.index("cycles")] == "–"
