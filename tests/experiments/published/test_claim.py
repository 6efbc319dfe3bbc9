"""Verdicts: what decides them, and that undecided or incomplete claims are not decided."""

from __future__ import annotations

from fractions import Fraction

import pytest

from ipu.experiments.lab.result import rows_from_csv
from ipu.experiments.published.claim import (
    Claim,
    Verdict,
    equal,
    printed,
    published,
    same_digits,
    tables,
    verdicts,
    within,
)
from ipu.run.verdict import Effect

CLAIM = Claim("sum", "The sum is 1.5.", "a paper", "one addition")


def verdict_of(*rows, claim=CLAIM):
    return verdicts(published([claim], rows, "", "c=f16", ()))[claim.part]


@pytest.mark.parametrize(
    ("value", "text"),
    [(3.3335961e-6, "3.333596e-06"), (-1.859011e30, "-1.85901e30"), (12.0, "12"),
     (Fraction(1, 3), "0.333333333333333333333"), (1.0e-7, "1.0e-7")],
)
def test_numbers_are_shown_as_the_printed_ones(value, text):
    assert printed(value, text) == text


def test_what_is_no_printed_number_is_refused():
    with pytest.raises(ValueError, match="like='nearly 2 %' is no printed number"):
        printed(1.0, "nearly 2 %")


def test_every_printed_digit_decides():
    assert verdict_of(same_digits("sum", "s", "1.50", 1.5049)) is Verdict.REPRODUCED
    assert verdict_of(same_digits("sum", "s", "1.50", 1.5051)) is Verdict.NOT_REPRODUCED
    rows = [equal("sum", "s", 4096.0, 4096.0), equal("sum", "t", 16.0, 64.0)]
    assert verdict_of(*rows) is Verdict.NOT_REPRODUCED


@pytest.mark.parametrize(
    ("value", "uncertainty", "verdict"),
    [(0.5, 0.05, "REPRODUCED"), (0.5, 0.2, "CANNOT BE TOLD"), (0.8, 0.15, "NOT REPRODUCED"),
     (0.62, 0.1, "CANNOT BE TOLD")],
)
def test_an_interval_decides_only_as_a_whole(value, uncertainty, verdict):
    row = within("sum", "slope", "0.5 ± 0.1", 0.4, 0.6, Effect(value, uncertainty))
    assert verdict_of(row) == verdict


def test_nothing_is_decided_where_the_set_up_is_open_or_nothing_was_compared():
    open_ = Claim("sum", "", "", "", missing="the inputs")
    for text in ("1.5", "2.5"):
        assert verdict_of(same_digits("sum", "s", text, 1.5), claim=open_) == "CANNOT BE TOLD"
    assert verdict_of() == "CANNOT BE TOLD"


def test_a_stored_result_has_the_verdict_and_the_table_of_the_fresh_one():
    row = same_digits("sum", "s", "1.50", 1.5)
    fresh = published([CLAIM], [row], "", "c=f16", ())
    loaded = published([CLAIM], rows_from_csv(fresh.to_csv()), "", "c=f16", ())
    assert verdicts(loaded) == verdicts(fresh)
    assert tables(loaded) == tables(fresh)
    (table,) = tables(fresh)
    assert table.lines == [["s", "1.50", "1.50", "yes"]]
    assert "a paper" in table.note
