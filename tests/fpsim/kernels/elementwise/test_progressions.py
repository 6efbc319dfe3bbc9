"""Equal steps in limbs against exact fractions (differential)."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from fpsim.elementwise.inputs import to_odd
from fpsim.kernels.elementwise.progressions import equal_steps


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
