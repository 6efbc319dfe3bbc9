"""Exact results rounded to odd, against fractions: beside every midpoint one digit decides (law).

The adversarial operands of the proofs: a tiny addend beside a number on a midpoint of a narrow
format, quotients and roots a hair beside short numbers, and exact results, which stay.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from fpsim.kernels.rounding.to_odd import divide_to_odd, root_to_odd, sum_to_odd
from fpsim.records.formats import BFLOAT16, BINARY16, E3M2FN, E4M3FN, E5M2
from tests.fpsim.kernels.on_lanes import on_floats


def is_odd_or_exact(value, exact, width):
    """Whether a float is the exact number, or the odd neighbour of it."""
    x = Fraction(float(value))
    if x == exact:
        return True
    dtype = np.float32 if width == 32 else np.float64
    bits = int(np.array(value, dtype).view(f"u{width // 8}"))
    inward, outward = (
        Fraction(float(np.nextafter(dtype(value), dtype(to)))) for to in (0, 2 * value)
    )
    return bits & 1 == 1 and min(inward, outward) < exact < max(inward, outward)


@pytest.mark.parametrize("fmt", [BFLOAT16, BINARY16, E5M2, E4M3FN, E3M2FN], ids=str)
@pytest.mark.parametrize("width", [32, 64])
def test_a_sum_remembers_the_least_addend(fmt, width):
    p = fmt.precision
    dtype = np.float32 if width == 32 else np.float64
    middles = [2.0**p + n + 0.5 for n in range(4)]  # between two numbers of p digits, and beside
    tiny = [s * 2.0**e for e in (-40, -20, -3, 0) for s in (1, -1)]
    pairs = [(s * x, y) for x in middles for y in tiny for s in (1, -1)]
    pairs += [(x, -x) for x in middles] + [(0.0, y) for y in tiny]
    pairs += [(0.0, 0.0)] * (-len(pairs) % 16)
    x, y = (np.array(v, dtype) for v in zip(*pairs, strict=True))
    actual = on_floats(lambda u, v: sum_to_odd(u, v, width), x, y).view(dtype)
    for u, v, s in zip(x, y, actual, strict=True):
        assert is_odd_or_exact(s, Fraction(float(u)) + Fraction(float(v)), width), (u, v)


DIGITS = {32: (np.float32, 11), 64: (np.float64, 26)}


@pytest.mark.parametrize("width", DIGITS)
def test_quotients_of_short_operands(width):
    dtype, digits = DIGITS[width]
    rng = np.random.default_rng(2)
    x = rng.integers(1, 1 << digits, 512).astype(float)
    y = rng.integers(1, 1 << digits, 512).astype(float)
    x[:256] *= y[:256] // 2 ** (digits // 2) + 1  # many of these are exact, or close
    x[:256] = np.minimum(x[:256], 2.0**digits - 1)
    x[::2] *= -1
    actual = on_floats(divide_to_odd, dtype(x), dtype(y)).view(dtype)
    for u, v, q in zip(x, y, actual, strict=True):
        assert is_odd_or_exact(q, Fraction(u) / Fraction(v), width), (u, v)


@pytest.mark.parametrize("width", DIGITS)
def test_roots_of_short_operands(width):
    dtype, digits = DIGITS[width]
    half = digits // 2
    n = np.concatenate([np.arange(1, 1 << 5), np.arange(2**half - (1 << 4), 2**half)]).astype(float)
    x = np.concatenate([n**2, n**2 + 1, n**2 - 1, n, 2 * n])
    x = dtype(np.concatenate([x, np.ones(-x.size % 16)]))
    actual = on_floats(root_to_odd, x).view(dtype)
    for u, s in zip(x, actual, strict=True):
        square, root = Fraction(float(u)), Fraction(float(s))
        if root * root == square:
            continue
        bits = int(s.view(f"u{width // 8}"))
        low, high = (Fraction(float(np.nextafter(s, dtype(to)))) for to in (0, np.inf))
        assert bits & 1
        assert low * low < square < high * high
