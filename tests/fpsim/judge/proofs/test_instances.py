"""What contracts say of sums and products, for every pair of numbers of few digits (exhaustive), in
whole numbers, which share nothing with the solver's floats.
"""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("bitwuzla")

from fpsim.judge.proofs.instances import two_sum
from fpsim.kernels.elementwise.cut import cut_sum
from fpsim.kernels.rounding.to_odd import sum_to_odd

#: Exponent fields of the floats whose instances are proved; field 31 is infinity and NaN.
FIELDS = np.arange(31)


class WholeFloats:
    """Floats of so many digits, in units of the smallest subnormal number."""

    def __init__(self, units, digits):
        self.units, self.digits = units, digits

    def _rounded(self, exact):
        """To nearest, ties to the even digit."""
        _, length = np.frexp(np.abs(exact).astype(np.float64))  # below 2**53: exact
        ulp = np.int64(1) << np.maximum(length - self.digits, 0)
        low, rest = exact // ulp, exact % ulp
        up = (2 * rest > ulp) | ((2 * rest == ulp) & (low % 2 != 0))
        return WholeFloats((low + up) * ulp, self.digits)

    def __add__(self, other):
        return self._rounded(self.units + other.units)

    def __sub__(self, other):
        return self._rounded(self.units - other.units)


def every_number(digits):
    """All finite numbers, both zeros as one, in units of the smallest subnormal."""
    fractions = np.arange(1 << (digits - 1))
    hidden = np.where(FIELDS > 0, 1 << (digits - 1), 0)[:, None]
    magnitudes = (hidden + fractions) << np.maximum(FIELDS - 1, 0)[:, None]
    return np.unique(np.concatenate([magnitudes.ravel(), -magnitudes.ravel()]))


@pytest.mark.parametrize("formula", [cut_sum, sum_to_odd], ids=["cut", "odd"])
@pytest.mark.parametrize("digits", [4, 5, 6])
def test_two_sum_loses_nothing(digits, formula):
    numbers = every_number(digits)
    assert numbers.size == 2 * 31 * (1 << (digits - 1)) - 1
    largest = numbers[-1]
    pairs = 0
    for x in numbers[1:-1]:
        y = numbers[1:-1]
        s, error = two_sum(formula, WholeFloats(np.full_like(y, x), digits), WholeFloats(y, digits))
        finite = np.abs(s.units) <= largest
        assert np.array_equal((s.units + error.units)[finite], (x + y)[finite])
        assert np.isin(error.units[finite], numbers).all()
        pairs += int(finite.sum())
    assert pairs > 0.9 * numbers.size**2


def test_two_sum_can_fail():
    numbers = every_number(4)
    s = WholeFloats(numbers[:, None], 4) + WholeFloats(numbers, 4)
    assert not np.array_equal(s.units, numbers[:, None] + numbers)


@pytest.mark.parametrize("digits", [4, 5, 6])
def test_products_have_twice_the_digits(digits):
    significands = np.arange(1 << (digits - 1), 1 << digits)
    exact = np.multiply.outer(significands, significands)
    assert np.array_equal(WholeFloats(exact, 2 * digits)._rounded(exact).units, exact)
    narrow = WholeFloats(exact, 2 * digits - 1)._rounded(exact)
    assert not np.array_equal(narrow.units, exact)
