"""A row: what it refuses, and its rules without a tape."""

from __future__ import annotations

import pytest

import ipu.learn.ops
from fpsim import BINARY16
from ipu import ops
from ipu.machine import Device


def test_a_row_computes_without_a_tape():
    device = Device()
    x = device.from_host([0.0, 1.0], BINARY16)
    y, saved = ops.tanh.forward(device, x)
    assert ops.tanh.value(device, x).values.tolist() == y.values.tolist()
    slope = ops.tanh.pull(0, device, device.from_host([1.0, 1.0], BINARY16), saved)
    assert slope.values[0] == 1


def test_what_is_no_tensor_is_refused():
    with pytest.raises(TypeError, match="tanh takes a Tensor, got float; make one with Tensor"):
        ops.tanh(1.0)


def test_the_old_name_of_the_table_goes_on():
    assert ipu.learn.ops.relu is ops.relu
