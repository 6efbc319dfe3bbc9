"""Recipes against products that are written out (law, differential)."""

from __future__ import annotations

import numpy as np
import pytest

import fpsim as fp
from fpsim.recipe_products import forward, input_gradient, weight_gradient
from fpsim.records.recipes import RECIPES, find_recipe


def operands(context: fp.Context) -> tuple[fp.Array, fp.Array, fp.Array]:
    rng = np.random.default_rng(6)
    shapes = (256, 128), (384, 128), (256, 384)
    x, w, dy = (context.array(rng.standard_normal(s)) for s in shapes)
    return x, w, dy


@pytest.mark.parametrize("name", RECIPES)
def test_each_product_is_near_the_exact_one(name):
    context = fp.Context("bfloat16")
    x, w, dy = operands(context)
    # Gradients in E5M2, which has three digits, to nearest, or stochastically with twice the error.
    bound = 0.25 if "4" in name else 0.12 if name == "fp8-unit" else 0.07
    for result, exact in (
        (forward(context, x, w, name), x.values @ w.values.T),
        (input_gradient(context, dy, w, name), dy.values @ w.values),
        (weight_gradient(context, dy, x, name), dy.values.T @ x.values),
    ):
        assert result.format == fp.BFLOAT16
        assert result.shape == exact.shape
        assert np.linalg.norm(result.values - exact) < bound * np.linalg.norm(exact)


def test_nvfp4_written_out():
    context, by_hand = (fp.Context("bfloat16", seed=2) for _ in range(2))
    x, w, dy = operands(context)
    unit, mode = "B200_TC05_NVF4_F32", fp.SR(bits=8)
    passes = [
        forward(context, x, w, "nvfp4"), input_gradient(context, dy, w, "nvfp4"),
        weight_gradient(context, dy, x, "nvfp4"),
    ]
    of_w = by_hand.quantize(w, "nvfp4-2d", 1)
    expected = [by_hand.matmul(by_hand.quantize(x, "nvfp4", 1), of_w.T, unit)]
    of_dy = by_hand.quantize(dy, "nvfp4", 1, rounding=mode)
    expected.append(by_hand.matmul(of_dy, of_w.along(0), unit))
    turned = by_hand.quantize(dy, "nvfp4", 0, rounding=mode, transform="rht16")
    of_x = by_hand.quantize(x, "nvfp4", 0, transform="rht16")
    expected.append(by_hand.matmul(turned.T, of_x, unit))
    for one, other in zip(passes, expected, strict=True):
        np.testing.assert_array_equal(one.codes(), other.codes())
    assert context.operation == by_hand.operation == 2  # the gradients, along both axes
    # The weights of the backward pass are those of the forward pass.
    assert (of_w.along(0).values == of_w.values).all()


def test_unknown_recipes_and_ragged_shapes_are_refused():
    context = fp.Context("bfloat16")
    with pytest.raises(ValueError, match="Did you mean 'nvfp4'"):
        find_recipe("nvfp5")
    with pytest.raises(TypeError, match="no Recipe"):
        find_recipe(None)
    x, w = context.array(np.ones((4, 30))), context.array(np.ones((8, 30)))
    with pytest.raises(ValueError, match="fill it up with zeros to 32"):
        forward(context, x, w, "mxfp8")
