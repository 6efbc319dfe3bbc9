"""Reading and writing the status register (law)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim.kernels.guard import HAS_STATUS, USUAL
from fpsim.kernels.status import exchange_status

pytestmark = pytest.mark.skipif(not HAS_STATUS, reason="the processor has no x86 status register")

FLUSH_TO_ZERO, TOWARD_ZERO, UP, INEXACT = 0x8000, 0x6000, 0x4000, 0x20


def under(bits, action):
    """What happens while the register has these bits, and its bits afterwards."""
    before = exchange_status(bits)
    try:
        outcome = action()
    finally:
        after = exchange_status(before)
    return outcome, after


@pytest.mark.parametrize("bits", [USUAL, USUAL | TOWARD_ZERO, USUAL | FLUSH_TO_ZERO | 0x3F])
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
    assert under(USUAL | FLUSH_TO_ZERO, numbers)[0] == (0.0, 1.0)
    assert under(USUAL | UP, numbers)[0] == (2.0**-127, 1 + 2.0**-23)


def test_flags_of_the_thread_are_read():
    def sum_of(x, y):
        return lambda: float((np.float32([x]) + np.float32([y]))[0])

    for y, inexact in ((2.0**-30, True), (2.0**-20, False)):
        _, after = under(USUAL, sum_of(1.0, y))
        assert bool(after & INEXACT) == inexact
