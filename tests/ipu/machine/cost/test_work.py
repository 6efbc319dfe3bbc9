"""The work of products in units: passes, blocks and positions by hand (golden)."""

from __future__ import annotations

import math

import pytest

from fpsim.products.unfold import order
from fpsim.records.units import find_unit
from ipu.machine import MK1, MK2
from ipu.machine.cost.work import Convolution, of_convolution, of_weight_gradient


@pytest.mark.parametrize("unit", ["AMP_F16_F16", "AMP_F32_F32", "SLIC_F16_F32", "SLIC_F32_F32"])
@pytest.mark.parametrize("kernel", [(1, 1), (3, 3), (2, 5)])
@pytest.mark.parametrize("depth", [1, 3, 4, 20])
def test_passes_are_those_of_the_order_of_k(unit, kernel, depth):
    instruction = MK2.instruction(find_unit(unit))
    work = of_convolution(Convolution((2, 5, 5, 8), kernel, depth, 1, 1), instruction)
    assert work.passes * instruction.unit.channels == len(order(kernel, depth, instruction.unit))
    assert work.useful == 2 * 25 * 8 * depth * math.prod(kernel)


def test_the_vector_mac_pads_the_whole_k():
    instruction = MK2.instruction(find_unit("VMAC_F16_F32"))
    work = of_convolution(Convolution((1, 4, 4, 6), (3, 3), 5, 1, 1), instruction)
    assert work == (16, 12, 6, 16 * 6 * 45)


@pytest.mark.source("poplibs: ConvVertexType.cpp")
@pytest.mark.parametrize(
    ("depth", "groups", "outputs", "blocks"),
    [(4, 1, 8, 2), (3, 1, 8, 2), (4, 2, 8, 2), (2, 8, 16, 4), (1, 8, 8, 2), (1, 6, 12, 4),
     (1, 3, 3, 1)],
)
def test_groups_share_the_four_channels_of_a_slic(depth, groups, outputs, blocks):
    instruction = MK2.instruction(find_unit("SLIC_F16_F16"))
    shape = Convolution((1, 6, 6, outputs), (3, 3), depth, groups, 1)
    assert of_convolution(shape, instruction).blocks == blocks


def test_a_slic_feeds_each_element_of_the_field_once():
    """Stride 2 halves the outputs of a row, not the elements that go by."""
    instruction = MK1.instruction(find_unit("SLIC_F16_F16"))
    plain, wide = (
        of_convolution(Convolution((1, 8, 8 // s, 4), (3, 3), 4, 1, s), instruction) for s in (1, 2)
    )
    assert (plain.positions, wide.positions) == (64, 64)
    assert wide.useful * 2 == plain.useful


def test_the_gradient_to_the_weights_has_the_field_as_k():
    instruction = MK2.instruction(find_unit("AMP_F16_F16"))
    work = of_weight_gradient((2, 5, 6, 40), (3, 3, 8, 40), 2, instruction)
    assert work == (3 * 3 * 8, 4, 2 * 2, 60 * 72 * 40)
