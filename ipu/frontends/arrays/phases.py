"""Dilated convolutions as ordinary ones: positions that meet, side by side, phase after phase.

Rows y and y' meet the same kernel only if y = y' modulo the dilation. So an image becomes as many
smaller images as there are phases. The convolution of these with the kernel itself, stride 1 and no
padding, has the same products in the same order. These moves round nothing. The gradient to the
kernel sums over phases before images.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fpsim.array import Array
from fpsim.records.geometry import Pair

__all__ = ["Phases"]


class Phases(NamedTuple):
    """Images of one shape, cut into phases.

    image      rows and columns of the images.
    padding    zeros above and on the left, as many below and on the right.

    >>> phases = Phases((5, 5), (3, 3), (2, 2), (1, 1))
    >>> phases.output, phases.grid
    ((3, 3), (4, 4))
    """

    image: Pair
    kernel: Pair
    dilation: Pair
    padding: Pair

    @property
    def output(self) -> Pair:
        """Rows and columns of the result."""
        rows, columns = (n + 2 * p - d * (k - 1) for n, k, d, p in zip(*self, strict=True))
        return rows, columns

    @property
    def grid(self) -> Pair:
        """Rows and columns of a phase."""
        rows, columns = (
            -(-(n + 2 * p) // d)
            for n, d, p in zip(self.image, self.dilation, self.padding, strict=True)
        )
        return rows, columns

    @property
    def result_grid(self) -> Pair:
        """Rows and columns of a phase of the result."""
        (rows, columns), (height, width) = self.grid, self.kernel
        return rows - height + 1, columns - width + 1

    def cut(self, x: Array) -> Array:
        """Images, padded, as a batch of phases."""
        return self._cut(x, self.padding, self.grid)

    def cut_result(self, y: Array) -> Array:
        """A gradient to the result as a batch of phases."""
        return self._cut(y, (0, 0), self.result_grid)

    def _cut(self, x: Array, before: Pair, grid: Pair) -> Array:
        (down, across), (rows, columns) = self.dilation, grid
        batch, height, width, channels = x.shape
        field = np.zeros((batch, rows * down, columns * across, channels), x.carrier.dtype)
        top, left = before
        field[:, top : top + height, left : left + width] = x.carrier
        phases = field.reshape(batch, rows, down, columns, across, channels)
        phases = phases.transpose(2, 4, 0, 1, 3, 5)
        return x.like(np.ascontiguousarray(phases).reshape(-1, rows, columns, channels))

    def joined_result(self, y: Array) -> Array:
        """The result of a batch of phases."""
        return self._joined(y, (0, 0), self.output)

    def joined(self, x: Array) -> Array:
        """Images of a batch of phases, without the padding."""
        return self._joined(x, self.padding, self.image)

    def _joined(self, x: Array, before: Pair, extent: Pair) -> Array:
        (down, across), (_, rows, columns, channels) = self.dilation, x.shape
        phases = x.carrier.reshape(down, across, -1, rows, columns, channels)
        field: Any = phases.transpose(2, 3, 0, 4, 1, 5)
        field = field.reshape(-1, rows * down, columns * across, channels)
        (top, left), (height, width) = before, extent
        return x.like(np.ascontiguousarray(field[:, top : top + height, left : left + width]))
