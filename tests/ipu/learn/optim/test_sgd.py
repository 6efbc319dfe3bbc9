"""SGD that casts gradients (golden)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BINARY16, BINARY32
from ipu.learn.optim import SGD, CastGradientsSGD
from ipu.learn.variables import Variable
from ipu.machine import Device


def mixed(device):
    w = Variable(device.from_host([1.0, 2.0], BINARY16), device, "layer/w")
    return w, device.from_host([0.1, 0.2], BINARY32)


@pytest.mark.source("S0-62")
@pytest.mark.source("S0-63")
def test_a_cast_in_apply_gradients_lets_them_pass():
    """The pattern as users write it, and the class that is there."""

    class Users(SGD):
        def apply_gradients(self, pairs, slots, **options):
            cast = [(v.device.cast(g, v.dtype), v) for g, v in pairs]
            return super().apply_gradients(cast, slots, **options)

    for optimizer in (Users(0.5), CastGradientsSGD(0.5)):
        device = Device()
        w, g = mixed(device)
        optimizer.apply_gradients([(g, w)], {})
        half = np.float16
        expected = half([1, 2]) - half(0.5) * g.values.astype(half)
        assert w.dtype == BINARY16
        assert (w.array.to_numpy() == expected).all()
