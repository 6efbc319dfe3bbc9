"""Matrix instructions: their widths and rates (golden), and which one a unit takes."""

from __future__ import annotations

from fpsim import BINARY16
from fpsim.records.units import find_unit
from ipu.machine import HYPOTHETICAL, MK1, MK2, MK2_FP8, TARGETS


def test_slic_and_vector_mac_come_in_all_forms():
    names = {
        t.name: {i.name for i in t.instructions if "amp" not in i.name} for t in (MK1, MK2, MK2_FP8)
    }
    slim = {f"f16v4{form}slic" for form in ("hiho", "siho", "siso")} | {"f32sisoslic"}
    assert names["mk1"] == slim | {"f16v4cmac", "f32v2mac"}
    assert names["mk2"] == names["mk1"] | {"f16v4hihov4slic"}
    assert names["mk2-fp8"] == names["mk2"] | {"f8v8hihov4slic"}


def test_a_slic_makes_two_or_four_outputs_of_sixteen_products_per_instruction():
    rates = {i.name: i.macs.value for i in MK2_FP8.instructions}
    assert (rates["f16v4hihoslic"], rates["f16v4hihov4slic"]) == (2 * 16, 4 * 16)
    assert rates["f8v8hihov4slic"] == 4 * 32
    assert rates["f16v4hihov4amp"] == rates["f16v4hihov4slic"]


def test_records_name_their_instructions():
    for target in TARGETS.values():
        for instruction in target.instructions:
            if target is not HYPOTHETICAL:
                assert instruction.name in instruction.unit.instruction, instruction.name


def test_a_machine_does_its_units_times_terms_per_cycle():
    """Eight or sixteen units with the terms of one call each; weights of 32 bytes per unit."""
    for target in TARGETS.values():
        for i in target.instructions:
            if "amp" in i.name:
                assert i.macs.value == i.columns * i.unit.terms
                assert i.weights.value == 32 * i.columns
                assert i.unit.channels * i.unit.inputs[0].bits == 8 * 32


def test_the_fastest_instruction_is_taken_and_single_passes_may_leave_halves():
    half, single = find_unit("AMP_F16_F16"), find_unit("AMP_F16_F32.exact")
    assert MK1.instruction(half).name == "f16v4hihoamp"
    assert MK2.instruction(half).name == "f16v4hihov4amp"
    assert MK2.instruction(single).name == "f16v4sisoamp"
    assert MK2.instruction(single, BINARY16).name == "f16v4sihoamp"
    assert MK1.instruction(find_unit("AMP_F32_F32")).macs.value == 8
