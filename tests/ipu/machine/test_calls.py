"""Calls of Python functions that an operation of a device takes up to its kernel (golden).

They are what small operations cost. A bound that is passed asks for a look, not for a higher bound.
"""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BINARY16, Array
from ipu.machine import Device
from tests.calls import codes_called


def halves(device: Device, *shape: int) -> Array:
    return device.from_host(np.random.default_rng(0).standard_normal(shape), BINARY16)


@pytest.mark.parametrize(
    ("verb", "bound"), [("matmul", 50), ("add", 15), ("reduce_sum", 56), ("relu", 19)]
)
def test_an_operation_calls_few_functions(verb, bound):
    device = Device()
    x = halves(device, 8, 8)
    arguments = {"reduce_sum": (x, 0), "relu": (x,)}.get(verb, (x, x))
    calls = codes_called(lambda: getattr(device, verb)(*arguments))
    assert len(calls) < bound


def test_a_product_of_another_contexts_array_is_one_of_the_device():
    device, other = Device(), Device()
    x = halves(device, 4, 4)
    expected = device.matmul(x, x)
    y = halves(other, 4, 4)
    result = device.matmul(y, y)
    assert result.context is device.context(BINARY16)
    assert result.codes().tolist() == expected.codes().tolist()
    assert len(other.ledger) == 0
