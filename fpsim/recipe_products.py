"""The three products of a linear layer by a recipe: operands quantised, multiplied by a unit.

Each operand is one operation of the context, and so is the product: the left operand draws first,
then the right one, then the last rounding.

Source    `fpsim.records.recipes`; docs/semantics.md §3.
"""

from __future__ import annotations

from fpsim.array import Array
from fpsim.block_array import BlockArray
from fpsim.context import Context
from fpsim.records.recipes import OperandRule, ProductRule, Recipe, find_recipe

__all__ = ["forward", "input_gradient", "weight_gradient"]


def forward(context: Context, x: Array, w: Array, recipe: Recipe | str) -> Array:
    """x wᵀ, in the context's format.

    Shapes    x (tokens, inputs), w (outputs, inputs): result (tokens, outputs).

    >>> import numpy as np, fpsim as fp
    >>> bf16 = fp.Context("bfloat16")
    >>> x, w = bf16.array(np.ones((2, 64))), bf16.array(np.full((16, 64), 0.5))
    >>> forward(bf16, x, w, "nvfp4")[0, 0].item()
    32.0
    """
    rule = find_recipe(recipe).forward
    return _product(
        context, rule, _quantised(context, x, 1, rule.left), _quantised(context, w, 1, rule.right).T
    )


def input_gradient(context: Context, dy: Array, w: Array, recipe: Recipe | str) -> Array:
    """dy w: square blocks of the weight are those of the forward pass, others are made anew.

    Shapes    dy (tokens, outputs), w (outputs, inputs): result (tokens, inputs).
    """
    rule = find_recipe(recipe).input_gradient
    left = _quantised(context, dy, 1, rule.left)
    block = rule.right.block
    if block.rows == block.elements:
        right = _quantised(context, w, 1, rule.right).along(0)
    else:
        right = _quantised(context, w, 0, rule.right)
    return _product(context, rule, left, right)


def weight_gradient(context: Context, dy: Array, x: Array, recipe: Recipe | str) -> Array:
    """dyᵀ x, both along tokens.

    Shapes    dy (tokens, outputs), x (tokens, inputs): result (outputs, inputs).
    """
    rule = find_recipe(recipe).weight_gradient
    left = _quantised(context, dy, 0, rule.left).T
    return _product(context, rule, left, _quantised(context, x, 0, rule.right))


def _quantised(context: Context, x: Array, axis: int, rule: OperandRule) -> BlockArray:
    return context.quantize(
        x, rule.block, axis, rounding=rule.rounding, transform=rule.transform
    )


def _product(context: Context, rule: ProductRule, left: BlockArray, right: BlockArray) -> Array:
    return context.matmul(left, right, rule.unit)
