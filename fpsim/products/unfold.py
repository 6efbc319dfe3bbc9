"""A convolution as a matrix product: the order of its terms, and where they stand in memory.

Each output is a window of the input times a column of weights. The terms of a window are a table
with a row (ky, kx, channel) for each k, or ZERO three times where a pass is filled up. The windows
of a block of outputs are read from one padded piece of the input; they are never written out.

Source    docs/semantics.md §5 (orders).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fpsim.products.jobs.rows import Rows
from fpsim.records.geometry import Geometry, Pair
from fpsim.records.types import Carrier
from fpsim.records.units import MatrixUnit

__all__ = ["ZERO", "Field", "Table", "blocks", "every_position", "field", "order", "weight_matrix"]

Table = NDArray[np.int64]

#: In the place of a position and a channel: a zero times a zero.
ZERO = -1

#: Numbers of a padded piece of the input, about (4 bytes each).
_PIECE = 1 << 17


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


def every_position(kernel: Pair, channels: int) -> Table:
    """Positions and channels (KH * KW * C, 3) in the order of a kernel's memory."""
    index = np.indices((*kernel, channels)).reshape(3, -1)
    return np.ascontiguousarray(index.T, np.int64)


def weight_matrix(table: Table, kernel: Carrier) -> Carrier:
    """The right operand (K, N) of a kernel (KH, KW, C, N)."""
    ky, kx, c = table.T
    _, columns, channels, n = kernel.shape
    matrix: Carrier = np.zeros((len(table), n), kernel.dtype)
    real = ky != ZERO
    flat = kernel.reshape(-1, n)
    matrix[real] = flat[((ky * columns + kx) * channels + c)[real]]
    return matrix


class Field:
    """A padded piece of the input and the windows in it.

    values    the numbers; if `filled`, after them zeros that every window can reach.
    windows   where the window of each output begins.
    """

    def __init__(
        self, values: Carrier, windows: Table, line: int, channels: int, filled: bool
    ) -> None:
        self.values, self.windows, self._filled = values, windows, filled
        self._line, self._channels = line, channels

    def offsets(self, table: Table, first: int = 0) -> Table:
        """From the beginning of a window to its terms, channels counted from `first`."""
        ky, kx, c = table.T
        real: Table = (ky * self._line + kx) * self._channels + c + first
        if not self._filled:
            return real
        zeros = len(self.values) - 1 - self.windows.max(initial=0)
        offsets: Table = np.where(ky == ZERO, zeros, real)
        return offsets

    def rows(self, table: Table, first: int = 0) -> Rows:
        """The windows as rows of a matrix."""
        return Rows(self.values, self.windows, self.offsets(table, first))

    def columns(self, table: Table, first: int = 0) -> Rows:
        """The windows as columns, each term of the table a row."""
        return Rows(self.values, self.offsets(table, first), self.windows)


def field(x: Carrier, shape: Geometry, first: int, last: int, *, filled: bool = False) -> Field:
    """The windows of outputs first … last - 1, counted in C order over images, rows, columns.

    filled    the table has ZERO terms: zeros to read them from take as much room again.
    """
    rows, columns = shape.output
    begin, end = first // columns, -(-last // columns)
    line = _extent(columns, 1, shape)
    pieces = [
        (images, lines, (len(images), _extent(len(lines), 0, shape), line, x.shape[3]))
        for images, lines in _pieces(begin, end, rows)
    ]
    numbers = sum(math.prod(size) for *_, size in pieces)
    values: Carrier = np.zeros(numbers * (1 + filled), x.dtype)
    windows, at = [], 0
    for images, lines, size in pieces:
        part = values[at : at + math.prod(size)].reshape(size)
        _place(part, x[images.start : images.stop], shape, lines.start)
        windows.append(at + _starts(size, len(lines), shape))
        at += part.size
    seen = np.concatenate(windows)[first - begin * columns : last - begin * columns]
    return Field(values, seen, line, x.shape[3], filled)


def _extent(windows: int, axis: int, shape: Geometry) -> int:
    """What so many windows span, down (axis 0) or across."""
    return (windows - 1) * shape.stride[axis] + shape.kernel[axis]


def _starts(size: tuple[int, ...], lines: int, shape: Geometry) -> Table:
    """Where the windows of a piece (images, height, width, channels) begin in it."""
    images, height, width, channels = size
    down = np.add.outer(np.arange(images) * height, np.arange(lines) * shape.stride[0])
    across = np.arange(shape.output[1]) * shape.stride[1]
    starts: Table = np.add.outer(down.reshape(-1) * width, across).reshape(-1) * channels
    return starts


def _pieces(begin: int, end: int, rows: int) -> Iterator[tuple[range, range]]:
    """Rows of outputs begin … end - 1 as images and rows of them: some, whole images, some."""
    (image, row), (last, rest) = divmod(begin, rows), divmod(end, rows)
    if image == last:
        yield range(image, image + 1), range(row, rest)
        return
    if row:
        yield range(image, image + 1), range(row, rows)
        image += 1
    if image < last:
        yield range(image, last), range(rows)
    if rest:
        yield range(last, last + 1), range(rest)


def _place(part: Carrier, x: Carrier, shape: Geometry, first: int) -> None:
    """The images x into a padded piece whose windows begin with those of row `first`."""
    down = _span(
        part.shape[1], x.shape[1], shape.spacing[0], first * shape.stride[0] - shape.before[0]
    )
    across = _span(part.shape[2], x.shape[2], shape.spacing[1], -shape.before[1])
    part[:, down[0], across[0]] = x[:, down[1], across[1]]


def _span(length: int, n: int, spacing: int, begin: int) -> tuple[slice, slice]:
    """Where elements `spacing` apart fall into a stretch that begins at `begin`; which ones."""
    first = max(0, -(-begin // spacing))
    last = max(first, min(n, (begin + length - 1) // spacing + 1))
    start = first * spacing - begin
    return slice(start, start + (last - first) * spacing, spacing), slice(first, last)


def blocks(
    x: Carrier, shape: Geometry, multiple: int = 1, *, filled: bool = False
) -> Iterator[tuple[int, int, Field]]:
    """All windows, a piece of the input at a time: outputs begin, end, and their field.

    Every block but the last has a multiple of so many outputs.

    filled    as in `field`.
    """
    rows, columns = shape.output
    line = _extent(columns, 1, shape) * x.shape[3]
    # The window's own height comes once more with every image.
    lines = max(1, _PIECE // max(1, line) * rows // (rows * shape.stride[0] + shape.kernel[0]))
    step = max(1, lines * columns // multiple) * multiple
    outputs = x.shape[0] * rows * columns
    for begin in range(0, outputs, step):
        end = min(begin + step, outputs)
        yield begin, end, field(x, shape, begin, end, filled=filled)
