"""Sums by the processor (differential): bit for bit those of the context, or left to it."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BINARY32, Context, sums
from fpsim.native_sums import outer_sums


def numbers(shape, seed=0, exponents=30):
    rng = np.random.default_rng(seed)
    scale = np.ldexp(1.0, rng.integers(-exponents, exponents, shape))
    return (rng.standard_normal(shape) * scale).astype(np.float32)


@pytest.mark.parametrize(
    ("shape", "axes"),
    [((999, 16), (0,)), ((5, 7, 11, 3), (0, 1, 2)), ((5, 7, 11, 3), (1, 2)), ((2, 1, 40, 2), (1,)),
     ((70, 2), (0,)), ((3, 1), (0,)), ((4, 6), (1,)), ((4, 6), ()), ((4, 5, 6), (0, 2)),
     ((0, 4), (0,)), ((1, 8), (0,))],
)  # fmt: skip
@pytest.mark.parametrize("layout", ["C", "F"])
def test_outer_sums_add_in_index_order(shape, axes, layout):
    x = np.asarray(numbers(shape), order=layout)
    found = outer_sums(x, axes, flush=False)
    inner = len(shape) - 1 in axes or not axes or 0 in shape
    together = len(axes) == max(axes, default=0) - min(axes, default=0) + 1
    several = np.prod(shape[max(axes, default=0) + 1 :]) > 1
    assert (found is not None) == (not inner and together and several)
    if found is not None:
        context = Context(BINARY32)
        expected = sums.sum(context.wrap(np.ascontiguousarray(x)), axes)
        np.testing.assert_array_equal(found.view(np.int32), expected.values.view(np.int32))


def test_what_could_raise_a_flag_is_left_to_the_context():
    for column in ([np.inf, 1.0], [np.nan, 1.0], [3e38, 3e38], [np.inf, -np.inf]):
        assert outer_sums(np.float32([column, [1, 2]]).T, (0,), flush=False) is None


def test_what_could_be_subnormal_is_left_to_the_context_where_that_is_flushed():
    """2^-103 + 2^-126 - 2^-103 is the smallest sum of such numbers."""
    for least, found in ((2.0**-103, True), (2.0**-104, False), (2.0**-149, False)):
        x = np.float32([[1.0, 0.0], [least, -0.0], [-1.0, least]])
        assert (outer_sums(x, (0,), flush=True) is not None) == found
        assert outer_sums(x, (0,), flush=False) is not None
    assert outer_sums(np.zeros((3, 2), np.float32), (0,), flush=True) is not None


@pytest.mark.parametrize("zeros", [[-0.0, -0.0], [-0.0, 0.0], [0.0, -0.0]])
def test_signs_of_zero(zeros):
    x = np.float32([zeros, zeros]).T
    found = outer_sums(x, (0,), flush=True)
    expected = sums.sum(Context(BINARY32).wrap(x), 0)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(expected.values))
