"""Tables of functions of 16-bit values: against the steps, on every code (exhaustive)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BFLOAT16, BINARY16, BINARY32, Flags, FloatingPointTrap
from fpsim.array import Array
from fpsim.elementwise.codes import from_codes
from ipu.machine import Device, FpCtl
from ipu.ops.tabulated import tabulated
from tests.ipu.ops.states import counted


def steps(device, x):
    """Of large and of small x, of zeros, infinities and NaN: every flag is raised somewhere."""
    risen = device.multiply(device.exp(x), device.multiply(x, 1e-37))
    return device.add(device.divide(1.0, x), device.multiply(risen, x))


def every_code(device, fmt):
    codes = np.arange(1 << 16, dtype=np.uint16)
    return Array(from_codes(codes, fmt), device.context(fmt))


def outcome(device, result):
    flags = device.context(BINARY32).flags
    bits = result.carrier.view(np.uint32).tolist()
    return bits, result.format, flags, device.status, device.vector_cycles


@pytest.mark.parametrize("f32_denormals", ["flush", "ieee"])
@pytest.mark.parametrize("fmt", [BINARY16, BFLOAT16])
@pytest.mark.parametrize("control", [FpCtl(), FpCtl(esr=True, nanoo=True), FpCtl(rnd=1)])
def test_a_table_gives_values_flags_status_and_cycles_of_the_steps(control, fmt, f32_denormals):
    for part in (slice(None), slice(1, 0x7C01), slice(0x3C00, 0x3C01)):
        results = []
        for compute in (steps, tabulated):
            device = Device("hypothetical", control, f32_denormals=f32_denormals)
            x = Array(np.resize(every_code(device, fmt).carrier[part], 9001), device.context(fmt))
            if compute is steps:
                results.append(outcome(device, steps(device, device.cast(x, BINARY32))))
            else:
                results.append(outcome(device, tabulated(device, x, steps)))
        assert results[0] == results[1]


def test_flags_are_those_of_the_values_that_are_read():
    device = Device()
    x = device.from_host(np.full(10000, 2.0), BINARY16)
    assert tabulated(device, x, lambda device, x: device.multiply(x, 0.5)).values[0] == 1
    assert device.context(BINARY32).flags == Flags.NONE


def test_traps_and_counters_see_the_steps():
    device = Device(control=FpCtl(div0=True))
    with pytest.raises(FloatingPointTrap, match="divide raised DIVBYZERO at"):
        tabulated(device, device.zeros(10000, BINARY16), steps)
    device = Device(count=True)
    tabulated(device, device.zeros(10000, BINARY16), steps)
    assert device.counts["", "divide"]["DIVBYZERO"] == 10000


@pytest.mark.parametrize("fmt", [BINARY16, BFLOAT16])
@pytest.mark.parametrize("f32_denormals", ["flush", "ieee"])
def test_counters_are_those_of_the_steps_on_every_code(fmt, f32_denormals):
    counters = []
    for is_table in (False, True):
        device = Device("hypothetical", count=True, f32_denormals=f32_denormals)
        x = every_code(device, fmt)
        if is_table:
            tabulated(device, x, steps)
        else:
            steps(device, device.cast(x, BINARY32))
        counters.append(counted(device))
    assert counters[0] == counters[1]
    names = {name for _, row in counters[1][0] for name, n in row if n}
    subnormals = {"subnormals"} if f32_denormals == "ieee" else set()
    assert subnormals | {"zeros", "UNDERFLOW", "OVERFLOW", "DIVBYZERO", "INVALID"} <= names


def test_operands_of_other_widths_and_of_few_elements_are_computed():
    device, calls = Device(), []

    def noted(device, x):
        calls.append(x.shape)
        return steps(device, x)

    for shape, fmt in (((3,), BINARY16), ((10000,), BINARY32)):
        tabulated(device, device.zeros(shape, fmt), noted)
    assert calls == [(3,), (10000,)]
