"""Loops without a rounding: integers, remainders, steps, selection (corners, differential)."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from fpsim.elementwise.inputs import to_odd
from fpsim.kernels.elementwise.integers import magnitudes_to_odd, whole_numbers
from fpsim.kernels.elementwise.progressions import equal_steps
from fpsim.kernels.elementwise.remainder import remainders
from fpsim.kernels.elementwise.selection import keep_least


def test_magnitudes_of_more_than_53_digits_become_odd():
    n = np.array([0, 1, 2**53, 2**53 + 1, 2**54 + 1, 2**63 + 1, 2**64 - 1], np.uint64)
    out = np.zeros(len(n))
    magnitudes_to_odd(n, np.zeros(len(n), bool), out)
    exact = [int(v) == int(f) for v, f in zip(n, out, strict=True)]
    assert exact == [True, True, True, False, False, False, False]
    assert out[4] == 2**54 + 4  # 53 digits, the last one odd
    assert all(int(b) & 1 for b in out.view(np.uint64)[3:])
    magnitudes_to_odd(n, np.ones(len(n), bool), out)
    assert (np.signbit(out)).all()


def test_whole_numbers_out_of_range_are_invalid():
    x = np.array([1.5, 2.0, 127.6, -128.0, np.nan, np.inf])
    whole = np.array([2.0, 2.0, 128.0, -128.0, np.nan, np.inf])
    out, flags = np.zeros(6, np.int8), np.zeros(6, np.uint8)
    whole_numbers(x, whole, -128.0, 128.0, -128, out, flags)
    assert out.tolist() == [2, 2, -128, -128, -128, -128]
    assert flags.tolist() == [1, 0, 16, 0, 16, 16]


def test_remainders_are_those_of_ieee_and_c():
    rng = np.random.default_rng(4)
    x = np.ldexp(rng.uniform(1, 2, 400), rng.integers(-40, 900, 400)) * rng.choice((-1, 1), 400)
    y = np.ldexp(rng.uniform(1, 2, 400), rng.integers(-40, 40, 400)) * rng.choice((-1, 1), 400)
    x[:6], y[:6] = [5.0, 7.0, -5.0, 3.0, 0.0, -0.0], [2.0, 2.0, 2.0, 2.0, 3.0, 3.0]
    out = np.zeros(400, np.uint64)
    for nearest, reference in ((True, math.remainder), (False, math.fmod)):
        remainders(x.view(np.uint64), y.view(np.uint64), out, nearest)
        expected = np.array([reference(a, b) for a, b in zip(x, y, strict=True)])
        assert np.array_equal(out, expected.view(np.uint64))


def limbs(number: int) -> np.ndarray:
    return np.array([number >> 32 * i & 0xFFFFFFFF for i in range(6)], np.int64)


@pytest.mark.parametrize("nearest", [False, True])
@pytest.mark.parametrize(("number", "step", "rest", "rest_step", "divisor"), [
    (-(1 << 60), 123456789012345678, 3, 5, 7), (1 << 90, -(1 << 86) - 1, 0, 0, 1),
    (-5 << 70, 1 << 70, 2, 2, 3), (1 << 98, -(1 << 91), 0, 1, 1 << 40 | 1),
])
def test_each_number_is_rounded_once(number, step, rest, rest_step, divisor, nearest):
    out = np.empty(40)
    equal_steps(limbs(number), limbs(step), rest, rest_step, divisor, -61, nearest, out)
    for k, value in enumerate(out):
        exact = number + k * step + Fraction(rest + k * rest_step, divisor)
        exact /= 1 << 61
        wanted = exact.numerator / exact.denominator if nearest else to_odd(exact)
        assert value == wanted, k


def test_any_nan_is_told():
    for bits in (0x7F800001, 0x7FC00000, 0xFFFFFFFF):
        x = np.zeros(20, np.uint32)
        x[17] = bits
        out = np.empty(20, np.float32)
        assert keep_least(x.view(np.float32), np.float32(1), out) == 1
        assert keep_least(x.view(np.float32)[:17], np.float32(1), out[:17]) == 0
