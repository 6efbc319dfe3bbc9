"""The page of `--compare`: every answer and number of its trials from pairs.csv alone.

Made-up runs too, where the answer must be no, or that it cannot be told (golden).
"""

from __future__ import annotations

import base64
import html
import re

import numpy as np
import pytest
from scipy.stats import binomtest

from ipu.run.advising import advise
from ipu.run.endpoints import Endpoint, Outcome
from ipu.run.judging import Declaration
from ipu.run.pages.comparison import Compared, write_comparison
from ipu.run.pages.page import write_run
from ipu.run.paired import Comparison, PairedJob, compare_pairs
from ipu.run.ways import Way
from tests.experiments.readers.comparisons import read_first_pair
from tests.experiments.readers.pages import Reading, agrees, rows_of
from tests.experiments.readers.pairs import answer, by_chance, needed, student
from tests.ipu.run.runs import make_report

MARGIN = 0.01
NOISE = np.random.default_rng(7).standard_normal((3, 12))
CASES = {
    # By what share of binary32's progress each pair ends worse: mean, noise; the answer.
    "as good": (0.0, 0.001, "as good"),
    "better": (-0.2, 0.01, "better"),
    "worse": (0.2, 0.01, "worse"),
    "cannot tell": (0.01, 0.02, "cannot tell"),
    "of unknown size": (0.012, 0.006, "cannot tell"),
}


def made_up(mean, noise, *, fall=1.0, wild=0.0, diverging=()):
    """Makes runs of pairs: a loss that falls from 2, by `fall`, and another end of the way."""

    def run(jobs):
        outcomes = []
        for job in jobs:
            end = 2 - fall + wild * float(NOISE[1, job.pair]) + 1e-9 * job.nudged
            if job.way:
                end += mean * abs(fall) + noise * float(NOISE[0, job.pair])
            if (job.way, job.pair) in diverging:
                end = float("nan")
            outcomes.append(Outcome([2 + 0.01 * job.pair, 1.9, 1.8, end, end, end]))
        return outcomes

    return run


def page_of(folder, run, pairs=12, endpoint=None):
    """The page of a comparison of two ways, and the pairs inside of it."""
    declared = Declaration(endpoint or Endpoint("progress", MARGIN), pairs)
    comparison = compare_pairs(
        declared, ("fp32", "fp16"), 0, run([PairedJob(0, 0), PairedJob(1, 0)]), run,
        tell=lambda text: None)
    write_comparison(
        folder, [Compared(way, None) for way in ("fp32", "fp16")], "train.py", comparison)
    page = (folder / "index.html").read_text(encoding="utf-8")
    data = re.search(r'href="data:text/csv;base64,([^"]+)" download="pairs.csv"', page)
    return html.unescape(page), data and base64.b64decode(data[1]).decode()


def cells_of(page):
    """The row of fp16 in the table of trials."""
    row = re.search(r"<tr>\s*<td[^>]*>(?:<code>)?fp16(?:</code>)?</td>(.*?)</tr>", page, re.S)[1]
    return [re.sub(r"<.*?>", "", cell).strip() for cell in re.findall(r"<td.*?</td>", row, re.S)]


def pairs_of(data, n):
    """(lost shares, falls, diverged of the way, of the reference) of the first n pairs."""
    of_way = {}
    for row in rows_of(data):
        of_way.setdefault(row["way"], []).append((row["start"], row["endpoint"]))
    ours, theirs = (np.array(of_way[way][:n]) for way in ("fp16", "fp32"))
    falls = theirs[:, 0] - theirs[:, 1]
    least = np.median(falls[np.isfinite(falls)]) / 10
    lost = (ours[:, 1] - theirs[:, 1]) / np.maximum(falls, least if least > 0 else np.nan)
    return lost, falls, ~np.isfinite(ours[:, 1]), ~np.isfinite(theirs[:, 1])


def read(page, data):
    """The answer, with each number of its row computed again."""
    told, note, worse_by, bounds, pairs, diverged = cells_of(page)
    lost, falls, ours, theirs = pairs_of(data, int(pairs))
    assert diverged == f"{ours.sum()} / {theirs.sum()}"
    alone, other = int((ours & ~theirs).sum()), int((theirs & ~ours).sum())
    fell = int((falls > 0).sum())
    if by_chance(fell, len(falls)) > 0.5**5:
        assert told == "fp32 itself does not train here"
        Reading(note).says("its loss falls in {} of {} runs", fell, len(falls))
        return told
    finite = lost[np.isfinite(lost)]
    word, mean, half, low, high = answer(finite, MARGIN)
    if alone:
        level = 0.5**5 if not other else 0.01
        is_worse = binomtest(alone, alone + other, 0.5, "greater").pvalue <= level
        assert told == ("worse" if is_worse else "cannot tell")
        assert note.startswith(f"{ours.sum()} of {len(lost)} diverge")
        return told
    assert told == word
    reading = Reading(f"{worse_by}; {bounds}")
    reading.says("{} % ± {} %; {} % to {} %", 100 * mean, 100 * student(finite), 100 * low,
                 100 * high)
    assert half == student(finite)
    if word == "cannot tell":
        assert ("worse, size undecided" in note) == (low > 0)
        number = needed(finite, MARGIN)
        assert (str(number) if number else "no number of pairs") in note
        return word
    sign, number = {"as good": ("at most", high), "worse": ("at least", low),
                    "better": ("at least", -high)}[word]
    assert agrees(re.search(rf"{sign} (\S+) %", note)[1], 100 * number)
    return word


@pytest.mark.parametrize("name", CASES)
def test_the_answer_follows_from_the_pairs(name, tmp_path):
    mean, noise, expected = CASES[name]
    assert read(*page_of(tmp_path, made_up(mean, noise, wild=0.001))) == expected


def test_a_reference_that_does_not_train_judges_nothing(tmp_path):
    told = read(*page_of(tmp_path, made_up(0.0, 0.01, fall=-0.3, wild=0.2)))
    assert told == "fp32 itself does not train here"


def test_runs_that_diverge_are_counted_and_not_averaged(tmp_path):
    few = made_up(0.0, 0.001, wild=0.001, diverging={(1, pair) for pair in range(2)})
    assert read(*page_of(tmp_path / "some", few)) == "cannot tell"
    most = made_up(0.0, 0.001, wild=0.001, diverging={(1, pair) for pair in range(12)})
    assert read(*page_of(tmp_path / "most", most)) == "worse"


def test_no_pairs_and_no_verdict(tmp_path):
    """Fewer than five pairs, and runs that are one run again and again."""
    page, data = page_of(tmp_path / "few", made_up(0.2, 0.01, wild=0.001), pairs=4)
    assert data is None
    assert "No verdict: pairs=4 is fewer than 5" in page


@pytest.mark.parametrize("column", [2, 3])
def test_a_number_that_is_not_the_data_s_is_noticed(column, tmp_path):
    page, data = page_of(tmp_path, made_up(0.2, 0.01, wild=0.001))
    cell = cells_of(page)[column]
    wrong = re.sub(r"\d", lambda digit: str((int(digit[0]) + 1) % 10), cell, count=1)
    assert page.count(cell) >= 1
    with pytest.raises(AssertionError):
        read(page.replace(cell, wrong), data)


# Pair 0 ---------------------------------------------------------------------------------------


def first_pair(folder):
    """A comparison of three runs whose reports differ, each with its page beside."""
    calm = make_report() | {"losses": [2.0, 1.5, 1.25, 1.0], "births": [], "first": [],
                            "swallowed": {}, "loss_scale": {}, "constants": []}
    harmed = make_report() | {"losses": [2.0, 1.9, 1.8, 1.7, 1.6]}
    names = ("results", "OVERFLOW", "INVALID", "DIVBYZERO", "UNDERFLOW", "subnormals")
    many = calm | {
        "layers": {f"l{i}": {"forward": dict.fromkeys(names, (i + 1) * (i % 3))}
                   for i in range(70)},
        "units": [{**row, "cycles": 777} for row in calm["units"]]}
    runs = []
    for way, report in (("fp32", calm), ("fp16", harmed), ("bf16", many)):
        write_run(folder / way, report, advise(report, Way.parse(way)))
        runs.append(Compared(way, report, "", f"{way}/index.html"))
    declared = Declaration(Endpoint("progress", MARGIN), 1)
    comparison = Comparison(declared, ("fp32", "fp16", "bf16"), 0, [[], [], []])
    return write_comparison(folder, runs, "train.py", comparison).read_text(encoding="utf-8")


def test_the_tables_of_pair_0_follow_from_the_reports(tmp_path):
    assert read_first_pair(first_pair(tmp_path)) == ["fp32", "fp16", "bf16"]


@pytest.mark.parametrize("place", range(3))
def test_a_number_of_pair_0_that_is_not_the_reports_is_noticed(place, tmp_path):
    page = first_pair(tmp_path)
    marks = ("l68, forward", "<code>fp16</code></td>", "75")
    last = page.index(marks[place]) + len(marks[place])
    at = last + re.search(r">[^<\d]*(\d)", page[last:]).start(1)
    wrong = page[:at] + str((int(page[at]) + 1) % 10) + page[at + 1 :]
    with pytest.raises(AssertionError):
        read_first_pair(wrong)
