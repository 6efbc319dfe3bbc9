"""Fake quantisation: known grids, and gradients that are those of a line (known answers)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BINARY16, BINARY32
from ipu import ops
from ipu.learn.tensor import gradients
from ipu.learn.variables import Variable
from ipu.machine import Device


def leaves(fmt, *values):
    device = Device(f32_denormals="ieee")
    return [Variable(device.from_host(v, fmt), device, f"v{k}") for k, v in enumerate(values)]


@pytest.mark.parametrize("fmt", [BINARY32, BINARY16], ids=lambda fmt: fmt.name)
def test_values_stand_on_the_grid(fmt):
    x, low, high = leaves(fmt, [-9.0, -0.8, -0.25, 0.0, 0.3, 0.75, 9.0], -1.0, 0.5)
    y = ops.fake_quantize(x, low, high, first=0.0, last=3.0)  # -1, -0.5, 0, 0.5
    assert y.array.values.tolist() == [-1.0, -1.0, 0.0, 0.0, 0.5, 0.5, 0.5]


def test_limits_move_until_zero_is_a_number_of_the_grid():
    x, low, high = leaves(BINARY32, [-4.0, 0.0, 4.0], -0.875, 2.125)
    y = ops.fake_quantize(x, low, high, first=0.0, last=3.0)  # -1, 0, 1, 2
    assert y.array.values.tolist() == [-1.0, 0.0, 2.0]


def test_gradients_pass_inside_and_go_to_the_limits_outside():
    x, low, high = leaves(BINARY32, [[-9.0, 0.25, 9.0], [-8.0, 1.0, 0.0]], -1.0, 2.0)
    y = ops.fake_quantize(x, low, high, first=0.0, last=3.0)
    upstream = x.device.from_host([[1.0, 2.0, 4.0], [8.0, 16.0, 32.0]], BINARY32)
    of_x, of_low, of_high = gradients(y, [x, low, high], upstream)
    assert of_x.values.tolist() == [[0.0, 2.0, 0.0], [0.0, 16.0, 32.0]]
    assert of_low.values.tolist() == 9.0
    assert of_high.values.tolist() == 4.0


def test_each_channel_has_its_limits():
    x, low, high = leaves(BINARY32, np.full((2, 2), 3.0), [-1.0, 0.0], [2.0, 6.0])
    y = ops.fake_quantize(x, low, high, first=0.0, last=3.0)
    assert y.array.values.tolist() == [[2.0, 4.0]] * 2
    _, of_low, of_high = gradients(y, [x, low, high], x.device.from_host(np.ones((2, 2)), BINARY32))
    assert of_low.values.tolist() == [0.0, 0.0]
    assert of_high.values.tolist() == [2.0, 0.0]
