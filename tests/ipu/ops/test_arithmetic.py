"""Element-wise primitives bit for bit (differential): numpy, one operation at a time."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BINARY16
from ipu import ops
from ipu.machine import FpCtl
from tests.ipu.ops.bits import FORMATS, gradient_of, leaf, machine, numbers


@FORMATS
@pytest.mark.parametrize("name", ["subtract", "multiply", "divide"])
def test_each_is_one_operation_and_its_gradients_are_rounded_step_by_step(name, fmt):
    device = machine()
    x, y, g = (numbers((3, 4), fmt, seed) for seed in (1, 2, 3))
    a, b = leaf(device, x, fmt), leaf(device, y, fmt)
    z = getattr(ops, name)(a, b)
    values = {"subtract": x - y, "multiply": x * y, "divide": x / y}[name]
    of_x = {"subtract": g, "multiply": g * y, "divide": g / y}[name]
    of_y = {"subtract": -g, "multiply": g * x, "divide": -((g * (x / y)) / y)}[name]
    assert z.array.to_numpy().tolist() == values.tolist()
    got = gradient_of(z, [a, b], g)
    assert [array.tolist() for array in got] == [of_x.tolist(), of_y.tolist()]


@FORMATS
def test_squares_roots_and_constants(fmt):
    device = machine()
    x, g = np.abs(numbers((5,), fmt, 1)), numbers((5,), fmt, 2)
    two, third = x.dtype.type(2), x.dtype.type(0.3)
    a = leaf(device, x, fmt)
    for y, values, gradient in (
        (ops.square(a), x * x, g * (x * two)),
        (ops.sqrt(a), np.sqrt(x), g / (np.sqrt(x) * two)),
        (ops.scale(a, factor=0.3), x * third, g * third),
    ):
        assert y.array.to_numpy().tolist() == values.tolist()
        assert gradient_of(y, [a], g)[0].tolist() == gradient.tolist()


@FORMATS
def test_a_weight_between_two_has_the_gap_as_its_slope(fmt):
    device = machine()
    x, y, weight, g = (numbers((3, 4), fmt, seed) for seed in (1, 2, 3, 4))
    sources = [leaf(device, a, fmt) for a in (x, y, weight)]
    z = ops.lerp(*sources)
    assert z.array.to_numpy().tolist() == (x + (y - x) * weight).tolist()
    slopes = [g - g * weight, g * weight, g * (y - x)]
    assert [a.tolist() for a in gradient_of(z, sources, g)] == [a.tolist() for a in slopes]


@pytest.mark.parametrize("control", [FpCtl(), FpCtl(esr=True)], ids=["nearest", "stochastic"])
@pytest.mark.parametrize("count", [False, True])
def test_a_bias_in_place_is_the_bias(control, count):
    results = []
    for in_place in (False, True):
        device = machine(control=control, seed=3, count=count)
        x, b = leaf(device, numbers((40, 7), BINARY16, 1), BINARY16), numbers((7,), BINARY16, 2)
        scaled = ops.scale(x, factor=0.7)
        y = ops.bias(scaled, leaf(device, b, BINARY16), in_place=in_place)
        assert (y.array.carrier is scaled.array.carrier) == in_place
        assert y.node is not None
        assert y.node.options == {}
        gradient = gradient_of(y, [x], numbers((40, 7), BINARY16, 3))[0]
        values = y.array.to_numpy().tobytes(), gradient.tobytes()
        left = device.status, device.counts, device.vector_cycles, device.clock.operation
        results.append((*values, *left))
    assert results[0] == results[1]
