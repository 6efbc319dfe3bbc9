"""Recipes of training in blocks as data: for each of three products, what each operand becomes.

A layer computes y = x wᵀ, dx = dy w and dw = dyᵀ x. Operands are quantised along the axis that the
product sums over; `fpsim.recipe_products` computes it.

recipe         source
mxfp8          TransformerEngine d0067d0: rceil, E4M3 in both passes, rows and columns apart
mxfp8-ocp      the same with OCP's floor
mxfp4          OCP's floor, to nearest: what is compared with
nvfp4          TransformerEngine d0067d0, arXiv 2509.25149: weights in 16 x 16 blocks; gradients
               stochastically; the weight gradient's operands after a Hadamard transform
nvfp4-plain    one-dimensional blocks, to nearest
fp8-deepseek   1 x 128 and, for weights, 128 x 128 (arXiv 2412.19437), added up as DeepGEMM does

Source    docs/semantics.md §3 and §5.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field

from fpsim.records.blocks import Block, find_block
from fpsim.records.rounding import RNE, SR, Rounding
from fpsim.records.transforms import Transform, find_transform

__all__ = ["RECIPES", "OperandRule", "ProductRule", "Recipe", "find_recipe"]


@dataclass(frozen=True)
class OperandRule:
    """What an operand of a product becomes: its block, rounding and transform."""

    block: Block
    rounding: Rounding = RNE
    transform: Transform | None = None


@dataclass(frozen=True)
class ProductRule:
    """A product: what its left and right operands become, and its unit."""

    left: OperandRule
    right: OperandRule
    unit: str


@dataclass(frozen=True)
class Recipe:
    """The three products of a linear layer.

    forward           x wᵀ.
    input_gradient    dy w.
    weight_gradient   dyᵀ x.
    """

    name: str
    forward: ProductRule
    input_gradient: ProductRule
    weight_gradient: ProductRule
    source: str = field(default="", compare=False)

    def __str__(self) -> str:
        return self.name


def _plain(name: str, block: str, weights: str, unit: str, source: str) -> Recipe:
    """All operands to nearest: activations and gradients in one block, weights in another."""
    x, w = OperandRule(find_block(block)), OperandRule(find_block(weights))
    return Recipe(
        name, ProductRule(x, w, unit), ProductRule(x, w, unit), ProductRule(x, x, unit), source
    )


def _nvfp4() -> Recipe:
    unit, stochastic = "B200_TC05_NVF4_F32", SR(bits=8)
    one, two = find_block("nvfp4"), find_block("nvfp4-2d")
    turned = find_transform("rht16")
    return Recipe(
        "nvfp4",
        ProductRule(OperandRule(one), OperandRule(two), unit),
        ProductRule(OperandRule(one, stochastic), OperandRule(two), unit),
        ProductRule(OperandRule(one, stochastic, turned), OperandRule(one, RNE, turned), unit),
        "TransformerEngine d0067d0; arXiv 2509.25149",
    )


_TE = "TransformerEngine d0067d0"

#: Every recipe by name.
RECIPES = {
    recipe.name: recipe
    for recipe in (
        _plain("mxfp8", "mxfp8-rceil", "mxfp8-rceil", "B200_TC05_MXF8_F32", _TE),
        _plain("mxfp8-ocp", "mxfp8", "mxfp8", "B200_TC05_MXF8_F32", "OCP MX 1.0"),
        _plain("mxfp4", "mxfp4", "mxfp4", "B200_TC05_MXF4_F32", "OCP MX 1.0"),
        _nvfp4(),
        _plain("nvfp4-plain", "nvfp4", "nvfp4", "B200_TC05_NVF4_F32", _TE),
        _plain("fp8-deepseek", "e4m3-128", "e4m3-128x128", "H100_E4M3X128_F32",
               "arXiv 2412.19437; DeepGEMM 54e2261"),
    )
}


def find_recipe(name: str | Recipe) -> Recipe:
    """The recipe of that name.

    >>> find_recipe("nvfp4").weight_gradient.left.rounding
    SR(bits=8)
    """
    if isinstance(name, Recipe):
        return name
    if not isinstance(name, str):
        raise TypeError(f"recipe={name!r} is no Recipe; use one of {', '.join(RECIPES)}")
    if name.lower() in RECIPES:
        return RECIPES[name.lower()]
    close = difflib.get_close_matches(name.lower(), RECIPES, 1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise ValueError(f"recipe={name!r} is not known; use one of {', '.join(RECIPES)}.{hint}")
