"""Cycles of element-wise operations: poplibs' estimators by hand (golden)."""

from __future__ import annotations

import pytest

from fpsim import BFLOAT16, BINARY16, BINARY32
from ipu.machine.vector import RATES, thread_cycles


@pytest.mark.parametrize(
    ("verb", "single", "half"),
    [("add", 5, 3), ("divide", 50, 63), ("sqrt", 50, 69), ("exp", 30, 12), ("log", 60, 12),
     ("relu", 15, 9), ("sigmoid", 60, 18), ("maximum", 15, 12)],
)
def test_nine_elements_take_five_vectors_of_singles_and_three_of_halves(verb, single, half):
    assert thread_cycles(verb, BINARY32, 9) == single
    assert thread_cycles(verb, BINARY16, 9) == thread_cycles(verb, BFLOAT16, 9) == half


def test_nothing_takes_no_cycles():
    assert {thread_cycles(verb, fmt, 0) for verb in RATES for fmt in (BINARY16, BINARY32)} == {0}
