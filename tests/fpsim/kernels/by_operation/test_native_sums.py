"""The processor's own sums along an outer axis against numpy and fractions (corners)."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from fpsim.kernels.by_operation.native_sums import outer_sums

LEAST = 2.0**-126


def run(x):
    """Sums, flags, and whether they are refused."""
    x = np.float32(x)
    sums = np.full((x.shape[0], x.shape[2]), 7, np.float32)
    flags = np.full(sums.shape, 9, np.uint8)
    return sums, flags, outer_sums(x.reshape(-1), x.shape, x.shape[2], False, sums, flags) != 0


def in_order(x):
    """Sums in index order, and whether one addition of each was inexact."""
    sums, flags = x[:, 0].copy(), np.zeros(x[:, 0].shape, np.uint8)
    for k in range(1, x.shape[1]):
        for at in np.ndindex(sums.shape):
            exact = Fraction(float(sums[at])) + Fraction(float(x[at[0], k, at[1]]))
            sums[at] += x[at[0], k, at[1]]
            flags[at] |= Fraction(float(sums[at])) != exact
    return sums, flags


@pytest.mark.parametrize("shape", [(1, 5, 16), (2, 3, 17), (3, 4, 31), (1, 1, 40), (2, 2, 48)])
def test_sums_are_taken_in_order_and_know_what_they_lost(shape):
    rng = np.random.default_rng(shape[2])
    x = np.float32(np.round(rng.standard_normal(shape) * 8) * 2.0 ** rng.integers(-12, 13, shape))
    x[..., 3], x[..., 7] = 2.0, -0.0  # exact sums
    sums, flags, refused = run(x)
    expected, expected_flags = in_order(x)
    assert not refused
    assert np.array_equal(sums.view(np.uint32), expected.view(np.uint32))
    assert np.array_equal(flags, expected_flags)
    if shape[1] > 2:
        assert set(flags.ravel()) == {0, 1}


def test_narrow_rows_are_read_by_steps_and_may_be_squared():
    x = np.float32([[1, 2], [3, -4], [5, 2.0**13]])
    values = x.reshape(-1)
    sums, flags = np.empty((1, 16), np.float32), np.empty((1, 16), np.uint8)
    assert outer_sums(values, (1, 3, 16), 2, False, sums, flags) == 0
    assert (sums[0, :2].tolist(), flags[0, :2].tolist()) == ([9, 8190], [0, 0])
    assert outer_sums(values, (1, 3, 16), 2, True, sums, flags) == 0
    assert (sums[0, :2].tolist(), flags[0, :2].tolist()) == ([35, 2.0**26 + 16], [0, 1])


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(
    ("terms", "inexact"),
    [
        ([2.0**24, 1.0], 1), ([2.0**24 + 2, 1.0], 1), ([2.0**24, 2.0], 0), ([1.0, 2.0**-24], 1),
        ([2.0**24, 1.0, -(2.0**24)], 1), ([1.0, 2.0**100], 1), ([1.5, -1.5], 0),
        ([2.0**24 - 1, 1.0], 0),
    ],
)
def test_one_inexact_addition_is_enough(terms, inexact, sign):
    x = np.ones((1, len(terms), 16), np.float32)
    x[0, :, 5] = np.float32(terms) * sign
    _, flags, refused = run(x)
    assert not refused
    assert flags[0].tolist() == [0] * 5 + [inexact] + [0] * 10


@pytest.mark.parametrize("place", [0, 15, 16, 18])
@pytest.mark.parametrize(
    "terms",
    [
        (np.inf, 1.0), (1.0, -np.inf), (np.nan, 1.0), (np.inf, -np.inf), (3e38, 3e38),
        (LEAST / 2, 1.0), (1.0, -LEAST / 2), (2.0**-149, 0.0), (1.5 * LEAST, -LEAST),
    ],
)
def test_whatever_could_differ_is_refused(terms, place):
    """No number, overflow, a subnormal operand first or last, a subnormal sum; in every column."""
    x = np.ones((2, 2, 19), np.float32)
    x[1, :, place] = terms
    assert run(x)[2]


def test_the_smallest_normal_number_and_zeros_are_taken():
    x = np.full((1, 2, 16), LEAST, np.float32)
    x[0, :, 1], x[0, :, 2], x[0, :, 3] = (0.0, -0.0), (-0.0, -0.0), (LEAST, -LEAST)
    sums, flags, refused = run(x)
    assert not refused
    assert flags.max() == 0
    assert sums[0, :4].tolist() == [2 * LEAST, 0, 0, 0]
    assert np.signbit(sums[0, :4]).tolist() == [False, False, True, False]
