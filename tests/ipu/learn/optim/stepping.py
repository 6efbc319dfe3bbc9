"""An optimiser that may warn in its first step."""

from __future__ import annotations

import warnings

from fpsim import BINARY16
from ipu.learn.variables import Variable
from ipu.machine import Device


def stepped(optimizer, fmt=BINARY16):
    """Two steps of one weight; the second warns of nothing."""
    device = Device()
    w = Variable(device.from_host([1.0], fmt), device, "layer/w")
    g = device.from_host([1.0], fmt)
    slots = optimizer.apply_gradients([(g, w)], {})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer.apply_gradients([(g, w)], slots)
