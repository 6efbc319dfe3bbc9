"""The processor's direction inside a kernel, and its flags (law)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim.kernels.compiling import compiled
from fpsim.kernels.guard import HAS_STATUS, USUAL
from fpsim.kernels.rounding.direction import DOWN, NEAREST, UP, ZERO, raised, set_direction
from fpsim.kernels.status import exchange_status

pytestmark = pytest.mark.skipif(not HAS_STATUS, reason="the processor has no x86 status register")


def _sums(x, y, out, direction):
    set_direction(direction)
    for i in range(out.shape[0]):
        out[i] = x[i] + y[i]
    return raised()


sums = compiled(_sums)


@pytest.mark.parametrize(
    ("direction", "expected"),
    [
        (NEAREST, [1.0, -1.0]), (ZERO, [1.0, -1.0]),
        (UP, [1 + 2.0**-23, -1.0]), (DOWN, [1.0, -1 - 2.0**-23]),
    ],
)
def test_sums_go_in_the_direction_that_was_set(direction, expected):
    x, y = np.array([1, -1], np.float32), np.array([2.0**-30, -(2.0**-30)], np.float32)
    out = np.zeros(2, np.float32)
    assert sums(x, y, out, direction) == 0x20  # inexact
    assert out.tolist() == expected
    before = exchange_status(USUAL)
    exchange_status(before)
    assert before & 0x6000 == 0  # the guard restored the direction


def test_exact_sums_raise_nothing():
    ones = np.ones(4, np.float32)
    assert sums(ones, ones, np.zeros(4, np.float32), NEAREST) == 0
