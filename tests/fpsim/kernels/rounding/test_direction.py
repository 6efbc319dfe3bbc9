"""The processor's direction inside a kernel, and its flags (law)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim.kernels.compiling import compiled
from fpsim.kernels.rounding.direction import raised, set_modes
from fpsim.kernels.status import exchange_status
from fpsim.kernels.status_register import (
    FLAGS,
    HAS_STATUS,
    TO_NEAREST,
    TOWARD_MINUS,
    TOWARD_PLUS,
    TOWARD_ZERO,
    USUAL,
)
from fpsim.records.flags import Flags

pytestmark = pytest.mark.skipif(not HAS_STATUS, reason="no status register that is known")


def _sums(x, y, out, direction):
    set_modes(direction)
    for i in range(out.shape[0]):
        out[i] = x[i] + y[i]
    return raised()


sums = compiled(_sums)


@pytest.mark.parametrize(
    ("direction", "expected"),
    [
        (TO_NEAREST, [1.0, -1.0]), (TOWARD_ZERO, [1.0, -1.0]),
        (TOWARD_PLUS, [1 + 2.0**-23, -1.0]), (TOWARD_MINUS, [1.0, -1 - 2.0**-23]),
    ],
)
def test_sums_go_in_the_direction_that_was_set(direction, expected):
    x, y = np.array([1, -1], np.float32), np.array([2.0**-30, -(2.0**-30)], np.float32)
    out = np.zeros(2, np.float32)
    assert sums(x, y, out, direction) == Flags.INEXACT
    assert out.tolist() == expected
    before = exchange_status(USUAL)
    exchange_status(before)
    assert before & ~FLAGS == USUAL & ~FLAGS  # the guard restored the direction


def test_exact_sums_raise_nothing():
    ones = np.ones(4, np.float32)
    assert sums(ones, ones, np.zeros(4, np.float32), TO_NEAREST) == 0
