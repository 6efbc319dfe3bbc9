"""Products that a device was asked for: what computes them, and what their rows in the ledger say.

A call has the unit's record; stride, padding and groups of a convolution are its window.

Source    docs/semantics.md §5 (units, cost).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from fpsim import linalg
from fpsim.array import Array
from fpsim.context import Context
from fpsim.records.formats import Format
from fpsim.records.geometry import Padding, Stride
from fpsim.records.types import Shape
from fpsim.records.units import MatrixUnit
from ipu.machine.choice import strides
from ipu.machine.cost.rows import WorkOf
from ipu.machine.cost.work import Convolution, Work, of_convolution, of_matmul, of_weight_gradient
from ipu.machine.instructions import Instruction

__all__ = [
    "Compute",
    "ProductCall",
    "Window",
    "convolution_call",
    "input_gradient_call",
    "matmul_call",
    "weight_gradient_call",
]

#: Stride, padding and groups.
Window = tuple[Stride, Padding, int]
#: A product in the context of its result.
Compute = Callable[[Context], Array]


class ProductCall(NamedTuple):
    """One call of a verb that multiplies.

    work_of    as for `ipu.machine.cost.rows.ledger_row`.
    options    stride and groups of a convolution.
    parts      of the tiles that K is split over.
    scale      of quarters.
    """

    verb: str
    unit: MatrixUnit
    operands: tuple[Array, Array]
    compute: Compute
    work_of: WorkOf
    options: tuple[object, ...] = ()
    parts: int = 1
    scale: int = 0

    def key(self, x: Shape, y: Shape, shape: Shape, fmt: Format) -> tuple[object, ...]:
        """What its row follows from; x, y and the result have these shapes, it has this format."""
        unit, inputs = self.unit, self.operands[0].context.core.settings.format
        return (
            self.verb, unit.name, unit.channels, inputs.name, fmt.name, x, y, shape, self.options,
            self.parts,
        )


def matmul_call(
    record: MatrixUnit, x: Array, y: Array, scale: int, subnormals: str, parts: int
) -> ProductCall:
    """The product x @ y, with K split over so many parts of the tiles."""

    def compute(context: Context) -> Array:
        if parts == 1:
            return linalg.matmul(x, y, record, context=context, scale=scale, subnormals=subnormals)
        return linalg.k_split(
            x, y, record, parts, context=context, scale=scale, subnormals=subnormals
        )

    def work_of(instruction: Instruction, _: Shape) -> Work:
        return of_matmul(x.shape, y.shape, instruction)

    return ProductCall("matmul", record, (x, y), compute, work_of, parts=parts, scale=scale)


def convolution_call(
    record: MatrixUnit, x: Array, w: Array, window: Window, scale: int, subnormals: str
) -> ProductCall:
    """The convolution of images x with kernels w."""
    stride, padding, groups = window

    def compute(context: Context) -> Array:
        return linalg.conv2d(
            x, w, record, stride=stride, padding=padding, groups=groups, context=context,
            scale=scale, subnormals=subnormals,
        )

    def work_of(instruction: Instruction, result: Shape) -> Work:
        across = strides(stride)[1]
        return of_convolution(
            Convolution(result, w.shape[:2], w.shape[2], groups, across), instruction
        )

    return ProductCall("conv2d", record, (x, w), compute, work_of, (stride, groups))


def input_gradient_call(
    record: MatrixUnit, gradient: Array, w: Array, shape: Shape, window: Window, scale: int,
    subnormals: str,
) -> ProductCall:
    """The gradient to images of this shape; K are the output channels."""
    stride, padding, groups = window

    def compute(context: Context) -> Array:
        return linalg.conv2d_input_gradient(
            gradient, w, record, shape, stride=stride, padding=padding, groups=groups,
            context=context, scale=scale, subnormals=subnormals,
        )

    def work_of(instruction: Instruction, result: Shape) -> Work:
        turned = Convolution(result, w.shape[:2], w.shape[3] // groups, groups, 1)
        return of_convolution(turned, instruction)

    operands, options = (gradient, w), (stride, groups)
    return ProductCall("conv2d_input_gradient", record, operands, compute, work_of, options)


def weight_gradient_call(
    record: MatrixUnit, x: Array, gradient: Array, shape: Shape, window: Window, scale: int,
    subnormals: str,
) -> ProductCall:
    """The gradient to kernels of this shape; K is (batch, height, width)."""
    stride, padding, groups = window

    def compute(context: Context) -> Array:
        return linalg.conv2d_weight_gradient(
            x, gradient, record, shape, stride=stride, padding=padding, groups=groups,
            context=context, scale=scale, subnormals=subnormals,
        )

    def work_of(instruction: Instruction, result: Shape) -> Work:
        return of_weight_gradient(gradient.shape, result, groups, instruction)

    operands, options = (x, gradient), (stride, groups)
    return ProductCall("conv2d_weight_gradient", record, operands, compute, work_of, options)
