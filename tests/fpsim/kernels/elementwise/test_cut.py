"""Sums cut toward zero, against fractions: both signs of what is lost, and sums that are exact."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from fpsim.kernels.elementwise.cut import cut_sum
from fpsim.kernels.lanes.vectors import as_float
from fpsim.records.formats import BFLOAT16, BINARY16, E5M2
from tests.fpsim.kernels.on_lanes import on_floats


def cut_to_24_digits(exact: Fraction) -> Fraction:
    """Toward zero, as binary32 spaces its normal numbers."""
    if exact == 0:
        return exact
    unit = Fraction(2) ** int(np.frexp(float(exact))[1] - 24)  # never at a power of two from below
    return int(exact / unit) * unit


@pytest.mark.parametrize("fmt", [BINARY16, BFLOAT16, E5M2], ids=str)
def test_a_sum_is_cut_and_its_loss_is_told(fmt):
    rng = np.random.default_rng(fmt.bits)
    p, n = fmt.precision, 2048
    x = rng.integers(1 << (p - 1), 1 << p, n) * 2.0 ** rng.integers(-6, 1, n)
    y = rng.integers(1 << (p - 1), 1 << p, n) * 2.0 ** rng.integers(-22, 1, n)
    x, y = (np.float32(v * rng.choice([-1, 1], n)) for v in (x, y))
    y[:16] = -x[:16]
    actual = on_floats(lambda u, v: as_float(cut_sum(u, v)[0]), x, y).view(np.float32)
    lost = on_floats(lambda u, v: as_float(cut_sum(u, v)[1]), x, y) != 0
    exact = [Fraction(float(u)) + Fraction(float(v)) for u, v in zip(x, y, strict=True)]
    assert [Fraction(float(s)) for s in actual] == [cut_to_24_digits(e) for e in exact]
    assert lost.tolist() == [Fraction(float(s)) != e for s, e in zip(actual, exact, strict=True)]
    assert lost.any() == (fmt.precision + 22 + 1 > 24)
    assert not lost.all()


def test_a_sum_beyond_the_lanes_stays_infinite():
    x = np.full(16, np.finfo(np.float32).max)
    actual = on_floats(lambda u, v: as_float(cut_sum(u, v)[0]), x, x).view(np.float32)
    assert (actual == np.inf).all()
