"""Sums in limbs against Python's integers (differential)."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from numba import njit

from fpsim.kernels.by_unit.limbs import LIMBS, put, take
from fpsim.kernels.lanes.memory import pointer


@njit
def total(values, exponents):
    room = np.zeros(LIMBS, np.int64)
    limbs, reach = pointer(room), (LIMBS, 0)
    for i in range(values.shape[0]):
        reach = put(limbs, reach, values[i], exponents[i])
    negative, m, q = take(limbs, reach)
    return negative, m, q, np.abs(room).sum()


@pytest.mark.parametrize("seed", range(20))
def test_a_sum_keeps_its_leading_digits_and_an_odd_last_one(seed):
    rng = np.random.default_rng(seed)
    values = rng.integers(-(2**48), 2**48, 12)
    exponents = rng.integers(-298, 200, 12)
    values[1], exponents[1] = -values[0], exponents[0]  # cancels
    negative, m, q, left = total(values, exponents)
    exact = sum(Fraction(int(v)) * Fraction(2) ** int(e)
                for v, e in zip(values, exponents, strict=True))
    assert negative == (exact < 0)
    assert left == 0  # the limbs are empty again
    size = abs(exact) / Fraction(2) ** int(q)
    assert int(m) == size if size.denominator == 1 else (m & 1 and m - 1 < size < m + 1)
    assert int(m).bit_length() >= 30


def test_as_many_terms_as_a_call_has_do_not_fill_a_limb():
    """256 products and an accumulator, each all ones from the top digit of a limb on."""
    lsb = 32 * 13 + 31 - 416
    values, exponents = np.full(257, 2**48 - 1, np.int64), np.full(257, lsb, np.int64)
    negative, m, q, left = total(values, exponents)
    size = Fraction(257 * (2**48 - 1)) * Fraction(2) ** lsb / Fraction(2) ** int(q)
    assert (negative, left) == (False, 0)
    assert m & 1
    assert m - 1 < size < m + 1
