"""Reading and writing the status register (law)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim.kernels.status import exchange_status
from fpsim.kernels.status_register import (
    FLAG_BITS,
    FLAGS,
    HAS_STATUS,
    TOWARD_PLUS,
    TOWARD_ZERO,
    USUAL,
)
from tests.processors import FLUSH

pytestmark = pytest.mark.skipif(not HAS_STATUS, reason="no status register that is known")

INEXACT = 1 << FLAG_BITS[0]


def under(bits, action):
    """What happens while the register has these bits, and its bits afterwards."""
    before = exchange_status(bits)
    try:
        outcome = action()
    finally:
        after = exchange_status(before)
    return outcome, after


@pytest.mark.parametrize("bits", [USUAL, USUAL | TOWARD_ZERO, USUAL | FLUSH | FLAGS])
def test_a_status_is_what_was_written_last(bits):
    exchange_status(exchange_status(USUAL))
    before = exchange_status(bits)
    after = exchange_status(before)
    assert after == bits
    assert exchange_status(before) == before


def test_arithmetic_of_the_thread_obeys():
    x, y = np.float32([1.0]), np.float32([2.0**-126, 2.0**-30])

    def numbers():
        return float((y[:1] * np.float32(0.5))[0]), float((x + y[1:])[0])

    assert under(USUAL, numbers)[0] == (2.0**-127, 1.0)
    assert under(USUAL | FLUSH, numbers)[0] == (0.0, 1.0)
    assert under(USUAL | TOWARD_PLUS, numbers)[0] == (2.0**-127, 1 + 2.0**-23)


def test_flags_of_the_thread_are_read():
    def sum_of(x, y):
        return lambda: float((np.float32([x]) + np.float32([y]))[0])

    for y, inexact in ((2.0**-30, True), (2.0**-20, False)):
        _, after = under(USUAL, sum_of(1.0, y))
        assert bool(after & INEXACT) == inexact
