"""Verdicts and sentences of published claims, from their data files alone (law)."""

from __future__ import annotations

import json

import pytest

from ipu.experiments.cli import main
from ipu.experiments.lab.catalogue import catalogue
from ipu.experiments.lab.report import write_report
from ipu.experiments.lab.result import to_csv
from ipu.experiments.published.claim import Claim, equal, published, same_digits, within
from ipu.run.verdict import Effect
from tests.experiments.readers.pages import Reading, Table, rows_of, sections_of
from tests.experiments.readers.published import NO, OPEN, READERS, YES, read_verdicts

#: They take more than a few seconds, quick runs too.
SLOW = {"three_precisions", "square_root_errors", "heat_slopes"}
NAMES = [pytest.param(name, marks=[pytest.mark.tier("full")] if name in SLOW else [])
         for name in READERS]


@pytest.mark.parametrize("name", NAMES)
def test_the_answer_follows_from_the_data(name, tmp_path):
    assert main(["run", name, "--quick", "--out", str(tmp_path)]) == 0
    page = write_report(tmp_path).read_text(encoding="utf-8")
    answer, _, rows = sections_of(page)[name]
    parameters = json.loads((tmp_path / name / "meta.json").read_text())["parameters"]
    reading = Reading(answer)
    read_verdicts(reading, Table(rows), parameters)
    READERS[name](reading, Table(rows), parameters)
    reading.is_read()


def test_each_claim_has_a_reader():
    rooms = {name for name, entry in catalogue().items() if entry.room.endswith("published")}
    assert rooms == set(READERS)


def row_of(answer, part="first"):
    """A comparison that comes out so."""
    return {
        "yes": same_digits(part, "value", "1.25", 1.251),
        "no": equal(part, "value", 16.0, 64.0),
        "undecided": within(part, "slope", "1/2", 0.4, 0.6, Effect(0.5, 0.2)),
    }[answer]


@pytest.mark.parametrize(("answers", "missing", "verdict"), [
    (("yes", "yes"), "", YES), (("yes", "no"), "", NO), (("undecided", "no"), "", NO),
    (("yes", "undecided"), "", OPEN), (("yes",), "the order", OPEN), (("no",), "the order", OPEN),
    ((), "", OPEN),
])
@pytest.mark.parametrize("is_alone", [True, False])
def test_made_up_verdicts(answers, missing, verdict, is_alone):
    rows = [row_of(answer) for answer in answers]
    claims = [Claim("first", "", "", "", missing)]
    if not is_alone:
        claims.append(Claim("second", "", "", ""))
        rows.append(row_of("no", "second"))
    result = published(claims, rows, "It ends.", "c=f16", ())
    assert result.answer.startswith(verdict if is_alone else f"first: {verdict}; second: {NO}.")
    reading = Reading(result.answer)
    read_verdicts(reading, Table(rows_of(to_csv(rows))) if rows else Table([]), result.parameters)
    reading.is_read()
