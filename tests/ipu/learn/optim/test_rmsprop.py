"""RMSProp: a start that overflows (golden)."""

from __future__ import annotations

import warnings

import pytest

from fpsim import BINARY16
from ipu.learn.optim import RMSProp
from ipu.learn.variables import Variable
from ipu.machine import Device


def stepped(optimizer, fmt=BINARY16):
    device = Device()
    w = Variable(device.from_host([1.0], fmt), device, "layer/w")
    g = device.from_host([1.0], fmt)
    slots = optimizer.apply_gradients([(g, w)], {})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer.apply_gradients([(g, w)], slots)


def test_a_start_that_overflows_with_the_loss_scale_is_warned_of():
    with pytest.warns(RuntimeWarning, match="initial 65536 overflows in binary16; scale the loss"):
        stepped(RMSProp(0.01, epsilon=1e-4, initial=1.0).for_scaled(256.0))
