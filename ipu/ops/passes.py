"""A product of a program as one of the three passes of a dense layer, whichever side its weight is.

A framework's graph has products of two matrices; which of them belong to a dense layer, and what
their operands are there, a front end knows. Here they become the row `matmul`, x (tokens, inputs)
times w (inputs, outputs), or one of its gradients.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Any, NamedTuple

from fpsim.array import Array
from fpsim.records.formats import Format
from ipu.machine.device import Device
from ipu.ops.dense import LayerRecipe
from ipu.ops.products import matmul

__all__ = ["DensePass", "Which", "product"]


class Which(Enum):
    """The pass that a product belongs to."""

    FORWARD = auto()
    INPUT_GRADIENT = auto()
    WEIGHT_GRADIENT = auto()


class DensePass(NamedTuple):
    """A pass, and which operand of the product is not the layer's running value.

    is_left    the weight, of the first two passes, or the activation, of the last one, is the left
               operand.
    """

    which: Which
    is_left: bool


def _turned(x: Array) -> Array:
    return x.like(x.carrier.swapaxes(-1, -2))


def product(
    device: Device, x: Array, y: Array, of: DensePass, how: LayerRecipe, *,
    partials: Format | None, **rounding: Any,
) -> Array:
    """x @ y, by the recipe of a layer.

    rounding    further options of the row.
    """
    options = {"recipe": how, **rounding}
    if of.which is Which.FORWARD:
        if not of.is_left:
            return matmul.value(device, x, y, partials=partials, **options)
        return _turned(matmul.value(device, _turned(y), _turned(x), partials=partials, **options))
    if of.which is Which.INPUT_GRADIENT:
        if not of.is_left:
            return matmul.pull(0, device, x, (None, _turned(y), partials), **options)
        return _turned(matmul.pull(0, device, _turned(y), (None, x, partials), **options))
    if of.is_left:
        return matmul.pull(1, device, y, (_turned(x), None, partials), **options)
    return _turned(matmul.pull(1, device, _turned(x), (y, None, partials), **options))
