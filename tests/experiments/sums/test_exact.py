"""Reference numbers are those of exact arithmetic, rounded once (law; differential: fractions)."""

from __future__ import annotations

from decimal import Context, Decimal
from fractions import Fraction

import numpy as np
import pytest

from ipu.experiments.sums.exact import (
    fitted_slope,
    geometric,
    inner_products,
    logarithms,
    norm,
    powers_of_ten,
    product,
)

LONG = Context(prec=60)


def _wide(shape, seed):
    """Numbers of all 53 digits over twenty decades, of both signs."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal(shape) * 10.0 ** rng.uniform(-10, 10, shape)


@pytest.mark.parametrize("terms", [1, 7, 9000])
def test_products_are_those_of_fractions_rounded_once(terms):
    a, b = _wide((3, terms), 0), _wide((terms, 2), 1)
    for values, left, right in ((product(a, b), a, b),
                                (inner_products(a, b)[1], np.abs(a), np.abs(b))):
        rows, columns = left.tolist(), right.T.tolist()
        expected = [[float(sum(Fraction(x) * Fraction(y) for x, y in zip(row, column, strict=True)))
                     for column in columns] for row in rows]
        assert values.tolist() == expected


def test_products_of_nothing_and_of_zeros_are_zeros():
    for terms in (0, 3):
        assert product(np.zeros((2, terms)), np.ones((terms, 4))).tolist() == [[0.0] * 4] * 2


def test_the_order_of_terms_changes_no_bit():
    a, b = _wide((2, 500), 2), _wide((500, 1), 3)
    order = np.random.default_rng(4).permutation(500)
    assert product(a[:, order], b[order]).tolist() == product(a, b).tolist()
    assert norm(a[:, order]) == norm(a[:, ::-1]) == norm(a)


def test_norms_of_short_numbers_are_computed_in_binary64():
    x = np.full(1000, 0.1, np.float32)
    assert norm(x) == float(np.sqrt(1000 * np.float64(x[0]) ** 2))


def test_powers_and_logarithms_are_the_nearest_numbers():
    x = np.random.default_rng(5).uniform(-10, 10, 300)
    powers = [float(LONG.power(Decimal(10), Decimal(v))) for v in x.tolist()]
    assert powers_of_ten(x).tolist() == powers
    assert logarithms(np.array(powers)).tolist() == [float(LONG.ln(Decimal(v))) for v in powers]


def test_geometric_numbers_have_one_ratio_and_both_ends():
    numbers = geometric(1e-5, 0.25, 50)
    assert (numbers[0], numbers[-1]) == (1e-5, 0.25)
    ratios = numbers[1:] / numbers[:-1]
    assert np.ptp(ratios) < 1e-15 * ratios[0] * 2


def test_the_slope_and_its_error_are_those_of_least_squares():
    x, y = np.random.default_rng(6).random((2, 20))
    coefficients, covariance = np.polyfit(x, y, 1, cov=True)
    expected = coefficients[0], np.sqrt(covariance[0, 0])
    assert fitted_slope(x, y) == pytest.approx(expected, rel=1e-12)
