"""The table of the source documents' features is what the tests say (law)."""

from __future__ import annotations

import re
from itertools import groupby

import pytest

from tests.mutants import is_another_program
from tests.mutate import Tree
from tests.rows import RowMutant, row_mutants
from tests.sources import BUILT, NOWHERE, OPEN, PAGE, ROOT, TESTED, in_step, marks, rows
from tests.tiers import reaches

TEXT = PAGE.read_text(encoding="utf-8")
#: How many rows each document has.
SIZES = {"S0": 74, "S1": 29, "S2": 42, "S3": 41, "S4": 56, "X": 11}


def test_the_table_has_every_row_once_and_in_order():
    results = [row.identity for row in rows(TEXT)]
    assert results == [f"{d}-{n:02}" for d, size in SIZES.items() for n in range(1, size + 1)]


def test_marks_and_table_are_in_step():
    identities = {row.identity for row in rows(TEXT)}
    assert marks().keys() <= identities
    assert in_step(TEXT) == TEXT, "docs/sources.md is behind; run: python -m tests.sources"


def test_what_is_built_has_a_place_and_a_test():
    for row in rows(TEXT):
        assert "issue" not in row.feature, f"{row.identity} says who asked for it, not what it is"
        if row.status in (BUILT, TESTED):
            assert row.place != NOWHERE, f"{row.identity} has tests; say where it lives"
            assert row.tests != NOWHERE
        if row.status == OPEN:
            assert row.tests == NOWHERE
        for place in row.place.split(", ") if row.place != NOWHERE else ():
            assert (ROOT / place.partition("::")[0]).exists(), f"{row.identity}: {place} is gone"


def test_every_mutant_of_a_row_changes_the_code_and_has_a_marked_test():
    tests = marks()
    for entry in row_mutants():
        assert is_another_program(entry.mutant, (ROOT / entry.path).read_text(encoding="utf-8"))
        assert entry.test in tests[entry.row], f"{entry.row}: {entry.test} does not carry its mark"
    order = [entry.row for entry in row_mutants()]
    assert order == sorted(set(order))


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    return Tree(tmp_path_factory.mktemp("rows"))


def chosen() -> list[RowMutant]:
    """Of the rows of each document every twelfth in the full tier, all in the deep one."""
    by_document = groupby(row_mutants(), lambda entry: entry.row.partition("-")[0])
    step = 1 if reaches("deep") else 12
    return [entry for _, entries in by_document for entry in list(entries)[::step]]


@pytest.mark.tier("full")
@pytest.mark.parametrize("entry", chosen(), ids=lambda entry: entry.row)
def test_the_named_test_fails_under_the_mutant_of_a_row(entry, tree):
    """Rows of a front end are tried where its framework is installed."""
    if not entry.can_run:
        pytest.skip(f"{entry.needs} is not installed")
    tree.apply(entry.mutant)
    try:
        name, enough = tree.run([entry.test], 300.0)
    finally:
        tree.restore(entry.mutant)
    assert name is not None or not enough, f"{entry.test} passes with {entry.mutant}"
    assert re.match(re.escape(entry.test), name or entry.test)
