"""The work of a product in its unit: positions × blocks of columns × passes over K.

A block is the columns that share one load of weights. A convolution's positions are the elements of
its field; its passes go over kernel positions and K-channels. The gradient to the weights is a
product of matrices for every kernel position, with K over batch and field.

SLIC          a pass is four taps of one kernel row and four channels, which hold as many
              complete groups as fit; each field element is fed once, so a stride of 2 feeds twice
              as many.
Source    docs/semantics.md §5; Tile Vertex Instruction Set; poplibs, ConvPartial1xNSLIC.cpp.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fpsim.records.units import MatrixUnit
from ipu.machine.instructions import Instruction
from ipu.machine.units.slic import grouping

__all__ = ["Convolution", "Work", "of_convolution", "of_matmul", "of_weight_gradient"]

#: Channels per group up to which groups share a vector of the SLIC.
_MOST = 4

Shape = tuple[int, ...]


class Work(NamedTuple):
    """A product as a unit computes it; `useful` counts multiply-adds without padding."""

    positions: int
    passes: int
    blocks: int
    useful: int


class Convolution(NamedTuple):
    """A convolution to outputs (batch, height, width, columns of all groups), K over `depth`."""

    output: Shape
    kernel: Shape
    depth: int
    groups: int
    stride: int


def of_matmul(a: Shape, b: Shape, instruction: Instruction) -> Work:
    """Rows are positions; a stack of right operands is so many groups.

    >>> from ipu.machine.instructions import EIGHT_UNITS
    >>> of_matmul((5, 20), (20, 9), EIGHT_UNITS[0])
    Work(positions=5, passes=2, blocks=2, useful=900)
    """
    k, columns = b[-2:]
    stack = math.prod(np.broadcast_shapes(a[:-2], b[:-2])) if len(b) > 2 else 1
    rows = a[-2] if len(b) > 2 else math.prod(a[:-1])
    blocks = stack * -(-columns // instruction.columns)
    passes = -(-k // instruction.unit.channels)
    return Work(rows, passes, blocks, stack * rows * k * columns)


def of_convolution(convolution: Convolution, instruction: Instruction) -> Work:
    """Forward, and the gradient to the input with output channels as K."""
    positions = math.prod(convolution.output[:-1])
    taps = math.prod(convolution.kernel)
    useful = positions * convolution.output[-1] * taps * convolution.depth
    if instruction.unit.taps > 1:
        return _slim(convolution, instruction, positions, useful)
    columns = convolution.output[-1] // convolution.groups
    blocks = convolution.groups * -(-columns // instruction.columns)
    return Work(positions, _passes(convolution, taps, instruction.unit), blocks, useful)


def _passes(convolution: Convolution, taps: int, unit: MatrixUnit) -> int:
    """A pass holds channels of one kernel position; a unit without passes pads K once."""
    if unit.calls is None:
        return -(-taps * convolution.depth // unit.channels)
    return taps * -(-convolution.depth // unit.channels)


def _slim(
    convolution: Convolution, instruction: Instruction, positions: int, useful: int
) -> Work:
    unit, (height, width) = instruction.unit, convolution.kernel
    lanes = unit.channels // unit.taps
    together = _groups_in(lanes, convolution.depth)
    columns = convolution.output[-1] // convolution.groups
    blocks = -(-convolution.groups // together) * -(-columns * together // instruction.columns)
    passes = height * -(-width // unit.taps) * -(-convolution.depth // lanes)
    return Work(positions * convolution.stride, passes, blocks, useful)


def _groups_in(lanes: int, depth: int) -> int:
    """Groups of so many channels that share a vector of so many lanes."""
    if depth > _MOST:
        return 1
    groups, channels = grouping(depth)
    return max(1, min(groups, lanes // channels))


def of_weight_gradient(
    gradient: Shape, weights: Shape, groups: int, instruction: Instruction
) -> Work:
    """K is batch × field of the gradient; weights are (height, width, channels, columns)."""
    fields, rows, columns = math.prod(gradient[:-1]), math.prod(weights[:-1]), weights[-1] // groups
    blocks = groups * -(-columns // instruction.columns)
    passes = -(-fields // instruction.unit.channels)
    return Work(rows, passes, blocks, fields * rows * weights[-1])
