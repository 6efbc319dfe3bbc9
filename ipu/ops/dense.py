"""Products of a dense layer by a recipe: forward, and the gradients to its input and its weight.

Whatever the layout of a framework, the operands are x (tokens, inputs), w (outputs, inputs) and dy
(tokens, outputs): random bits follow their C order, so all front ends have the same bits. K is
filled up with zeros to whole blocks, transforms and promoted sums, the other axis to whole rows of
square blocks; random bits are those of the filled operand. A product that the recipe leaves out
goes through the unit of its format.

Source    `fpsim.recipe_products`; docs/semantics.md §5.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from fpsim import recipe_products
from fpsim.array import Array
from fpsim.block_array import BlockArray
from fpsim.quantizers import quantize_in
from fpsim.records.formats import Format
from fpsim.records.recipes import OperandRule, ProductRule, Recipe
from fpsim.records.scaled_units import ScaledUnit
from fpsim.records.transforms import Transform
from fpsim.records.units import MatrixUnit, find_unit
from ipu.machine.cost.blocks import BlockOperand
from ipu.machine.delayed import Moment
from ipu.machine.device import Device

__all__ = [
    "OPERANDS", "LayerRecipe", "OperandEvent", "forward", "input_gradient", "weight_gradient",
]

#: The operands of each product, the left one first.
OPERANDS = {
    "forward": ("x", "w"), "input_gradient": ("dy", "w"), "weight_gradient": ("dy", "x"),
}


class LayerRecipe(NamedTuple):
    """The recipe of one call of a layer.

    layer    whose scales and statistics these are.
    moment   of the training, for scales that follow from the moments before.
    """

    recipe: Recipe
    layer: str = ""
    moment: Moment = Moment()


class OperandEvent(NamedTuple):
    """An operand of a product has become blocks along an axis, after a transform."""

    layer: str
    product: str
    operand: str
    numbers: Array
    axis: int
    transform: Transform | None
    blocks: BlockArray


def forward(device: Device, x: Array, w: Array, how: LayerRecipe, to: Format) -> Array | None:
    """x wᵀ in a format; None: the recipe leaves this product out.

    Shapes    matrices, or batches of them that broadcast, whose products come one after the other.
    """
    return _products(device, "forward", (x, 1), (w, 1), how, to)


def input_gradient(
    device: Device, dy: Array, w: Array, how: LayerRecipe, to: Format
) -> Array | None:
    """dy w, likewise."""
    return _products(device, "input_gradient", (dy, 1), (w, 0), how, to)


def weight_gradient(
    device: Device, dy: Array, x: Array, how: LayerRecipe, to: Format
) -> Array | None:
    """dyᵀ x, likewise."""
    return _products(device, "weight_gradient", (dy, 0), (x, 0), how, to)


#: An operand and its axis that the product sums over.
Operand = tuple[Array, int]


def _products(
    device: Device, product: str, left: Operand, right: Operand, how: LayerRecipe, to: Format
) -> Array | None:
    """A product, or one for each matrix of a batch; all of a layer have its scales."""
    (a, i), (b, j) = left, right
    if a.ndim == b.ndim == 2:
        return _product(device, product, left, right, how, to)
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    stacks = [
        np.broadcast_to(x.carrier, (*batch, *x.shape[-2:])).reshape(-1, *x.shape[-2:])
        for x in (a, b)
    ]
    results = [
        _product(device, product, (a.like(x), i), (b.like(y), j), how, to)
        for x, y in zip(*stacks, strict=True)
    ]
    matrices = [z.carrier for z in results if z is not None]
    if not results or results[0] is None:
        return None
    stack = results[0].like(np.stack(matrices))
    return stack.reshape(*batch, *stack.shape[1:])


def _product(
    device: Device, product: str, left: Operand, right: Operand, how: LayerRecipe, to: Format
) -> Array | None:
    rule: ProductRule | None = getattr(how.recipe, product)
    if rule is None:
        return None
    device.check_blocks(how.recipe)
    if rule.left is None:
        return _of_weights(device, product, left, right, rule, how, to)
    unit = find_unit(rule.unit)
    k = math.lcm(_along(rule.left), _along(rule.right), _promoted(rule, unit))
    shape = left[0].shape[1 - left[1]], right[0].shape[1 - right[1]]
    a = _filled(*left, k, rule.left)
    b = _filled(*right, k, rule.right)
    options = recipe_products.OperandOptions(
        _factors(device, product, (left[0], right[0]), rule, how), _observer(device, product, how),
        publishes=False,
    )
    compute = getattr(recipe_products, product)
    leaves = unit.partials if unit.partials.precision < to.precision else to
    result: Array = compute(device.context(leaves), a, b, how.recipe, options)
    result = device.cast(result, to)
    device.account_blocks(
        f"{product.replace('_', ' ')} in blocks", unit, _stored(a, left[1], rule.left, 1),
        _stored(b, right[1], rule.right, 0), math.prod(shape) * left[0].shape[left[1]], to,
    )
    return result if result.shape == shape else result[: shape[0], : shape[1]]


def _of_weights(
    device: Device, product: str, left: Operand, right: Operand, rule: ProductRule,
    how: LayerRecipe, to: Format,
) -> Array:
    """A weight that is kept in blocks and decoded, once into its own format, by the usual unit.

    Blocks lie along the inputs, whatever the product sums over: the weight is stored once.
    """
    x, w = left[0], right[0]
    whole = _filled(w, 1, _along(rule.right), rule.right)
    blocks = quantize_in(
        device.context(w.format).core, whole, rule.right.block, 1, rule.right.rounding,
        rule.right.transform, flags=device.blocks.observe is not None, publishes=False,
    )
    observe = _observer(device, product, how)
    if observe is not None:
        observe("right", whole, 1, rule.right.transform, blocks)
    decoded = device.from_host(blocks.values[: w.shape[0], : w.shape[1]], w.format)
    z: Array = device.matmul(x, decoded.T if right[1] else decoded, to=to)
    return z


def _stored(x: Array, axis: int, rule: OperandRule, wanted: int) -> BlockOperand:
    """An operand as the product has it: what it sums over is this axis."""
    shape = x.shape if axis == wanted else x.shape[::-1]
    return BlockOperand(rule.block, shape, wanted)


# Whole blocks ---------------------------------------------------------------------------------


def _along(rule: OperandRule) -> int:
    """What divides K of an operand."""
    size = 1 if rule.transform is None else rule.transform.size
    return math.lcm(rule.block.elements or 1, size, 2 if rule.block.packed else 1)


def _promoted(rule: ProductRule, unit: MatrixUnit) -> int:
    """What divides K of a unit that adds partial sums up outside, under one scale."""
    is_whole = rule.right.block.elements is None
    return unit.scale_block if is_whole and isinstance(unit, ScaledUnit) else 1


def _filled(x: Array, axis: int, k: int, rule: OperandRule) -> Array:
    """x with zeros up to whole blocks."""
    multiples = [rule.block.rows or 1] * 2
    multiples[axis] = k
    ends = [-n % m for n, m in zip(x.shape, multiples, strict=True)]
    if not any(ends):
        return x
    return x.like(np.pad(x.carrier, [(0, end) for end in ends]))


# Scales and statistics ------------------------------------------------------------------------


def _factors(
    device: Device, product: str, operands: tuple[Array, Array], rule: ProductRule,
    how: LayerRecipe,
) -> tuple[float | None, float | None]:
    """Delayed factors of both operands, by layer and the weight's shape."""
    history = how.recipe.history
    if history is None:
        return None, None
    (left, right), factors = operands, []
    outputs, inputs = right.shape if product != "weight_gradient" else (
        left.shape[1], right.shape[1])
    tensors = f"{how.layer} {outputs}x{inputs}"
    for name, x, operand in zip(
        OPERANDS[product], operands, (rule.left, rule.right), strict=True
    ):
        assert operand is not None
        amax = float(np.max(np.abs(x.carrier), initial=0.0))
        factors.append(device.blocks.delayed.factor(
            tensors, name, operand.block.element, history, how.moment, amax
        ))
    return factors[0], factors[1]


def _observer(device: Device, product: str, how: LayerRecipe) -> Callable[..., Any] | None:
    """Who is told of operands."""
    if device.blocks.observe is None:
        return None
    return partial(_tell, device.blocks.observe, how.layer, product)


def _tell(
    note: Callable[[OperandEvent], object], layer: str, product: str, side: str, numbers: Array,
    axis: int, transform: Transform | None, blocks: BlockArray,
) -> None:
    operand = OPERANDS[product][side == "right"]
    note(OperandEvent(layer, product, operand, numbers, axis, transform, blocks))
