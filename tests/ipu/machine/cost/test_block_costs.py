"""Rows of products in blocks in the ledger (law, corners)."""

from __future__ import annotations

import numpy as np
import pytest

import fpsim as fp
from fpsim.records.blocks import BLOCKS
from fpsim.records.recipes import RECIPES, find_recipe
from ipu import ops
from ipu.machine import Device
from ipu.machine.cost.blocks import BlockOperand
from ipu.ops.dense import LayerRecipe

SHAPE = 20, 40, 24


@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.parametrize("axis", [0, 1])
def test_bytes_are_those_that_a_block_array_stores(name, axis):
    x = fp.quantize(np.ones((256, 128), "f4"), name, axis=axis)
    scale_of_tensor = 0 if x.tensor_amax is None else 4
    stored = x.codes.nbytes + x.scales.nbytes + scale_of_tensor
    if x.block.element.bits == 6:  # a byte holds one code here, as in no memory of a machine
        stored -= x.codes.nbytes // 4
    assert BlockOperand(x.block, x.shape, axis).nbytes == stored


@pytest.mark.parametrize("name", RECIPES)
def test_every_pass_is_in_the_ledger(name):
    machine, how = Device("hypothetical", seed=3), LayerRecipe(find_recipe(name))
    tokens, inputs, outputs = SHAPE
    x, w, dy = (
        machine.from_host(np.ones(s), fp.BFLOAT16)
        for s in ((tokens, inputs), (inputs, outputs), (tokens, outputs))
    )
    y, saved = ops.matmul.forward(machine, x, w, recipe=how)
    rows = [machine.ledger.last]
    assert rows[0].operand_cycles > 0
    assert 0 <= rows[0].split_saving < rows[0].cycles
    for argument in (0, 1):
        ops.matmul.pull(argument, machine, dy, saved, recipe=how)
        rows.append(machine.ledger.last)
    assert [row.verb for row in rows] == [
        "forward in blocks", "input gradient in blocks", "weight gradient in blocks"]
    for row, product in zip(rows, how.recipe.rules.values(), strict=True):
        assert row.unit == product.unit
        assert row.useful == tokens * inputs * outputs <= row.macs
        assert row.cycles > 0
        assert row.evidence == "ASSUMED"
    assert y.shape == (tokens, outputs)


def test_narrower_elements_cost_fewer_cycles_and_bytes():
    costs = []
    for name in ("mxfp8", "mxfp4"):
        machine, how = Device("hypothetical"), LayerRecipe(find_recipe(name))
        x = machine.from_host(np.ones((512, 4096)), fp.BFLOAT16)
        w = machine.from_host(np.ones((4096, 512)), fp.BFLOAT16)
        ops.matmul.forward(machine, x, w, recipe=how)
        costs.append(machine.ledger.last)
        plain = machine.matmul(x, w)
    eight, four = costs
    wide = machine.ledger.last
    assert plain.shape == (512, 512)
    assert four.cycles < eight.cycles < wide.cycles
    assert (eight.operand_bytes, four.operand_bytes) == (2 * 512 * 4096 * 33 // 32,
                                                         2 * 512 * 4096 * 17 // 32)


def test_a_batch_and_a_convolution_count_what_they_multiply():
    machine, how = Device("hypothetical"), LayerRecipe(find_recipe("mxfp8"))
    x = machine.from_host(np.ones((3, 8, 32)), fp.BFLOAT16)
    w = machine.from_host(np.ones((3, 32, 16)), fp.BFLOAT16)
    ops.matmul.forward(machine, x, w, recipe=how)
    (total,) = machine.ledger.rows.values()
    assert (total.products, total.useful) == (3, 3 * 8 * 32 * 16)
    machine.ledger.clear()
    images = machine.from_host(np.ones((2, 5, 5, 32)), fp.BFLOAT16)
    kernel = machine.from_host(np.ones((3, 3, 32, 16)), fp.BFLOAT16)
    ops.conv2d.forward(machine, images, kernel, padding="VALID", recipe=how)
    (total,) = machine.ledger.rows.values()
    assert total.useful == 2 * 3 * 3 * 16 * 3 * 3 * 32
