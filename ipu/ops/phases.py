"""Dilated convolutions as ordinary ones: positions that meet, side by side, phase after phase.

With stride s and dilation d, g their greatest common divisor, every (d/g)-th output reads rows that
are d apart. So an image becomes d/g smaller images, phases, for each axis. The convolution of these
with the kernel itself, stride s/g and no padding, has the same products in the same order. These
moves round nothing. The gradient to the kernel sums over phases before images.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim.array import Array
from fpsim.records.geometry import Padding, Pair, Stride, geometry

__all__ = ["Phases"]

Positions = tuple[NDArray[np.int64], NDArray[np.int64]]


class Phases:
    """Images of one shape, cut into phases.

    image      rows and columns of the images.
    kernel     rows and columns of the kernel, without gaps.
    stride     of the convolution of the phases.
    output     rows and columns of the result.

    >>> phases = Phases((5, 5), (3, 3), 1, ((1, 1), (1, 1)), 2)
    >>> phases.output, phases.grid, phases.stride
    ((3, 3), (4, 4), (1, 1))
    """

    def __init__(
        self, image: Pair, kernel: Pair, stride: Stride, padding: Padding, dilation: Stride
    ) -> None:
        extents = geometry(image, kernel, stride, padding, dilation)
        self.image, self.kernel, self.output = image, kernel, extents.output
        self._steps, self._gaps, self._before = extents.stride, extents.dilation, extents.before

    @cached_property
    def counts(self) -> Pair:
        """Phases of rows and of columns."""
        down, across = (
            gap // math.gcd(step, gap) for step, gap in zip(self._steps, self._gaps, strict=True)
        )
        return down, across

    @cached_property
    def stride(self) -> Pair:
        """From one window of a phase to the next."""
        down, across = (
            step // math.gcd(step, gap) for step, gap in zip(self._steps, self._gaps, strict=True)
        )
        return down, across

    @cached_property
    def result_grid(self) -> Pair:
        """Rows and columns of a phase of the result."""
        rows, columns = (-(-n // c) for n, c in zip(self.output, self.counts, strict=True))
        return rows, columns

    @cached_property
    def grid(self) -> Pair:
        """Rows and columns of a phase."""
        rows, columns = (
            (n - 1) * step + k
            for n, step, k in zip(self.result_grid, self.stride, self.kernel, strict=True)
        )
        return rows, columns

    @cached_property
    def _positions(self) -> Positions:
        """Of the elements of each phase in the images: (phases, elements) of rows, of columns."""
        pairs = zip(self.counts, self._steps, self.grid, self._gaps, self._before, strict=True)
        rows, columns = (
            np.arange(count)[:, None] * step + np.arange(n) * gap - before
            for count, step, n, gap, before in pairs
        )
        return rows, columns

    @cached_property
    def _result_positions(self) -> Positions:
        """The same of the result."""
        rows, columns = (
            np.arange(count)[:, None] + np.arange(n) * count
            for count, n in zip(self.counts, self.result_grid, strict=True)
        )
        return rows, columns

    def cut(self, x: Array) -> Array:
        """Images as a batch of phases, with zeros where they are padded."""
        return _cut(x, self._positions, self.image)

    def cut_result(self, y: Array) -> Array:
        """A gradient to the result as a batch of phases."""
        return _cut(y, self._result_positions, self.output)

    def joined(self, x: Array) -> Array:
        """Images of a batch of phases; zeros where no phase has an element."""
        return _joined(x, self._positions, self.image)

    def joined_result(self, y: Array) -> Array:
        """The result of a batch of phases."""
        return _joined(y, self._result_positions, self.output)


def _cut(x: Array, positions: Positions, extent: Pair) -> Array:
    rows, columns = positions
    height, width = extent
    if x.shape[1:3] != extent:
        raise ValueError(
            f"images of {x.shape[1]}x{x.shape[2]} where this convolution has {height}x{width}; "
            "give the size that its stride, padding and dilation lead to"
        )
    field: Any = x.carrier[:, np.clip(rows, 0, height - 1)]
    field = field[:, :, :, np.clip(columns, 0, width - 1)]
    inside = ((rows >= 0) & (rows < height))[:, :, None, None]
    inside = inside & (columns >= 0) & (columns < width)
    field = np.where(inside[..., None], field, x.carrier.dtype.type(0))
    phases = field.transpose(1, 3, 0, 2, 4, 5)
    return x.like(np.ascontiguousarray(phases).reshape(-1, *phases.shape[3:]))


def _joined(x: Array, positions: Positions, extent: Pair) -> Array:
    rows, columns = (axis.reshape(-1) for axis in positions)
    counts, (_, *grid, channels) = [len(axis) for axis in positions], x.shape
    phases: Any = x.carrier.reshape(*counts, -1, *grid, channels).transpose(2, 0, 3, 1, 4, 5)
    phases = phases.reshape(-1, rows.size, columns.size, channels)
    (height, width), batch = extent, len(phases)
    down, across = (rows >= 0) & (rows < height), (columns >= 0) & (columns < width)
    joined = np.zeros((batch, height, width, channels), x.carrier.dtype)
    joined[:, rows[down, None], columns[across]] = phases[:, down][:, :, across]
    return x.like(joined)
