"""Reports count all failures and keep the first ten (law)."""

from __future__ import annotations

from itertools import count

from fpsim.judge.verify.report import KEPT, VerificationReport


def test_failures_are_counted_and_the_first_are_kept():
    report = VerificationReport("add", checked=30)
    drawn = count()
    report.fail(4, (f"first {i}" for i in range(4)))
    report.fail(20, (f"then {next(drawn)}" for _ in range(20)))
    assert (report.mismatches, len(report.failures)) == (24, KEPT)
    assert report.failures[3:5] == ["first 3", "then 0"]
    assert next(drawn) == KEPT - 4, "no more lines are written than are kept"


def test_a_part_is_added_with_its_notes():
    complete = VerificationReport("all", checked=2, notes={"skipped": 1})
    part = VerificationReport("part", "rows", 3, 1, ["row 7"], {"skipped": 2, "ignored": 5})
    complete.include(part)
    assert (complete.checked, complete.mismatches, complete.failures) == (5, 1, ["row 7"])
    assert str(complete) == "all: 5 vectors, 1 mismatches, 3 skipped, 5 ignored"
    assert str(part) == "part: 3 rows, 1 mismatches, 2 skipped, 5 ignored"
