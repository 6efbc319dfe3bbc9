"""Convolutions and batches of products by a recipe: what they are the same as (law, corners)."""

from __future__ import annotations

import numpy as np
import pytest

import fpsim as fp
from fpsim.records.recipes import find_recipe
from ipu import ops
from ipu.machine import Device
from ipu.ops import dense
from ipu.ops.dense import LayerRecipe
from ipu.ops.passes import DensePass, Which, product
from tests.ipu.ops.dense_law import convolution_passes, images

#: Kernel, stride, padding, dilation.
EXTENTS = {
    "usual": ((3, 3), 1, "SAME", 1), "strides": ((3, 2), (2, 3), "SAME", 1),
    "gaps": ((2, 3), 2, ((2, 1), (0, 3)), (2, 1)), "valid": ((1, 5), 1, "VALID", 1),
    "far": ((2, 2), 3, ((4, 4), (3, 0)), 1), "unseen": ((1, 1), 2, "VALID", 1),
}


def device():
    return Device("hypothetical", seed=3)


@pytest.mark.parametrize("extents", EXTENTS)
@pytest.mark.parametrize("name", ["mxfp8", "nvfp4-plain", "fp8-current"])
def test_small_whole_numbers_give_the_convolution_itself(name, extents):
    """Numbers that every element holds, whose sums no unit cuts: only places could be wrong."""
    size, stride, padding, dilation = EXTENTS[extents]
    options = {"stride": stride, "padding": padding, "dilation": dilation}
    rng = np.random.default_rng(1)
    machine, how = device(), LayerRecipe(find_recipe(name), "layer")

    def numbers(*shape):
        """One, zero and minus one; a block's largest magnitude is one or zero."""
        return machine.from_host(rng.integers(-1, 2, shape).astype("f4"), fp.BFLOAT16)

    x, w = numbers(2, 9, 8, 6), numbers(*size, 6, 5)
    y, saved = ops.conv2d.forward(machine, x, w, recipe=how, **options)
    plain, _ = ops.conv2d.forward(machine, x, w, **options)
    np.testing.assert_array_equal(y.values, plain.values)
    dy = numbers(*y.shape)
    for argument in (0, 1):
        slope = ops.conv2d.pull(argument, machine, dy, saved, recipe=how, **options)
        wanted = ops.conv2d.pull(argument, machine, dy, saved, **options)
        np.testing.assert_array_equal(slope.values, wanted.values)
    assert find_recipe(name).forward.unit in machine.units_used


def windows_one_by_one(x, kernel, stride):
    """Windows of images without padding, as rows."""
    height, width = kernel
    return np.array([
        image[i : i + height, j : j + width].reshape(-1)
        for image in x
        for i in range(0, image.shape[0] - height + 1, stride)
        for j in range(0, image.shape[1] - width + 1, stride)
    ])


@pytest.mark.parametrize("name", ["mxfp8", "nvfp4", "mxfp4+sr34+rht64", "fp8-delayed"])
def test_a_convolution_is_the_dense_layer_of_its_windows(name):
    x, w, dy = images((2, 7, 6, 5), (3, 2, 5, 8), 2)
    y, _, dw = convolution_passes(name, x, w, dy, stride=2, padding="VALID", order=(1,))
    machine, how = device(), LayerRecipe(find_recipe(name), "layer")
    rows, matrix, slopes = (
        machine.from_host(v, fp.BFLOAT16)
        for v in (windows_one_by_one(x, (3, 2), 2), w.reshape(-1, 8).T, dy.reshape(-1, 8))
    )
    wanted = dense.forward(machine, rows, matrix, how, fp.BFLOAT16)
    np.testing.assert_array_equal(y.reshape(-1, 8), wanted.values)
    wanted = dense.weight_gradient(machine, slopes, rows, how, fp.BFLOAT16)
    np.testing.assert_array_equal(dw.reshape(-1, 8).T, wanted.values)


def test_groups_and_products_that_a_recipe_leaves_out_stay_in_the_layers_format():
    x, w, dy = images((1, 6, 6, 4), (3, 3, 2, 8), 1)
    for name, options in (("nvfp4", {"groups": 2}), ("mxfp8+fprop=bf16+dgrad=bf16+wgrad=bf16", {})):
        kernel = w if options else np.concatenate([w, w], axis=2)
        by_recipe = convolution_passes(name, x, kernel, dy, **options)
        plain = convolution_passes(None, x, kernel, dy, **options)
        for one, other in zip(by_recipe, plain, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", ["nvfp4", "fp8-current"])
def test_batches_are_products_one_after_the_other(name):
    how, rng = LayerRecipe(find_recipe(name), "layer"), np.random.default_rng(2)
    values = [rng.standard_normal(s) for s in ((3, 10, 24), (3, 24, 16), (3, 10, 16))]
    whole, parts = device(), device()
    x, w, dy = (whole.from_host(v, fp.BFLOAT16) for v in values)
    y, saved = ops.matmul.forward(whole, x, w, recipe=how)
    dx, dw = (ops.matmul.pull(i, whole, dy, saved, recipe=how) for i in (0, 1))
    split = [[parts.from_host(v[i], fp.BFLOAT16) for v in values] for i in range(3)]
    wanted = [ops.matmul.forward(parts, a, b, recipe=how) for a, b, _ in split]
    slopes = [
        [ops.matmul.pull(i, parts, c, s, recipe=how) for (_, s), (*_, c) in
         zip(wanted, split, strict=True)] for i in (0, 1)
    ]
    for one, others in ((y, [z for z, _ in wanted]), (dx, slopes[0]), (dw, slopes[1])):
        np.testing.assert_array_equal(one.values, np.stack([o.values for o in others]))


@pytest.mark.parametrize("which", Which)
def test_batches_know_their_pass_whichever_side_the_weight_is(which):
    how = LayerRecipe(find_recipe("mxfp8"))
    rng = np.random.default_rng(3)
    shapes = {
        Which.FORWARD: ((2, 8, 32), (2, 32, 8)), Which.INPUT_GRADIENT: ((2, 8, 32), (2, 32, 8)),
        Which.WEIGHT_GRADIENT: ((2, 8, 32), (2, 32, 8)),
    }
    machine = device()
    a, b = (machine.from_host(rng.standard_normal(s), fp.BFLOAT16) for s in shapes[which])
    usual = product(machine, a, b, DensePass(which, is_left=False), how, partials=fp.BINARY32)

    def turned(x):
        return x.like(x.carrier.swapaxes(-1, -2))

    other = product(
        machine, turned(b), turned(a), DensePass(which, is_left=True), how, partials=fp.BINARY32
    )
    np.testing.assert_array_equal(usual.values, turned(other).values)


def test_einsum_is_a_layer_by_its_recipe():
    how, rng = LayerRecipe(find_recipe("mxfp8")), np.random.default_rng(4)
    machine = device()
    x = machine.from_host(rng.standard_normal((2, 5, 32)), fp.BFLOAT16)
    w = machine.from_host(rng.standard_normal((32, 3, 4)), fp.BFLOAT16)
    z = ops.einsum.value(
        machine, x, w, equation="abc,cde->abde",
        dense=ops.DenseEinsum(DensePass(Which.FORWARD, is_left=False), how),
    )
    rows = dense.forward(machine, x.reshape(10, 32), w.reshape(32, 12).T, how, fp.BFLOAT16)
    np.testing.assert_array_equal(z.values.reshape(10, 12), rows.values)
