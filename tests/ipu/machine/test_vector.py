"""Cycles of element-wise operations: poplibs' estimators by hand (golden)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BFLOAT16, BINARY16, BINARY32
from ipu.machine import Device
from ipu.machine.vector import RATES, thread_cycles


@pytest.mark.parametrize(
    ("verb", "single", "half"),
    [("add", 5, 3), ("divide", 50, 63), ("sqrt", 50, 69), ("exp", 30, 12), ("log", 60, 12),
     ("relu", 15, 9), ("sigmoid", 60, 18), ("maximum", 15, 12)],
)
def test_nine_elements_take_five_vectors_of_singles_and_three_of_halves(verb, single, half):
    assert thread_cycles(verb, BINARY32, 9) == single
    assert thread_cycles(verb, BINARY16, 9) == thread_cycles(verb, BFLOAT16, 9) == half


def test_nothing_takes_no_cycles():
    assert {thread_cycles(verb, fmt, 0) for verb in RATES for fmt in (BINARY16, BINARY32)} == {0}


@pytest.mark.parametrize("count", [False, True])
@pytest.mark.parametrize("number", [1.0, np.nan, np.inf, 2.0**-24])
@pytest.mark.parametrize("fmt", [BINARY16, BINARY32], ids=str)
def test_what_is_read_and_what_is_counted_changes_no_cycles(fmt, number, count):
    x = np.ones((9, 1))
    x[3] = number
    for verb, cycles in (
        (Device.relu, thread_cycles("relu", fmt, 9)),
        (lambda device, x: device.reduce_max(x, 0), thread_cycles("maximum", fmt, 9)),
    ):
        device = Device(count=count)
        verb(device, device.from_host(x, fmt))
        assert device.vector_cycles == cycles
