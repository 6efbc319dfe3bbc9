"""SGD that casts gradients (golden)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BINARY16, BINARY32
from ipu.learn.loss_scale import LEARNING_RATE, StaticLossScale
from ipu.learn.optim import SGD, CastGradientsSGD
from ipu.learn.variables import Variable
from ipu.machine import Device, FpCtl
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


@pytest.mark.source("S4-47")
def test_momentum_averages_the_noise_of_stochastic_rounding():
    """Gradients +1, -1, …: a step d, rounded to the spacing u, has the variance d·(u - d).

    Plain steps are half a spacing each. With momentum and the rate times 1 - momentum the mean of
    the gradients, which are nearly nothing in sum, moves a parameter: steps of a fortieth.
    """
    n, steps, u, momentum = 4096, 40, 2.0**-6, 0.9

    def variance(optimizer):
        device = Device(control=FpCtl(esr=True), seed=1)
        w, slots = Variable(device.from_host(np.full(n, 24.0), BINARY16), device, "layer/w"), {}
        for step in range(steps):
            g = device.from_host(np.full(n, (-1.0) ** step), BINARY16)
            slots = optimizer.apply_gradients([(g, w)], slots)
        return w.array.values.var()

    def expected(rate, momentum):
        total = v = 0.0
        for step in range(steps):
            v = momentum * v + (-1.0) ** step
            total += abs(rate * v) * (u - abs(rate * v))
        return total

    rates = {0.0: u / 2, momentum: u / 2 * (1 - momentum)}
    plain, averaged = (variance(SGD(rate, m)) for m, rate in rates.items())
    # A variance of n values is known to sqrt(2/n) = 2.2 percent; slots in binary16 add their own.
    assert plain == pytest.approx(expected(u / 2, 0.0), rel=0.12)
    assert averaged == pytest.approx(expected(rates[momentum], momentum), rel=0.2)
    assert plain > 4 * averaged
