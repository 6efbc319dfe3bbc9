"""The three products of a linear layer by a recipe: operands quantised, multiplied by a unit.

Each operand is one operation of the context, and so is the product: the left operand draws first,
then the right one, then the last rounding. Fresh signs of a transform are those of the operation
that comes next (`Transform.drawn`), and draw nothing.

Source    `fpsim.records.recipes`; docs/semantics.md §3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from fpsim.array import Array
from fpsim.block_array import BlockArray
from fpsim.context import Context
from fpsim.quantizers import quantize_in
from fpsim.records.recipes import OperandRule, ProductRule, Recipe, find_recipe
from fpsim.records.transforms import Transform

__all__ = ["PLAIN", "OperandOptions", "forward", "input_gradient", "weight_gradient"]

#: observe(operand as it is, its axis of blocks, its transform, what it became).
Observe = Callable[[str, Array, int, Transform | None, BlockArray], object]


class OperandOptions(NamedTuple):
    """What a machine adds to the operands of a product.

    factors    of the left and the right operand, in the place of the rule's; for binary32 scales.
    observe    called with each operand ("left", "right") and what it became, with flags.
    publishes  flags of the elements are raised in the context, where they may trap.
    """

    factors: tuple[float | None, float | None] = (None, None)
    observe: Observe | None = None
    publishes: bool = True


PLAIN = OperandOptions()


def forward(
    context: Context, x: Array, w: Array, recipe: Recipe | str, options: OperandOptions = PLAIN
) -> Array:
    """x wᵀ, in the context's format.

    Shapes    x (tokens, inputs), w (outputs, inputs): result (tokens, outputs).
    Raises    ValueError for a recipe that leaves this product out of blocks.

    >>> import numpy as np, fpsim as fp
    >>> bf16 = fp.Context("bfloat16")
    >>> x, w = bf16.array(np.ones((2, 64))), bf16.array(np.full((16, 64), 0.5))
    >>> forward(bf16, x, w, "nvfp4")[0, 0].item()
    32.0
    """
    rule = _rule(recipe, "forward")
    left, right = _operands(context, (x, 1), (w, 1), rule, options)
    return context.matmul(left, right.T, rule.unit)


def input_gradient(
    context: Context, dy: Array, w: Array, recipe: Recipe | str, options: OperandOptions = PLAIN
) -> Array:
    """dy w: square blocks of the weight are those of the forward pass, others are made anew.

    Shapes    dy (tokens, outputs), w (outputs, inputs): result (tokens, inputs).
    """
    rule = _rule(recipe, "input_gradient")
    block = rule.right.block
    is_square = block.rows == block.elements and rule.right.transform is None
    axis = 1 if is_square and block.rows is not None else 0
    left, right = _operands(context, (dy, 1), (w, axis), rule, options)
    return context.matmul(left, right.along(0) if axis else right, rule.unit)


def weight_gradient(
    context: Context, dy: Array, x: Array, recipe: Recipe | str, options: OperandOptions = PLAIN
) -> Array:
    """dyᵀ x, both along tokens.

    Shapes    dy (tokens, outputs), x (tokens, inputs): result (outputs, inputs).
    """
    rule = _rule(recipe, "weight_gradient")
    left, right = _operands(context, (dy, 0), (x, 0), rule, options)
    return context.matmul(left.T, right, rule.unit)


def _rule(recipe: Recipe | str, product: str) -> ProductRule:
    named = find_recipe(recipe)
    rule: ProductRule | None = getattr(named, product)
    if rule is None:
        raise ValueError(
            f"recipe={named} computes the product {product} in the operands' own format; "
            "multiply them by a unit for it"
        )
    if rule.left is None:
        raise ValueError(
            f"recipe={named} has blocks of weights alone; quantize the weight, and multiply its "
            "values by a unit of the operands' format"
        )
    return rule


def _operands(
    context: Context, left: tuple[Array, int], right: tuple[Array, int], rule: ProductRule,
    options: OperandOptions,
) -> tuple[BlockArray, BlockArray]:
    """Both operands, each along its axis, as blocks."""
    assert rule.left is not None
    rules = [_with_signs(context, x) for x in (rule.left, rule.right)]
    operands = []
    for name, (x, axis), operand, factor in zip(
        ("left", "right"), (left, right), rules, options.factors, strict=True
    ):
        became = quantize_in(
            context.core, x, operand.block, axis, operand.rounding, operand.transform,
            flags=options.observe is not None, factor=factor, publishes=options.publishes,
        )
        if options.observe is not None:
            options.observe(name, x, axis, operand.transform, became)
        operands.append(became)
    return operands[0], operands[1]


def _with_signs(context: Context, rule: OperandRule) -> OperandRule:
    if rule.transform is None or not rule.fresh_signs:
        return rule
    seed = context.core.source.seed
    if seed is None:
        raise ValueError(
            f"transform={rule.transform} draws its signs from a seed, which {context.core.source!r}"
            " has not; use Philox"
        )
    drawn = Transform.drawn(rule.transform.size, seed, context.core.clock.operation)
    return replace(rule, transform=drawn)
