"""Extents of a convolution, its operands, and the three ways to use it."""

from __future__ import annotations

import math
from typing import NamedTuple

import fpsim as fp
from fpsim.judge.oracle.conv import ExactConvolution
from tests.fpsim.in_partials import conv2d, conv2d_input_gradient, conv2d_weight_gradient
from tests.fpsim.products.by_unit.test_dispatch import operand

WAYS = ("forward", "input_gradient", "weight_gradient")


class Case(NamedTuple):
    """Extents of a convolution, and what padding comes to by the definition of SAME and VALID."""

    image: tuple[int, int]
    channels: int
    kernel: tuple[int, int]
    outputs: int
    stride: int | tuple[int, int] = 1
    padding: str | tuple[tuple[int, int], tuple[int, int]] = "SAME"
    groups: int = 1
    batch: int = 2
    dilation: int | tuple[int, int] = 1

    @property
    def gaps(self):
        return (self.dilation, self.dilation) if isinstance(self.dilation, int) else self.dilation

    @property
    def steps(self):
        return (self.stride, self.stride) if isinstance(self.stride, int) else self.stride

    @property
    def sides(self):
        """(zeros before, outputs) down and across."""
        sides = []
        extents = zip(self.image, self.kernel, self.steps, self.gaps, strict=True)
        for axis, (n, elements, s, gap) in enumerate(extents):
            k = (elements - 1) * gap + 1
            if self.padding == "SAME":
                outputs = math.ceil(n / s)
                sides.append((max((outputs - 1) * s + k - n, 0) // 2, outputs))
            elif self.padding == "VALID":
                sides.append((0, math.ceil((n - k + 1) / s)))
            else:
                before, after = self.padding[axis]
                sides.append((before, (n + before + after - k) // s + 1))
        return sides

    def shapes(self):
        """Of x, w and the result."""
        (_, rows), (_, columns) = self.sides
        return (
            (self.batch, *self.image, self.channels),
            (*self.kernel, self.channels // self.groups, self.outputs),
            (self.batch, rows, columns, self.outputs),
        )

    def convolution(self, unit):
        (top, rows), (left, columns) = self.sides
        return ExactConvolution(
            unit, self.steps, (top, left), (rows, columns), self.groups, self.gaps
        )

    def operands(self, way, kind, unit, rng):
        """The two operands of a way to use the case, and the shape of its result."""
        x, w, y = self.shapes()
        first, second, result = {
            "forward": (x, w, y), "input_gradient": (y, w, x), "weight_gradient": (x, y, w),
        }[way]
        formats = unit.inputs[0], unit.inputs[-1]
        arrays = [
            fp.Array(operand(kind, shape, fmt, rng).astype(fmt.carrier), fp.Context(fmt))
            for shape, fmt in zip((first, second), formats, strict=True)
        ]
        return *arrays, result

    def run(self, way, a, b, unit, result, **choices):
        choices |= {"stride": self.stride, "padding": self.padding, "groups": self.groups}
        choices |= {"dilation": self.dilation}
        if way == "forward":
            return conv2d(a, b, unit, **choices)
        if way == "input_gradient":
            return conv2d_input_gradient(a, b, unit, result, **choices)
        return conv2d_weight_gradient(a, b, unit, result, **choices)
