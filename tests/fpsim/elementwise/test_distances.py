"""Sums of squares of distances: numpy's operations and exact fractions (differential, corners)."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from fpsim.kernels.elementwise import distances, special
from fpsim.kernels.elementwise.binary64 import SQUARED_DIFFERENCE

RNG = np.random.default_rng(6)
OPERATIONS = {
    special.ADD: np.add, special.SUBTRACT: np.subtract, special.MULTIPLY: np.multiply,
    special.DIVIDE: np.divide,
    SQUARED_DIFFERENCE: lambda x, y: (x - y) * (x - y),
    special.SQRT: lambda x, y: np.sqrt(x + 0 * y),
}


def operand(n, dtype=np.float32):
    return RNG.normal(size=n).astype(dtype)


def near(x):
    """Numbers of binary64 close to others."""
    return x * (1 + 1e-8 * RNG.normal(size=x.size))


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize(("n", "size_x", "size_y"), [
    (1, 1, 1), (64, 64, 1), (65, 1, 65), (200, 200, 200), (256, 256, 256), (257, 1, 257),
    (700, 700, 1)])
def test_results_are_numpys_and_sums_are_of_them(operation, n, size_x, size_y):
    x, y = np.abs(operand(size_x)), operand(size_y)
    far_x, far_y = near(x), near(y)
    function = OPERATIONS[operation]
    result = np.broadcast_to(function(x, y), n).copy()
    far, sums, expected = np.empty(n), np.empty(4), np.empty(4)
    distances.sum_squares_of(operation, x, y, far_x, far_y, result, far, sums)
    local = np.broadcast_to(function(np.float64(x), np.float64(y)), n).copy()
    shadow = np.broadcast_to(function(far_x, far_y), n).copy()
    assert far.tobytes() == shadow.tobytes()
    distances.sum_squares(result, local, shadow, expected)
    assert sums.tobytes() == expected.tobytes()
    rows = shadow, result - local, local - shadow, (result - local) + (local - shadow)
    exact = [float(sum(Fraction(float(v)) ** 2 for v in row)) for row in rows]
    np.testing.assert_allclose(sums, exact, rtol=1e-14)


@pytest.mark.parametrize("operation", list(OPERATIONS)[:4])
def test_zeros_keep_their_sign_and_what_is_not_finite_is_seen(operation):
    x, y = np.float32([-0.0, 1.0, np.inf]), np.float32([-0.0, 0.0, -np.inf])
    function, far, sums = OPERATIONS[operation], np.empty(3), np.empty(4)
    wide = np.float64(x), np.float64(y)
    with np.errstate(all="ignore"):
        distances.sum_squares_of(operation, x, y, *wide, function(x, y), far, sums)
        expected = function(*wide)
    np.testing.assert_array_equal(far, expected)
    finite = np.isfinite(expected)
    assert np.signbit(far[finite]).tolist() == np.signbit(expected[finite]).tolist()
    assert not np.isfinite(sums).all()
