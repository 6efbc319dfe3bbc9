"""A convolution as a matrix product: the order of its terms, and where they stand in memory.

Each output is a window of the input times a column of weights. The terms of a window are a table
with a row (ky, kx, channel) for each k, or ZERO three times where a pass is filled up. The windows
of a block of outputs are read from one padded piece of the input; they are never written out.

Source    docs/semantics.md §5 (orders).
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from fpsim.products.jobs.windows import ZERO, Table, kept_by
from fpsim.records.geometry import Pair
from fpsim.records.types import Carrier
from fpsim.records.units import MatrixUnit

__all__ = ["dilated", "every_position", "moved", "order", "weight_matrix"]


@lru_cache(maxsize=64)
def order(kernel: Pair, channels: int, unit: MatrixUnit) -> Table:
    """Kernel position and channel (K, 3) of each term, as the unit takes them.

    The channels of a pass outermost, then ky, then kx, then the channels; a pass of several taps
    takes neighbours along kx. Where a pass is the whole of K all channels are in it.

    >>> from fpsim.records.units import find_unit
    >>> order((1, 2), 5, find_unit("V100_F16_F32"))[[0, 3, 4, 7, 8, 9]].tolist()
    [[0, 0, 0], [0, 0, 3], [0, 1, 0], [0, 1, 3], [0, 0, 4], [-1, -1, -1]]
    """
    width = max(1, channels) if unit.calls is None else unit.channels // unit.taps
    rows, columns = kernel
    across = -(-columns // unit.taps) * unit.taps
    extents = (-(-channels // width), rows, across, width)
    part, ky, kx, c = (index.reshape(-1) for index in np.indices(extents))
    table = np.stack([ky, kx, part * width + c], axis=1).astype(np.int64)
    table[(kx >= columns) | (table[:, 2] >= channels)] = ZERO
    table.flags.writeable = False
    return table


@lru_cache(maxsize=64)
def every_position(kernel: Pair, channels: int) -> Table:
    """Positions and channels (KH * KW * C, 3) in the order of a kernel's memory."""
    index = np.indices((*kernel, channels)).reshape(3, -1)
    table = np.ascontiguousarray(index.T, np.int64)
    table.flags.writeable = False
    return table


def moved(table: Table, corner: Pair) -> Table:
    """The same terms in a larger window, in which theirs begins at this corner."""
    return table if corner == (0, 0) else kept_by(table, _in_window, 1, 1, *corner)


def dilated(table: Table, dilation: Pair) -> Table:
    """The same terms where a kernel's elements are so far apart."""
    return table if dilation == (1, 1) else kept_by(table, _in_window, *dilation, 0, 0)


def _in_window(table: Table, down: int, across: int, top: int, left: int) -> Table:
    """Terms (down, across) apart in a window that is larger by (top, left)."""
    terms: Table = np.where(table == ZERO, ZERO, table * (down, across, 1) + (top, left, 0))
    terms.flags.writeable = False
    return terms


def weight_matrix(table: Table, kernel: Carrier) -> Carrier:
    """The right operand (K, N) of a kernel (KH, KW, C, N)."""
    *extents, n = kernel.shape
    rows, zeros = kept_by(table, _kernel_rows, *extents)
    matrix: Carrier = kernel.reshape(math.prod(extents), n)
    if rows is None:
        return matrix
    matrix = matrix.take(rows, axis=0)
    if zeros is not None:
        matrix[zeros] = 0
    return matrix


def _kernel_rows(
    table: Table, rows: int, columns: int, channels: int
) -> tuple[Table | None, Table | None]:
    """Rows of a kernel (KH * KW * C, N) for the terms, None for all of them in their order.

    And where terms are zeros, if any are.
    """
    ky, kx, c = table.T
    real: Table = (ky * columns + kx) * channels + c
    if np.array_equal(real, np.arange(rows * columns * channels)):
        return None, None
    zeros = np.flatnonzero(ky == ZERO)
    real[zeros] = 0
    return real, zeros if len(zeros) else None
