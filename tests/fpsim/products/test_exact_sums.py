"""Exact sums block by block: long rows, signs of zeros, what is no number (corners)."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import fpsim as fp
from fpsim.elementwise.inputs import to_odd
from fpsim.products import exact_sums as module
from fpsim.products.exact_sums import exact_sums
from fpsim.records.settings import Settings

HALF = Settings(fp.BINARY16)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(module, "_ROWS", 3)
    monkeypatch.setattr(module, "_ELEMENTS", 21)


def test_blocks_do_not_show():
    x = np.random.default_rng(0).standard_normal((8, 50)).astype(np.float32)
    x[:, 0] *= 2.0**40
    sums, special = exact_sums(x, HALF)
    assert not special
    assert sums.tolist() == [to_odd(sum(map(Fraction, row.tolist()))) for row in x]


@pytest.mark.parametrize("place", [0, 6, 7, 29])
def test_one_other_zero_makes_a_zero_positive(place):
    x = np.full((2, 30), -0.0, np.float32)
    assert np.signbit(exact_sums(x, HALF)[0]).all()
    x[1, place] = 0.0
    assert np.signbit(exact_sums(x, HALF)[0]).tolist() == [True, False]
    down = Settings(fp.BINARY16, fp.RTN)
    assert np.signbit(exact_sums(x, down)[0]).tolist() == [True, True]


def test_what_is_no_number_is_told_once_in_order():
    x = np.zeros((4, 40), np.float32)
    x[1, [5, 6, 20, 39]] = np.nan, np.inf, np.inf, -np.inf
    x[3, 39] = -np.inf
    sums, special = exact_sums(x, HALF)
    assert [v.tolist() for v in special.values()][1] == [-np.inf]
    assert np.isnan(special[1][0])
    assert special[1][1:].tolist() == [np.inf, -np.inf]
    assert list(special) == [1, 3]
    assert sums.tolist() == [0, 0, 0, 0]


def test_what_is_beside_an_infinity_is_not_rounded():
    context = fp.Context(fp.BINARY16)
    x = context.array([[np.inf, 2048.0, 1.0], [1.0, 2.0, 3.0]])
    assert context.sum(x, 1, "exact").values.tolist() == [np.inf, 6]
    assert context.flags == fp.Flags.NONE
    assert float(context.sum(x[0, 1:], None, "exact")) == 2048
    assert context.flags == fp.Flags.INEXACT
