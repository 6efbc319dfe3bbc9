"""The AMP unit: sizes of a pass (golden), presets, evidence."""

from __future__ import annotations

import pytest

from fpsim import BINARY16, BINARY32
from fpsim.records.units import find_unit
from ipu.machine.units.amp import AMP_UNITS


@pytest.mark.parametrize(
    ("name", "channels"),
    [("AMP_F16_F32", 16), ("AMP_F16_F16", 16), ("AMP_F8_F16", 32), ("AMP_F32_F32", 8),
     ("AMP_BF16_F32", 16)],
)
def test_a_pass_takes_the_channels_of_the_instruction(name, channels):
    assert find_unit(name).channels == channels


def test_the_units_of_sixteen_bits_have_all_presets_and_the_f32_unit_none():
    names = [unit.name for unit in AMP_UNITS]
    assert [n for n in names if n.startswith("AMP_F16_F32")] == [
        "AMP_F16_F32", "AMP_F16_F32.sticky", "AMP_F16_F32.exact", "AMP_F16_F32.sequential_f32",
    ]
    assert [n for n in names if n.startswith("AMP_F32")] == ["AMP_F32_F32"]


def test_partials_tell_the_two_units_of_halves_apart():
    wide, narrow = find_unit("AMP_F16_F32"), find_unit("AMP_F16_F16")
    assert (wide.partials, narrow.partials) == (BINARY32, BINARY16)
    assert (wide.window, wide.terms, wide.calls) == (narrow.window, narrow.terms, narrow.calls)
