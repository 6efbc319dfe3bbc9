"""The rule that picks a unit (table by hand), and what overrides it."""

from __future__ import annotations

import pytest

from fpsim import BFLOAT16, BINARY16, BINARY32, E4M3FN, F143
from fpsim.records.units import UNITS
from ipu.machine import HYPOTHETICAL, MK2, MK2_FP8, Device
from ipu.machine.choice import ConvolutionTraits, choose, fitting_partials

#: Inputs, K-channels per group, groups, stride: the unit.
CHOSEN = [
    (BINARY16, 3, 1, 1, "SLIC_F16_F32"),
    (BINARY16, 3, 1, 2, "SLIC_F16_F32"),
    (BINARY16, 3, 1, 3, "VMAC_F16_F32"),
    (BINARY16, 4, 1, 1, "AMP_F16_F32"),
    (BINARY16, 64, 1, 3, "AMP_F16_F32"),
    (BINARY16, 4, 8, 1, "SLIC_F16_F32"),
    (BINARY16, 1, 32, 2, "SLIC_F16_F32"),
    (BINARY16, 5, 2, 1, "VMAC_F16_F32"),
    (BINARY32, 3, 1, 1, "VMAC_F32_F32"),
    (BINARY32, 16, 1, 1, "AMP_F32_F32"),
    (F143, 1, 1, 1, "SLIC_F8_F16"),
    (F143, 16, 1, 1, "AMP_F8_F16"),
    (F143, 16, 2, 1, "AMP_F8_F16"),
    (BFLOAT16, 1, 1, 1, "AMP_BF16_F32"),
]


@pytest.mark.parametrize(("inputs", "channels", "groups", "stride", "unit"), CHOSEN)
def test_the_rule(inputs, channels, groups, stride, unit):
    target = {F143: MK2_FP8, BFLOAT16: HYPOTHETICAL}.get(inputs, MK2)
    partials = fitting_partials(inputs, BINARY32, inputs)
    result = choose(target, inputs, partials, "window", ConvolutionTraits(channels, groups, stride))
    assert result is UNITS[unit]


def test_partials_and_preset_are_the_call_s():
    assert choose(MK2, BINARY16, BINARY16, "exact").name == "AMP_F16_F16.exact"
    slim = choose(MK2, BINARY16, BINARY16, "sticky", ConvolutionTraits(1, 1, 1))
    assert slim.name == "SLIC_F16_F16.sticky"
    assert choose(MK2, BINARY32, BINARY32, "exact").name == "AMP_F32_F32"


def test_what_no_unit_takes_is_refused_with_those_there_are():
    with pytest.raises(ValueError, match="target=mk2 has no unit for f143; use AMP_F16_F16, AMP_F"):
        choose(MK2, F143, BINARY16, "window")
    with pytest.raises(
        ValueError, match="e4m3fn is not an input of any unit of an IPU; use AMP_F16_F16"
    ):
        choose(MK2, E4M3FN, BINARY32, "window")
    with pytest.raises(
        ValueError, match="partials=binary16 is not offered by AMP_F32; use binary32"
    ):
        choose(MK2, BINARY32, BINARY16, "window")


@pytest.mark.source("S4-49")
@pytest.mark.parametrize(
    ("inputs", "wanted", "out", "partials"),
    [(BINARY16, BINARY16, BINARY16, BINARY16), (BINARY16, BINARY16, BINARY32, BINARY32),
     (BINARY16, BINARY32, BINARY16, BINARY32), (BINARY32, BINARY16, BINARY32, BINARY32),
     (F143, BINARY32, F143, BINARY16), (BFLOAT16, BINARY16, BFLOAT16, BINARY32)],
)
def test_options_for_partials_are_fitted_to_inputs_and_result(inputs, wanted, out, partials):
    assert fitting_partials(inputs, wanted, out) == partials


@pytest.mark.source("S4-49")
def test_options_take_the_words_of_poplibs():
    device = Device(partials="half", conv_partials="float")
    assert (device.partials, device.conv_partials) == (BINARY16, BINARY32)
    for wrong in ("double", F143):
        with pytest.raises(
            ValueError, match="is not a format of partials; use BINARY16 or BINARY32"
        ):
            Device(conv_partials=wrong)
