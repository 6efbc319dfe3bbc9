"""Terms that sums absorb: which are lost, and which again and again (law)."""

from __future__ import annotations

import numpy as np
import pytest

from ipu.run.births.kinds import ABSORBED
from tests.ipu.run.births.desk import NET, Desk


def test_terms_that_are_absorbed_are_counted_but_for_masks():
    desk = Desk()
    desk.of("add", desk.array(2048.0, 2048.0, 1.0), desk.array(1.0, 0.0, 1.0))
    assert desk.rows() == [(ABSORBED, "add", 1)]
    assert next(iter(desk.births)).results == 2  # a zero is no term
    masks = Desk()
    score = masks.of("add", masks.array(1.0, 1.0), masks.array(-10000.0, 0.0))
    masks.of("exp", score, name="softmax")
    assert next(iter(masks.births)).is_harmless


def test_one_number_is_absorbed_where_it_is_added_to_its_last_sum():
    guard, count = Desk(), Desk()
    for norm in (300.0, 301.0, 302.0):  # what keeps a divisor from zero
        guard.of("add", guard.array(norm), guard.array(0.01))
    for norms in ((300.0, 8.0, 9.0, 16.0), (300.0, 9.0, 16.0, 8.0)):  # one is alike by chance
        guard.of("add", guard.array(*norms), guard.array(0.001))
    assert guard.rows() == []
    total = count.array(2047.0)
    for _ in range(4):
        total = count.of("add", total, count.array(1.0))
    assert count.rows() == [(ABSORBED, "add", 3)]
    assert next(iter(count.births)).repeated == 3


def test_a_large_number_is_no_last_sum_of_what_is_added_to_it():
    """As a parameter of 291 to which a layer's outputs are added: other ones in each step."""
    desk = Desk()
    for outputs in ((0.1, -0.1, 0.02), (-0.02, 0.05, 0.1), (0.04, 0.1, -0.1)):
        desk.of("add", desk.array(*outputs), desk.array(291.0))
    assert desk.rows() == []


def test_what_is_computed_twice_is_no_sum_of_its_last_sum():
    """A checkpoint's forward runs again, and a model is traced before its first step."""
    desk = Desk()
    for norms in ((3.0, 5.0), (4.0, 6.0), (7.0, 3.0)):
        for _ in range(2):
            desk.of("add", desk.array(*norms), desk.array(1e-5))
            desk.of("subtract", desk.array(*norms), desk.array(1e-5, 1e-5))
    assert {birth.repeated for birth in desk.births} == {0}


def test_terms_are_lost_beside_a_number_of_the_program():
    """As 1 - p of small p, where the number itself is no array; x + eps loses no term."""
    desk = Desk()
    births, terms = desk.births, desk.array(1e-4, 2e-4, 0.25, 0.0)
    births.see("aten.rsub", NET, desk.array(1.0, 1.0, 0.75, 1.0), (terms,), {})
    births.see("aten.add", NET, terms, (terms,), {})
    (birth,) = births
    assert (birth.kind, birth.count, birth.results, birth.repeated) == (ABSORBED, 2, 3, 0)


def test_terms_are_lost_again_where_they_are_added_to_the_last_sum():
    """A cube beside its x is lost once; what is added to a sum of sums, each time."""
    once, again = Desk(), Desk()
    for x in (1.0, 1.5, 1.25):
        once.of("add", once.array(x, x, 0.01), once.array(1e-4, 1e-4, 0.01))
    (birth,) = once.births
    assert (birth.count, birth.repeated) == (6, 0)
    total = again.array(2048.0, 4096.0, 1.0)
    for _ in range(3):
        total = again.of("add", total, again.array(1.0, 1.0, 1.0))
    (birth,) = again.births
    assert (birth.count, birth.repeated) == (6, 4)


def test_a_sum_of_its_own_results_is_running():
    """What it lost is among what its operands bring; so where they decay in between."""
    once, again = Desk(), Desk()
    once.of("add", once.array(2048.0, 1.0), once.array(0.5, 1.0))
    once.of("add", once.array(4096.0, 1.0), once.array(0.25, 1.0))
    total = again.array(2048.0, 1.0)
    for _ in range(3):
        total = again.of("add", total, again.array(0.5, 0.5))
        total = again.of("multiply", total, again.array(0.75, 0.75))
    rows = [next(iter(desk.births)).as_row() for desk in (once, again)]
    assert [row["running"] for row in rows] == [False, True]
    assert rows[0]["lost"] == pytest.approx(0.5 / 2048, rel=1e-5)


def test_the_line_of_lost_terms_is_the_one_that_loses_most():
    """Several lines of one layer add: the first loses one term, another one all, again and again.

    A line that loses as many, each beside another number, loses them once.
    """
    desk, ones = Desk(), np.ones(8)
    total = desk.array(*2048 * ones)
    for _ in range(3):
        desk.births.line = lambda: "a.py:3"
        desk.of("add", desk.array(2048, *ones[1:]), desk.array(*ones))
        desk.births.line = lambda: "a.py:4"
        total = desk.of("add", total, desk.array(*ones))
    (birth,) = desk.births
    assert (birth.line, birth.count) == ("a.py:4", 3 + 24)
    desk.births.line = lambda: "a.py:5"
    for size in (2050.0, 2052.0, 2054.0):
        desk.of("add", desk.array(*size * ones), desk.array(*ones / 2))
    assert birth.as_row()["line"] == "a.py:4"
