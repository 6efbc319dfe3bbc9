"""The table of ways that were tried, from the runs inside of the page; made-up runs (golden)."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

from ipu.run.advising import advise
from ipu.run.endpoints import Endpoint, Outcome
from ipu.run.judging import Declaration
from ipu.run.pages.page import write_run
from ipu.run.ways import Way
from tests.experiments.readers.pages import WholePage
from tests.experiments.readers.trials import read_trials
from tests.ipu.run.runs import make_report, trained_report

BASE = Way.parse("fp16")
NOISE = np.random.default_rng(11).standard_normal((4, 14))
#: By how much of binary32's progress each way ends worse: mean, noise; NaN: all its runs diverge.
WAYS = {
    "as good": {"fp16": (0.3, 0.01), "fp16+sr": (0.0, 0.001), "mixed": (0.0, 0.001)},
    "worse": {"fp16": (0.3, 0.01), "fp16+sr": (0.2, 0.01)},
    "better": {"fp16": (0.3, 0.01), "fp16+sr": (-0.2, 0.01)},
    "cannot tell": {"fp16": (0.02, 0.01), "fp16+sr": (0.0, 0.03)},
    "diverges": {"fp16": (math.nan, 0.0), "fp16+sr": (0.0, 0.001)},
    "three": {"fp16": (0.3, 0.01), "fp16+sr": (0.0, 0.0025), "mixed": (0.0, 0.006),
              "mixed+sr": (0.0, 0.001)},
}
ANSWERS = {
    "as good": {"fp16": "worse", "fp16+sr": "as good", "mixed": "as good"},
    "worse": {"fp16": "worse", "fp16+sr": "worse"},
    "better": {"fp16": "worse", "fp16+sr": "better"},
    "cannot tell": {"fp16": "cannot tell", "fp16+sr": "cannot tell"},
    "diverges": {"fp16": "worse", "fp16+sr": "as good"},
    "three": {"fp16": "worse", "mixed+sr": "as good"},
}


def runs_of(ways, fall=1.0, score=False):
    """Makes runs: a loss that falls from 2, and of a way the share of it that is lost."""
    def run(way, seed):
        mean, noise = ways.get(str(way), (0.0, 0.0))
        row = 1 + list(ways).index(str(way)) if str(way) in ways else 0
        end = 2 - fall + mean * abs(fall) + noise * float(NOISE[min(row, 3), seed])
        end += 1e-4 * seed if fall > 0 else 0.3 * float(NOISE[0, seed])
        report = trained_report()
        report["units"] = [{"cycles": 20 if "mixed" in str(way) else 10}]
        report["layers"] = {"a": {"forward": {
            name: 1234 * (str(way) == "fp16") for name in (
                "results", "OVERFLOW", "INVALID", "DIVBYZERO", "UNDERFLOW", "subnormals")}}}
        losses = [2.0 + 0.01 * seed, 1.9, 1.8, end, end, end]
        return Outcome(() if score else losses, report, score=-end if score else None)

    return run


def written(folder, ways, *, fall=1.0, endpoint=None):
    declared = Declaration(endpoint or Endpoint("progress", 0.01), 12)
    tried = [way for way in ways if way != "fp16"]
    report = make_report()
    advised = advise(
        report, BASE, runs_of(ways, fall, score=endpoint is not None), tried, declared)
    return write_run(folder, report, advised).read_text(encoding="utf-8"), advised


def read(text):
    page = WholePage(text)
    (table,) = [table for table in page.tables if table[0][1] == "beside binary32"]
    return read_trials(page, table), table


@pytest.mark.parametrize("name", WAYS)
def test_the_answers_follow_from_the_runs(name, tmp_path):
    text, advised = written(tmp_path, WAYS[name])
    answers, table = read(text)
    assert answers.items() >= ANSWERS[name].items()
    in_terminal = (tmp_path / "report.txt").read_text(encoding="utf-8")
    for row in table:
        assert re.search(r"\s+".join(map(re.escape, filter(None, row))), in_terminal), row
    assert (tmp_path / "trials.csv").read_text() == WholePage(text).files["trials.csv"]
    is_good = [str(trial.judged.answer) in ("as good", "better") for trial in advised.trials]
    assert is_good == sorted(is_good, reverse=True)


def test_binary32_that_does_not_train_judges_nothing(tmp_path):
    text, _ = written(tmp_path, WAYS["as good"], fall=-0.3)
    answers, _ = read(text)
    assert answers["fp16"] == "binary32 itself does not train here"


def test_scores_are_judged_in_their_units(tmp_path):
    text, _ = written(tmp_path, WAYS["better"], endpoint=Endpoint("highest", 0.05))
    answers, _ = read(text)
    assert answers == {"fp16": "worse", "fp16+sr": "better", "fp32": "reference"}


@pytest.mark.parametrize("column", range(1, 11))
def test_a_number_that_is_not_the_data_s_is_noticed(column, tmp_path):
    text, _ = written(tmp_path, WAYS["worse"])
    _, table = read(text)
    (row,) = [row for row in table if row[0] == "fp16"]
    name = "<code>fp16</code></td>"
    place = text.index(name) + len(name)
    cells = list(re.finditer(r"<td[^>]*>([^<]*)</td>", text[place:]))[column - 1]
    assert cells[1] == row[column]
    digit = re.search(r"\d(?=\D*$)", cells[1])
    last = place + cells.start(1) + digit.start()
    wrong = text[:last] + str((int(text[last]) + 1) % 10) + text[last + 1 :]
    with pytest.raises(AssertionError):
        read(wrong)
