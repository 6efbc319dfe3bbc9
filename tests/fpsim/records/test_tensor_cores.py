"""Tensor cores: the table as the sources have it (golden)."""

from __future__ import annotations

import pytest

import fpsim as fp
from fpsim.records.evidence import Evidence
from fpsim.records.tensor_cores import BINARY32_SHORT, TENSOR_CORES
from fpsim.records.units import UNITS, find_unit


def test_every_tensor_core_is_registered_under_its_name():
    assert len({unit.name for unit in TENSOR_CORES}) == len(TENSOR_CORES) == 54
    assert all(UNITS[unit.name] is unit for unit in TENSOR_CORES)


@pytest.mark.source("MMA-Sim, commit c785138; Fasi et al. 2021")
@pytest.mark.parametrize(
    ("name", "terms", "window"),
    [
        ("V100_F16_F32", 4, 23), ("T4_F16_F16", 8, 24), ("A100_BF16_F32", 8, 24),
        ("A2_TF32_F32", 4, 24), ("ADA_F16_F16", 8, 24), ("L40S_TF32_F32", 4, 24),
        ("H100_F16_F32", 16, 25), ("H200_TF32_F32", 4, 25), ("B200_BF16_F32", 16, 25),
        ("ADA_E4M3_F16", 16, 13), ("H100_E5M2_F32", 32, 13), ("B200_MMA_E5M2_F32", 16, 25),
    ],
)
def test_terms_and_window(name, terms, window):
    unit = find_unit(name)
    assert (unit.terms, unit.window) == (terms, window)


@pytest.mark.parametrize("unit", TENSOR_CORES, ids=str)
def test_rows_round_as_the_formats_of_their_partials_do(unit):
    """Toward zero into binary32, to nearest even into binary16; only FP8 has short results."""
    assert unit.rounding == (fp.RNE if unit.partials == fp.BINARY16 else fp.RTZ)
    short = {"ADA", "L40S", "H100", "H200"} if unit.name.endswith(("E4M3_F32", "E5M2_F32")) else ()
    part = unit.name.partition("_")[0]
    assert unit.accumulator == (BINARY32_SHORT if part in short else unit.partials)
    assert unit.join in (None, unit.partials)
    assert (unit.join is None) == (unit.order == "ascending") == (unit.calls == 1)


def test_what_sources_dispute_is_inferred():
    fact = find_unit("H100_TF32_F32").facts["terms"]
    assert (fact.value, fact.evidence) == (4, Evidence.INFERRED)
    assert "8 in MMA-Sim" in fact.source
    assert find_unit("H100_E4M3_F16").weakest_evidence is Evidence.INFERRED
