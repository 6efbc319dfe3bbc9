"""Sums, quotients and roots cut toward zero, against fractions: what is lost, and what is exact."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from fpsim.kernels.elementwise.cut import cut_quotient, cut_root, cut_sum
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


def cut(function, *operands):
    """Values of a function on lanes, and where it has lost something."""
    values = on_floats(lambda *terms: as_float(function(*terms)[0]), *operands).view(np.float32)
    return values, on_floats(lambda *terms: as_float(function(*terms)[1]), *operands) != 0


def test_a_quotient_is_cut_and_its_loss_is_told():
    rng = np.random.default_rng(5)
    x, y = (np.float32(rng.integers(1, 1 << 11, 2048)) for _ in range(2))
    x[:512] = y[:512] * (x[:512] // 2 ** (np.frexp(y[:512])[1]))  # whole quotients
    x[::2] *= -1
    x *= np.float32(2.0) ** rng.integers(-24, 5, 2048).astype(np.float32)
    values, lost = cut(cut_quotient, x, y)
    exact = [Fraction(float(u)) / Fraction(float(v)) for u, v in zip(x, y, strict=True)]
    units = [Fraction(2) ** (int(np.frexp(v)[1]) - 24) for v in values]
    assert [Fraction(float(v)) for v in values] == [
        int(e / u) * u for e, u in zip(exact, units, strict=True)
    ]
    assert lost.tolist() == [Fraction(float(v)) != e for v, e in zip(values, exact, strict=True)]
    assert 0.1 < lost.mean() < 0.95


def test_a_root_is_cut_and_its_loss_is_told():
    n = np.arange(1, 1 << 11, dtype=np.float32)
    x = np.concatenate([n, n * 2.0**-23, np.ones(-2 * n.size % 16)]).astype(np.float32)
    values, lost = cut(cut_root, x)
    for u, s, is_lost in zip(x, values, lost, strict=True):
        square, root = Fraction(float(u)), Fraction(float(s))
        above = Fraction(float(np.nextafter(s, np.float32(np.inf))))
        assert root * root <= square < above * above
        assert is_lost == (root * root != square)
