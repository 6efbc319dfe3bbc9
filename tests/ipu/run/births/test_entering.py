"""What numbers from outside lose on their way into a format (law)."""

from __future__ import annotations

import numpy as np

from fpsim import BINARY16, Context
from ipu.run.births.births import Births
from ipu.run.births.kinds import DATA_BEYOND, DATA_DIGITS, DATA_ZERO, INTEGERS, SATURATED


def enter(births, values):
    """Numbers of the host, in binary16."""
    array = Context(BINARY16).array(np.clip(values, -65504, 65504))
    births.entered(np.asarray(values, np.float64), array)
    return array


def test_whole_numbers_beyond_the_significand_are_rounded():
    births = Births()
    enter(births, np.arange(2040.0, 2060.0))
    (birth,) = births
    assert (birth.kind, birth.count, birth.detail) == (INTEGERS, 6, "2059")
    enter(births, np.array([2049.5, 1.0]))  # no whole number
    enter(births, np.arange(2048.0))
    assert birth.count == 6


def test_data_that_their_format_does_not_hold_are_born_on_entry():
    births = Births()
    x = enter(births, np.array([[1.0, 2e5], [2.0, 3e5]]))
    (birth,) = births
    assert (birth.kind, birth.count, birth.results) == (DATA_BEYOND, 2, 4)
    assert birth.detail == "up to 3e+05"
    assert births.of(x) == {SATURATED: birth}
    assert birth.is_harmless  # nobody has computed with them
    births.see("mul", ("net", "forward", 0), Context(BINARY16).array([[1.0, 2], [3, 4]]), (x,), {})
    assert not birth.is_harmless


def test_data_lose_their_digits_where_neighbours_are_further_apart_than_they():
    births = Births()
    rng = np.random.default_rng(1)
    columns = np.stack([rng.normal(1000, 0.2, 64), rng.normal(0, 1, 64)], axis=1)
    enter(births, columns)
    (birth,) = births
    assert (birth.kind, birth.count) == (DATA_DIGITS, 64)
    enter(births, columns - [1000, 0])
    enter(births, np.full((8, 2), 1000.1))  # which do not differ
    enter(births, columns[:3])  # too few to judge
    assert birth.count == 64
    enter(births, columns * [1e-13, 1e-9])
    assert [b.kind for b in births] == [DATA_DIGITS, DATA_ZERO]
