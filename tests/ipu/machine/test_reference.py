"""binary64 on a device: differential against numpy; gradients are the transposed product (law)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BINARY16, BINARY32, BINARY64
from ipu.machine import REFERENCE, Device, FpCtl, FpSts
from ipu.machine.reference import FUNCTIONS, wide

RNG = np.random.default_rng(0)
ARMED = FpCtl(inv=True, div0=True, oflo=True, esr=True, nanoo=True)


def device():
    return Device("reference", ARMED, count=True)


def double(machine, shape):
    return machine.from_host(RNG.standard_normal(shape), BINARY64)


def test_nothing_is_rounded_traps_or_is_counted():
    machine = device()
    x = double(machine, 5)
    y = machine.add(machine.multiply(x, 0.1), 1e300)
    assert y.values.tolist() == (x.values * 0.1 + 1e300).tolist()
    assert np.isinf(machine.multiply(y, y).values).all()
    assert np.isnan(machine.sqrt(machine.from_host(-1.0, BINARY64)).values)
    assert (machine.status, machine.counts, machine.clock.operation) == (FpSts(), {}, 0)
    assert len(machine.ledger) == 0
    assert "not an IPU feature" in REFERENCE.note


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_those_of_numpy_and_scipy(name):
    machine = device()
    x = machine.from_host(np.abs(RNG.standard_normal(9)), BINARY64)
    assert getattr(machine, name)(x).values.tolist() == FUNCTIONS[name](x.values).tolist()


def test_sums_and_products_stay_in_binary64_and_leave_it_by_a_cast():
    machine = device()
    x, y = double(machine, (4, 7)), double(machine, (7, 3))
    assert machine.matmul(x, y).values.tolist() == (x.values @ y.values).tolist()
    assert machine.matmul(x, y, to=BINARY32).format == BINARY32
    total = machine.reduce_sum(x, 1, scale=0.25)
    assert total.values.tolist() == (x.values.sum(1, keepdims=True) * 0.25).tolist()
    half = machine.cast(x, BINARY16)
    assert machine.cast(half, BINARY64).values.tolist() == half.values.tolist()
    with pytest.raises(TypeError, match="fpsim never promotes"):
        machine.matmul(x, machine.cast(y, BINARY16))


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize(("stride", "groups"), [(1, 1), (2, 1), (3, 2), (1, 2)])
def test_convolutions_are_the_machine_s_to_single_precision_and_gradients_are_transposed(
    stride, groups, padding
):
    machine = device()
    x, w = double(machine, (2, 7, 6, 4)), double(machine, (3, 2, 4 // groups, 6))
    options = {"stride": stride, "padding": padding, "groups": groups}
    y = machine.conv2d(x, w, **options)
    single = Device(f32_denormals="ieee")
    wanted = single.conv2d(*(single.from_host(a.values, BINARY32) for a in (x, w)), **options)
    np.testing.assert_allclose(y.values, wanted.values, rtol=1e-4, atol=1e-5)
    g = double(machine, y.shape)
    inner = np.vdot(g.values, y.values)
    to_x = machine.conv2d_input_gradient(g, w, x.shape, **options)
    to_w = machine.conv2d_weight_gradient(x, g, w.shape, **options)
    assert np.vdot(to_x.values, x.values) == pytest.approx(inner, rel=1e-12)
    assert np.vdot(to_w.values, w.values) == pytest.approx(inner, rel=1e-12)


def test_other_targets_have_no_binary64():
    assert [wide(f) for f in (BINARY16, BINARY32, BINARY64)] == [BINARY32, BINARY32, BINARY64]
    with pytest.raises(ValueError, match="reference has binary64"):
        Device().from_host(1.0, BINARY64)
