"""Presets of units: all are there, and say what they rest on (corners)."""

from __future__ import annotations

import pytest

from fpsim.records.evidence import Evidence
from fpsim.records.units import find_unit
from ipu.machine.units.presets import PRESETS
from ipu.machine.units.slic import SLIC_UNITS
from ipu.machine.units.vmac import VMAC_UNITS


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_of_every_half_unit_are_there(preset):
    for family in ("AMP_F16_F32", "SLIC_F16_F16", "SLIC_F8_F16", "VMAC_F16_F32", "VMAC_F16_F16"):
        unit = find_unit(f"{family}.{preset}")
        assert unit.preset == preset
        assert unit.channels == find_unit(family).channels or unit.calls is None


def test_what_is_not_known_says_so():
    for unit in (*SLIC_UNITS, *VMAC_UNITS):
        assert unit.facts["rounding"].evidence is Evidence.ASSUMED
        assert {"terms", "calls", "order"} <= unit.facts.keys()
    assert find_unit("SLIC_F16_F32").facts["taps"].evidence is Evidence.DOCUMENTED
    assert find_unit("SLIC_F16_F32").facts["window"].evidence is Evidence.INFERRED
    assert find_unit("VMAC_F16_F32").facts["calls"].evidence is Evidence.ASSUMED
