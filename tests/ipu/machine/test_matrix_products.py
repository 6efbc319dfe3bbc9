"""Matrix products of a device: units, partials and options (differential, golden)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BINARY16, BINARY32, F143, FloatingPointTrap
from ipu.machine import MK2_FP8, Device, FpCtl, FpSts


def half(device, *values):
    return device.from_host(list(values), BINARY16)


def test_matmul_traps_with_the_registers_too():
    device = Device(control=FpCtl(oflo=True))
    x = device.from_host([[60000.0, 60000.0]], BINARY16)
    with pytest.raises(FloatingPointTrap, match=r"\$FP_STS"):
        device.matmul(x, x.T)


def test_matrix_units_follow_inputs_partials_and_preset():
    device = Device(preset="exact", partials=BINARY16)
    x = device.from_host(np.eye(4), BINARY16)
    device.matmul(x, x)
    device.matmul(x, x, partials=BINARY32)
    y = device.cast(x, BINARY32)
    device.matmul(y, y)
    assert set(device.units_used) == {"AMP_F16_F16.exact", "AMP_F16_F32.exact", "AMP_F32_F32"}


def test_half_partials_lose_what_single_partials_keep():
    """2048 + 1 over two passes: a half partial cannot hold 2049."""
    x = np.zeros((1, 32))
    x[0, 0], x[0, 16] = 2048.0, 1.0
    results = {}
    for partials in (BINARY16, BINARY32):
        device = Device()
        a = device.from_host(x, BINARY16)
        ones = device.from_host(np.ones((32, 1)), BINARY16)
        results[partials] = device.matmul(a, ones, partials=partials).values.item()
        wide = device.matmul(a, ones, partials=BINARY32, to=BINARY32)
    assert results == {BINARY16: 2048.0, BINARY32: 2048.0}
    assert wide.values.item() == 2049.0


@pytest.mark.source("S4-49")
def test_partials_of_matmuls_and_of_convolutions_are_options_of_their_own():
    device = Device(partials=BINARY16, conv_partials=BINARY32)
    assert device.partials_for(BINARY16) == BINARY16
    assert device.partials_for(BINARY16, "conv2d") == BINARY32
    assert Device(partials=BINARY16).partials_for(BINARY16, "conv2d") == BINARY16
    assert device.partials_for(BINARY32) == BINARY32
    assert device.partials_for(BINARY16, wanted=BINARY32) == BINARY32


@pytest.mark.source("S4-50")
def test_an_option_narrower_than_the_result_keeps_the_result_s_type_and_says_so_once():
    device = Device(partials=BINARY16)
    x = half(device, 1.0).reshape((1, 1))
    with pytest.warns(RuntimeWarning, match="partials=binary16 are narrower than results in bin"):
        assert device.matmul(x, x, to=BINARY32).format == BINARY32
    assert device.ledger.last.unit == "AMP_F16_F32"
    device.matmul(x, x, to=BINARY32)
    with pytest.raises(
        ValueError, match="partials=binary16 are narrower than the result in binary"
    ):
        device.matmul(x, x, partials=BINARY16, to=BINARY32)


@pytest.mark.source("S4-05")
@pytest.mark.parametrize("fmt", [BINARY16, BINARY32, F143])
def test_products_have_the_format_of_their_inputs_unless_told_otherwise(fmt):
    device = Device(MK2_FP8)
    x = device.from_host(np.eye(3), fmt)
    images = x.reshape((1, 3, 3, 1))
    for result in (device.matmul(x, x), device.conv2d(images, x.reshape((3, 3, 1, 1)))):
        assert result.context is device.context(fmt)


def test_a_result_in_single_holds_what_overflows_in_half():
    device = Device()
    x = device.from_host([[300.0] * 4], BINARY16)
    assert device.matmul(x, x.T).values.tolist() == [[65504.0]]
    device.clear_status()
    assert device.matmul(x, x.T, to=BINARY32).values.tolist() == [[360000.0]]
    assert device.status == FpSts()


@pytest.mark.source("poplibs: disableSRForAMPVertices")
def test_stochastic_rounding_can_stop_at_the_units():
    x = np.full((64, 32), 0.3)
    results = {}
    for control, disable in ((FpCtl(esr=True), True), (FpCtl(), False), (FpCtl(esr=True), False)):
        device = Device(control=control, disable_sr_for_amp_vertices=disable, partials=BINARY16)
        a = device.from_host(x, BINARY16)
        results[control.esr, disable] = device.matmul(a, a.T)
        assert device.clock.operation == int(control.esr)
        assert device.control == control
    quiet = results[True, True]
    assert (quiet.codes() == results[False, False].codes()).all()
    assert (quiet.codes() != results[True, False].codes()).any()
    # What follows outside the units is stochastic again.
    assert len(set((quiet + 1e-3).values.ravel().tolist())) == 2


@pytest.mark.parametrize("verb", ["matmul", "conv2d", "conv2d_input_gradient"])
def test_the_old_keyword_of_a_results_format_is_told_the_new_one(verb):
    device = Device()
    x = device.from_host(np.ones((1, 1, 1, 1)), "half")
    operands = {
        "matmul": (x.reshape(1, 1), x.reshape(1, 1)), "conv2d": (x, x),
        "conv2d_input_gradient": (x, x, x.shape),
    }[verb]
    with pytest.raises(TypeError, match=r"out=binary32 .*; the format of .* is to=binary32"):
        getattr(device, verb)(*operands, out=BINARY32)
    named = getattr(device, verb)(*operands, to="single", partials="binary32")
    assert named.format == BINARY32
    assert device.cast(named, "fp16").format == BINARY16
