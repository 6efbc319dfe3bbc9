"""Units of the IPU: AMP and vector multiply-accumulate, presets, evidence (golden, corners)."""

from __future__ import annotations

import numpy as np
import pytest

import fpsim as fp
from fpsim import BINARY16, BINARY32
from fpsim.records.evidence import Evidence
from fpsim.records.units import find_unit
from ipu.machine.units.amp import AMP_UNITS
from ipu.machine.units.presets import PRESETS
from ipu.machine.units.slic import SLIC_UNITS
from ipu.machine.units.vmac import VMAC_UNITS
from tests.fpsim.in_partials import matmul


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


HALF = fp.Context(fp.BINARY16)


def normal(shape, seed=0, context=HALF):
    return context.array(np.random.default_rng(seed).standard_normal(shape))


def test_the_vector_mac_rounds_into_half_once():
    """Its pass is the whole of K, where the AMP stores seven times."""
    a, b = normal((9, 100)), normal((100, 7), 1)
    wide = matmul(a, b, "VMAC_F16_F32", context=fp.Context(fp.BINARY32)).to(fp.BINARY16).values
    assert np.array_equal(matmul(a, b, "VMAC_F16_F16").values, wide)
    assert not np.array_equal(matmul(a, b, "AMP_F16_F16").values, wide)


def test_the_vector_mac_of_binary32_is_a_chain_of_fused_multiply_adds():
    single = fp.Context(fp.BINARY32)
    a, b = normal((1, 37), 2, single), normal((37, 1), 3, single)
    wanted = single.array(0.0)
    for k in range(37):
        wanted = single.fma(a[0, k], b[k, 0], wanted)
    assert float(matmul(a, b, "VMAC_F32_F32").values[0, 0]) == float(wanted)
