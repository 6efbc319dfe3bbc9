"""SGD that casts gradients (golden)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BINARY16, BINARY32
from ipu.learn.loss_scale import LEARNING_RATE, StaticLossScale
from ipu.learn.optim import SGD, CastGradientsSGD
from ipu.learn.variables import Variable
from ipu.machine import Device
from tests.ipu.learn.small import codes, trained


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


@pytest.mark.parametrize("options", [{}, {"dampening": 0.5}, {"maximize": True}])
def test_a_divided_rate_undoes_a_loss_scale_also_beside_weight_decay(options):
    """Powers of two only move exponents: the weights are those of no scaling, bit for bit."""
    optimizer = SGD(0.05, 0.9, weight_decay=0.25, **options)
    plain, _ = trained(optimizer=optimizer)
    scaled, _ = trained(
        optimizer=optimizer, loss_scale=StaticLossScale(2.0**10, route=LEARNING_RATE)
    )
    assert codes(scaled) == codes(plain)
    other, _ = trained(optimizer=SGD(0.05, 0.9, **options))
    assert codes(other) != codes(plain)


def test_maximizing_goes_up():
    """A linear loss of slope 2."""
    for maximize, expected in ((False, 0.0), (True, 2.0)):
        device = Device()
        w = Variable(device.from_host([1.0], BINARY32), device, "layer/w")
        g = device.from_host([2.0], BINARY32)
        SGD(0.5, maximize=maximize).apply_gradients([(g, w)], {})
        assert w.array.values.tolist() == [expected]
