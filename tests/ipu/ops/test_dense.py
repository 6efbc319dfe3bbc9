"""A dense layer's three passes by a recipe (law, corners, golden)."""

from __future__ import annotations

import numpy as np
import pytest

import fpsim as fp
from fpsim import recipe_products
from fpsim.records.recipes import RECIPES, find_recipe
from ipu import ops
from ipu.machine import Device
from ipu.machine.delayed import Moment
from ipu.ops.dense import LayerRecipe
from ipu.ops.passes import DensePass, Which, product
from tests.ipu.ops.dense_law import layer_bits, operands

VARIANTS = [*RECIPES, "mxfp4+sr34+rht64", "nvfp4-plain+dy=sr", "nvfp4-rht+2d", "mxfp4+2d"]


def device(**options):
    return Device("hypothetical", seed=3, **options)


def arrays(machine, shape):
    return [machine.from_host(values, fp.BFLOAT16) for values in operands(*shape)]


@pytest.mark.parametrize("name", VARIANTS)
def test_whole_shapes_are_the_products_of_fpsim(name):
    machine, how = device(), LayerRecipe(find_recipe(name), "l")
    x, w, dy = arrays(machine, (128, 256, 128))
    y, saved = ops.matmul.forward(machine, x, w, recipe=how)
    dx = ops.matmul.pull(0, machine, dy, saved, recipe=how)
    dw = ops.matmul.pull(1, machine, dy, saved, recipe=how)
    context = fp.Context("bfloat16", seed=3)
    a, b, c = (context.array(v.values) for v in (x, w.T, dy))
    recipe = how.recipe
    if recipe.history is not None:  # the first scale is 1
        options = recipe_products.OperandOptions((1.0, 1.0))
    else:
        options = recipe_products.PLAIN
    expected = [
        recipe_products.forward(context, a, b, recipe, options),
        recipe_products.input_gradient(context, c, b, recipe, options),
        recipe_products.weight_gradient(context, c, a, recipe, options).T,
    ]
    for one, other in zip((y, dx, dw), expected, strict=True):
        np.testing.assert_array_equal(one.codes(), other.codes())
    assert machine.clock.operation == context.operation


@pytest.mark.parametrize("name", ["nvfp4", "mxfp4+sr34+rht64", "fp8-current", "fp8-deepseek"])
def test_ragged_shapes_are_those_filled_up_with_zeros(name):
    ragged, (rows, inner, columns) = (10, 50, 70), (128, 128, 128)
    machine, how = device(), LayerRecipe(find_recipe(name))
    small = arrays(machine, ragged)
    filled = device()
    large = [
        filled.from_host(np.pad(v.values, [(0, a - n) for n, a in zip(v.shape, s, strict=True)]),
                         fp.BFLOAT16)
        for v, s in zip(small, ((rows, inner), (inner, columns), (rows, columns)), strict=True)
    ]
    results = []
    for m, (x, w, dy) in ((machine, small), (filled, large)):
        y, saved = ops.matmul.forward(m, x, w, recipe=how)
        results.append([y, *(ops.matmul.pull(i, m, dy, saved, recipe=how) for i in (0, 1))])
    stochastic = how.recipe.is_stochastic  # whose bits are those of other elements
    for one, other in zip(*results, strict=True):
        part = other.values[: one.shape[0], : one.shape[1]]
        if stochastic:
            assert np.linalg.norm(one.values - part) < 0.4 * np.linalg.norm(part)
        else:
            np.testing.assert_array_equal(one.values, part)


@pytest.mark.parametrize("name", ["nvfp4", "mxfp4+sr34+rht64", "mxfp8"])
def test_threads_move_no_bit(name):
    before = fp.get_threads()
    outputs = []
    try:
        for threads in (1, 2):
            fp.set_threads(threads)
            outputs.append(layer_bits(name, (600, 96, 160)))
    finally:
        fp.set_threads(before)
    assert outputs[0] == outputs[1]


@pytest.mark.parametrize("which", Which)
@pytest.mark.parametrize("is_left", [False, True])
def test_a_weight_on_either_side_has_the_same_bits(which, is_left):
    how = LayerRecipe(find_recipe("nvfp4"))
    machine, turned = device(), device()
    x, w, dy = arrays(machine, (32, 48, 64))
    pairs = {
        Which.FORWARD: (x, w), Which.INPUT_GRADIENT: (dy, w.T), Which.WEIGHT_GRADIENT: (dy.T, x),
    }
    a, b = pairs[which]
    usual = product(machine, a, b, DensePass(which, is_left=False), how, partials=fp.BINARY32)
    other = product(turned, b.T, a.T, DensePass(which, is_left=True), how, partials=fp.BINARY32)
    np.testing.assert_array_equal(usual.codes(), other.T.codes())
    if is_left:
        assert other.shape == usual.shape[::-1]


def test_a_product_that_a_recipe_leaves_out_goes_through_its_formats_unit():
    machine = device()
    x, w, dy = arrays(machine, (32, 48, 64))
    how = LayerRecipe(find_recipe("nvfp4+wgrad=bf16"))
    _, saved = ops.matmul.forward(machine, x, w, recipe=how)
    plain = ops.matmul.pull(1, device(), dy, saved)
    by_recipe = ops.matmul.pull(1, machine, dy, saved, recipe=how)
    np.testing.assert_array_equal(plain.codes(), by_recipe.codes())


def test_no_ipu_has_units_of_blocks():
    machine = Device("mk2")
    x = machine.from_host(np.ones((32, 32)), fp.BINARY16)
    how = LayerRecipe(find_recipe("mxfp8"))
    with pytest.raises(ValueError, match="target=mk2, which has no unit that takes blocks; use "):
        ops.matmul.forward(machine, x, x, recipe=how)


def test_both_uses_of_an_activation_have_one_delayed_scale():
    machine, recipe = device(), find_recipe("fp8-delayed")
    events = []
    machine.blocks.observe = events.append
    for step, size in enumerate((1.0, 8.0)):
        how = LayerRecipe(recipe, "l", Moment(step))
        x, w, dy = (machine.from_host(size * v, fp.BFLOAT16) for v in operands(128, 128, 128))
        _, saved = ops.matmul.forward(machine, x, w, recipe=how)
        ops.matmul.pull(1, machine, dy, saved, recipe=how)
    scales = {(e.product, e.operand): float(e.blocks.scales[0, 0]) for e in events[4:]}
    assert scales["forward", "x"] == scales["weight_gradient", "x"]
    largest = float(np.abs(fp.round_to(operands(128, 128, 128)[0], fp.BFLOAT16)).max())
    assert scales["forward", "x"] == 1 / np.float32(448 / np.float32(largest))


def test_layer_digest():
    """What `fpsim` of another version must give too: a layer of 40 inputs and 24 outputs."""
    assert layer_bits("nvfp4", (20, 40, 24)) == GOLDEN


GOLDEN = "0b5d135ab59f"
