"""The table of the source documents' features is what the tests say (law)."""

from __future__ import annotations

from tests.sources import BUILT, NOWHERE, OPEN, PAGE, ROOT, in_step, marks, rows

TEXT = PAGE.read_text(encoding="utf-8")
#: How many rows each document has.
SIZES = {"S0": 74, "S1": 29, "S2": 42, "S3": 41, "S4": 56, "X": 11}


def test_the_table_has_every_row_once_and_in_order():
    results = [row.identity for row in rows(TEXT)]
    assert results == [f"{d}-{n:02}" for d, size in SIZES.items() for n in range(1, size + 1)]


def test_marks_and_table_are_in_step():
    known = {row.identity for row in rows(TEXT)}
    assert marks().keys() <= known
    assert in_step(TEXT) == TEXT, "docs/sources.md is behind; run: python -m tests.sources"


def test_what_is_built_has_a_place_and_a_test():
    for row in rows(TEXT):
        if row.status == BUILT:
            assert row.place != NOWHERE, f"{row.identity} has tests; say where it lives"
            assert row.tests != NOWHERE
        if row.status == OPEN:
            assert row.tests == NOWHERE
        for place in row.place.split(", ") if row.place != NOWHERE else ():
            assert (ROOT / place.partition("::")[0]).exists(), f"{row.identity}: {place} is gone"
