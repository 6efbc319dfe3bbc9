"""Rules as one kernel in binary64: differential, bit for bit the operations one by one."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BINARY64
from ipu import ops
from ipu.machine import Device
from ipu.ops import in_binary64
from ipu.ops.updates import find_update

RNG = np.random.default_rng(7)
STRANGE = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0])
#: Rows of one part, of several, of uneven ones, and positions beside the channels.
SHAPES = (4, 1), (9, 64), (3, 70), (2, 5, 40), (2, 4100)


def one_by_one():
    return Device("reference")


def by_kernels():
    device = Device("reference")
    device.context(BINARY64).core.loops = None
    return device


def numbers(shape, *, strange=False):
    x = RNG.normal(size=shape)
    if strange:
        x.flat[::7] = RNG.choice(STRANGE, x.flat[::7].size)
    return x


def bits(*arrays):
    return [(x.shape, x.carrier.tobytes()) for x in arrays]


def outcome(device, row, operands, gradient, options):
    arrays = [device.from_host(x, BINARY64) for x in operands]
    y, saved = row.forward(device, *arrays, **options)
    h = device.from_host(gradient, BINARY64)
    pulled = [row.pull(i, device, h, saved, **options) for i in range(len(operands))]
    return bits(y, *saved, *pulled)


CASES = [
    (ops.layer_norm, {"stable": False, "epsilon": 1e-3}), (ops.layer_norm, {"stable": True}),
    (ops.layer_norm, {"unbiased": True}), (ops.gelu, {}), (ops.softmax, {}),
]


@pytest.mark.parametrize("strange", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("row", "options"), CASES)
def test_bits_are_those_of_the_operations(row, options, shape, strange):
    operands = [numbers(shape, strange=strange)]
    if row is ops.layer_norm:
        operands += [numbers(shape[-1]), numbers(shape[-1])]
    gradient = numbers(shape, strange=strange)
    assert outcome(one_by_one(), row, operands, gradient, options) == outcome(
        by_kernels(), row, operands, gradient, options)


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("strange", [False, True])
def test_adam_takes_the_same_step(strange, nesterov):
    values = [numbers((3, 50), strange=strange) for _ in range(3)]
    square = np.abs(numbers((3, 50)))

    def step(device):
        w, g, m, v = (device.from_host(x, BINARY64) for x in (*values, square))
        updated = find_update("tensorflow adam")(
            device, w, g, (m, v), power1=0.81, power2=device.from_host(0.998, BINARY64), rate=0.1,
            beta1=0.9, beta2=0.999, epsilon=1e-8, nesterov=nesterov)
        return bits(updated.value, *updated.slots, updated.change, updated.direction)

    assert step(one_by_one()) == step(by_kernels())


def test_kernels_compute_where_no_cycles_are_counted_and_sums_are_spread_alone():
    rule = in_binary64.by(lambda x: "kernel")(lambda device, x: "operations")
    chain = Device("reference", sums="chain")
    chain.context(BINARY64).core.loops = None
    ways = [
        rule(device, device.from_host([1.0], BINARY64))
        for device in (one_by_one(), by_kernels(), chain)
    ]
    assert ways == ["operations", "kernel", "operations"]
