"""Convolutions of a device: the unit's own result (differential), the rule, ledger, registers."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BINARY16, BINARY32, F143, FloatingPointTrap, linalg
from ipu.machine import MK2_FP8, Device, FpCtl, FpSts
from tests.tiers import pick, reaches


def arrays(device, x, w, fmt=BINARY16, seed=1):
    rng = np.random.default_rng(seed)
    return [device.from_host(rng.standard_normal(shape), fmt) for shape in (x, w)]


#: Channels, outputs, groups, and the units of the product and of both gradients.
CHOICES = [
    (16, 13, 1, ("AMP", "AMP", "AMP")), (3, 8, 1, ("SLIC", "AMP", "AMP")),
    (4, 4, 2, ("SLIC", "SLIC", "AMP")), (12, 2, 2, ("VMAC", "SLIC", "AMP")),
]
BOTH = [(*choice, partials) for choice in CHOICES for partials in (BINARY16, BINARY32)]
#: Each choice once, one of them by the preset of the device: the quick tier takes units and lengths
#: of passes whose kernels other tests run.
EACH = [BOTH[0], BOTH[3], BOTH[5], BOTH[7]]


@pytest.mark.parametrize(
    ("channels", "outputs", "groups", "units", "partials"), pick(EACH, BOTH, BOTH)
)
def test_each_product_takes_the_unit_of_its_k_channels(channels, outputs, groups, units, partials):
    preset = "exact" if partials == BINARY16 or reaches("full") else "window"
    device = Device(conv_partials=partials, preset=preset)
    x, w = arrays(device, (2, 5, 6, channels), (3, 2, channels // groups, outputs))
    options = {"stride": (2, 1), "groups": groups}
    short = "F16" if partials == BINARY16 else "F32"
    names = [f"{unit}_F16_{short}" + ".exact" * (preset == "exact") for unit in units]
    y = device.conv2d(x, w, **options)
    same = {"context": device.context(BINARY16), "subnormals": "flush_both", **options}
    results = [y, device.conv2d_input_gradient(y, w, x.shape, **options),
             device.conv2d_weight_gradient(x, y, w.shape, **options)]
    assert [unit for _, _, unit in device.ledger.rows] == names
    wanted = [linalg.conv2d(x, w, names[0], **same),
              linalg.conv2d_input_gradient(y, w, names[1], x.shape, **same),
              linalg.conv2d_weight_gradient(x, y, names[2], w.shape, **same)]
    for got, want in zip(results, wanted, strict=True):
        assert (got.codes() == want.codes()).all()
        assert got.context is device.context(BINARY16)


def test_a_stride_of_three_is_not_for_the_slic():
    device = Device()
    x, w = arrays(device, (1, 7, 7, 3), (3, 3, 3, 2))
    device.conv2d(x, w, stride=(1, 3))
    assert device.ledger.last.unit == "VMAC_F16_F32"
    device.conv2d(x, w, stride=(1, 3), unit="slic_f16_f32.sticky", partials=BINARY16)
    assert device.ledger.last.unit == "SLIC_F16_F16.sticky"
    with pytest.raises(ValueError, match="stride=0 is no step"):
        device.conv2d(x, w, stride=0)
    with pytest.raises(ValueError, match="target=mk2 has no unit SLIC_F8_F16; use one of"):
        device.conv2d(x, w, unit="SLIC_F8_F16")
    with pytest.raises(ValueError, match="give images"):
        device.conv2d(x, x.reshape((7, 21)))


def test_single_convolutions_with_few_channels_go_to_the_vector_mac():
    device = Device()
    x, w = arrays(device, (1, 4, 4, 1), (3, 3, 1, 2), BINARY32)
    device.conv2d(x, w)
    assert device.ledger.last.unit == "VMAC_F32_F32"
    assert device.ledger.last.weight_loads == 0


def test_quarters_convolve_into_halves():
    device = Device(MK2_FP8)
    x, w = arrays(device, (1, 4, 4, 32), (1, 1, 32, 16), F143)
    y = device.conv2d(x, w, to=BINARY16, scale=3)
    assert y.format == BINARY16
    same = {"context": device.context(BINARY16), "subnormals": "flush_both"}
    assert (y.codes() == linalg.conv2d(x, w, "AMP_F8_F16", scale=3, **same).codes()).all()
    assert device.ledger.last.macs == device.ledger.last.useful


def test_convolutions_trap_and_name_the_tensor():
    device = Device(control=FpCtl(oflo=True))
    x = device.from_host(np.full((1, 1, 2, 4), 300.0), BINARY16)
    w = device.from_host(np.full((1, 1, 4, 1), 300.0), BINARY16)
    with device.naming("stem"), pytest.raises(FloatingPointTrap, match="in stem") as caught:
        device.conv2d(x, w)
    assert caught.value.index == (0, 0, 0, 0)
    assert device.ledger.last is None


def test_convolutions_are_counted_by_tensor():
    device = Device(count=True)
    x = device.from_host(np.full((1, 1, 2, 4), 300.0), BINARY16)
    w = device.from_host(np.full((1, 1, 4, 1), 300.0), BINARY16)
    with device.naming("stem"):
        y = device.conv2d(x, w)
    with device.naming("stem/gradient"):
        device.conv2d_weight_gradient(x, y, w.shape)
    assert device.status == FpSts(oflo=True)
    assert device.counts["stem", "conv2d"]["OVERFLOW"] == 2
    assert device.counts["stem/gradient", "conv2d_weight_gradient"]["results"] == 4


def test_stochastic_convolutions_can_be_kept_out():
    x, w = (np.full(shape, 0.3) for shape in ((2, 4, 4, 16), (3, 3, 16, 8)))
    results = []
    for disable in (False, True):
        device = Device(control=FpCtl(esr=True), disable_sr_for_amp_vertices=disable)
        y = device.conv2d(device.from_host(x, BINARY16), device.from_host(w, BINARY16))
        results.append(y.codes())
        assert device.clock.operation == 1
    nearest = Device(control=FpCtl())
    y = nearest.conv2d(nearest.from_host(x, BINARY16), nearest.from_host(w, BINARY16))
    assert np.array_equal(results[1], y.codes())
    assert not np.array_equal(results[0], y.codes())
