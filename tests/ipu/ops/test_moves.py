"""Formats and shapes: casts round, the rest moves values (differential)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BINARY16, BINARY32, round_to
from ipu import ops
from ipu.learn.tensor import gradients
from ipu.learn.variables import Variable
from ipu.machine import FpCtl
from tests.ipu.ops.bits import leaf, machine


def test_what_moves_values_computes_nothing():
    device = machine(control=FpCtl(esr=True))
    x = leaf(device, np.arange(12.0).reshape(3, 4), BINARY16)
    y = ops.strided_slice(ops.pad(ops.transpose(x), paddings=[(1, 0), (0, 2)]), index=np.s_[::2])
    expected = np.pad(np.arange(12.0).reshape(3, 4).T, [(1, 0), (0, 2)])[::2]
    np.testing.assert_array_equal(y.array.values, expected)
    assert device.clock.operation == 0
    with pytest.raises(TypeError, match="does not consist of slices"):
        ops.strided_slice(x, index=(0,))
    with pytest.raises(TypeError, match="fpsim never promotes"):
        ops.concat(x, leaf(device, np.ones((3, 4)), BINARY32), axis=0)
    with pytest.raises(ValueError, match="does not broadcast"):
        ops.multiply(x, leaf(device, np.ones((3, 1, 4)), BINARY16))


def leaves(device, values, fmt=BINARY32):
    return [Variable(device.from_host(x, fmt), device, f"x{k}") for k, x in enumerate(values)]


@pytest.mark.source("S4-20")
def test_the_gradient_of_a_cast_returns_in_the_format_that_was_cast():
    device = machine()
    (w,) = leaves(device, [[1.0, 2.0]])
    y = ops.cast(w, dtype=BINARY16)
    (gradient,) = gradients(y, [w], device.from_host([0.1, 0.1], BINARY16))
    assert y.dtype == BINARY16
    assert gradient.format == BINARY32
    assert gradient.values.tolist() == [round_to(0.1, BINARY16)] * 2
