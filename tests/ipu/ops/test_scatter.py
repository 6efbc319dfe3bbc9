"""Additions by index: binary32 in index order, rounded once (differential)."""

from __future__ import annotations

import numpy as np

from fpsim import BINARY16
from ipu.frontends.arrays.rows import add_rows, multiply_rows
from ipu.machine import Device

ROWS = np.array([3, 0, 3, 1, 3, 0, 3])


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float16)


def folded(verb, base, values):
    total = base.astype(np.float32)
    for row, value in zip(ROWS, values, strict=True):
        total[row] = verb(total[row], value.astype(np.float32))
    return total.astype(np.float16)


def test_rows_are_taken_in_order():
    device, base, values = Device(), numbers(4, 5, seed=1), numbers(7, 5)
    before, terms = (device.from_host(a, BINARY16) for a in (base, values))
    for rule, verb in ((add_rows, np.add), (multiply_rows, np.multiply)):
        result = rule(device, before, ROWS, terms)
        np.testing.assert_array_equal(np.float16(result.carrier), folded(verb, base, values))


def test_without_values_nothing_changes():
    device = Device()
    base = device.from_host(numbers(4, 5), BINARY16)
    same = add_rows(device, base, np.zeros(0, np.int64), device.zeros((0, 5), BINARY16))
    np.testing.assert_array_equal(same.carrier, base.carrier)
