"""Windows of images as a matrix that is not written out.

Each output of a convolution sees a window of its image. Here are the images, the geometry, and the
terms of a window in the order in which a unit takes them; fast engines lay the images out in their
own tables. Other engines get pieces: padded in numpy, with the windows as `Rows` of them.

Source    docs/semantics.md §5 (orders).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from fpsim.products.jobs.rows import Rows
from fpsim.records.geometry import Geometry
from fpsim.records.types import Carrier

__all__ = ["ZERO", "Field", "Table", "Target", "Windows", "blocks", "field", "kept_by"]

T = TypeVar("T")
Table = NDArray[np.int64]

#: Where rows of outputs stand in a result: the first, steps from image to image, down and across.
Target = tuple[int, int, int, int]

#: In the place of a position and a channel: a zero times a zero.
ZERO = -1

#: Numbers of a padded piece of the input, about (4 bytes each).
_PIECE = 1 << 17


#: What has been computed from tables, and the tables, whose identities are fast to look up.
_KEPT: dict[tuple[Any, ...], tuple[Any, Table]] = {}
_MOST_KEPT = 256


def kept_by(table: Table, compute: Callable[..., T], *numbers: int) -> T:
    """compute(table, *numbers), once for a table that cannot be written."""
    if table.flags.writeable:
        return compute(table, *numbers)
    key = (id(table), compute, *numbers)
    entry = _KEPT.get(key)
    if entry is None:
        if len(_KEPT) >= _MOST_KEPT:
            _KEPT.clear()
        entry = _KEPT[key] = compute(table, *numbers), table
    result: T = entry[0]
    return result


class Windows(NamedTuple):
    """The windows of every output, counted in C order over images, rows and columns.

    table     kernel position and channel (K, 3) of each term, ZERO three times for a zero.
    first     the channel from which those of the table are counted.
    turned    a row for each term and a column for each output, as a weight gradient needs them.
    lanewise  column j of the product sees the channels j further on than those of the table.
    target    where the rows of outputs stand in the memory of a wider result; None: one after the
              other.
    others    windows of the same images and geometry, with tables and targets of their own: one
              laid-out piece serves the products of all. The steps of their targets are the same.

    Shapes    x (batch, height, width, channels): the matrix (outputs, K), or turned (K, outputs). K
              counts the terms of the others too, whose rows of the right operand come after.
    """

    x: Carrier
    geometry: Geometry
    table: Table
    first: int = 0
    turned: bool = False
    target: Target | None = None
    lanewise: bool = False
    others: tuple[Windows, ...] = ()

    @property
    def with_others(self) -> tuple[Windows, ...]:
        """These windows and the others."""
        return self, *self.others

    @property
    def lines(self) -> int:
        """Rows of outputs of all images."""
        return len(self.x) * self.geometry.output[0]

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        outputs, terms = self.lines * self.geometry.output[1], self.depth
        return (terms, outputs) if self.turned else (outputs, terms)

    @property
    def depth(self) -> int:
        """Terms of all windows of an image."""
        terms = len(self.table)
        for windows in self.others:
            terms += len(windows.table)
        return terms

    @property
    def values(self) -> Carrier:
        """Every number of the matrix but the zeros."""
        return self.x

    def places(self, columns: int) -> Target:
        """The target, or that of a result of so many columns."""
        rows, across = self.geometry.output
        return self.target or (0, rows * across * columns, across * columns, columns)

    def outputs(self, begin: int, end: int, columns: int) -> Table:
        """Where the results of outputs begin … end - 1 stand in memory, (outputs, columns)."""
        image, row, column = np.unravel_index(
            np.arange(begin, end), (len(self.x), *self.geometry.output)
        )
        first, *steps = self.places(columns)
        rows: Table = first + image * steps[0] + row * steps[1] + column * steps[2]
        return np.add.outer(rows, np.arange(columns))

    def offsets(self) -> Table:
        """From the beginning of a window to its terms; those of zeros are in it too."""
        return kept_by(self.table, _offsets, self.geometry.line, self.x.shape[3], self.first)

    def numbers(self, begin: int, end: int) -> int:
        """Numbers of the padded pieces that rows of outputs begin … end - 1 see."""
        rows, _ = self.geometry.output
        images = (end - 1) // rows - begin // rows + 1
        lines = (end - begin - images) * self.geometry.stride[0] + images * self.geometry.kernel[0]
        n: int = lines * self.geometry.line * self.x.shape[3]
        return n

    def lines_of(self, numbers: int, multiple: int = 1) -> int:
        """Rows of outputs whose pieces have about so many numbers, whole images if they can.

        multiple    so many of their outputs make a whole.
        """
        rows, columns = self.geometry.output
        image = self.numbers(0, rows)
        if image <= numbers:
            lines = numbers // image * rows
        else:
            rows_above = numbers // (self.geometry.line * self.x.shape[3]) - self.geometry.kernel[0]
            lines = max(0, rows_above) // self.geometry.stride[0] + 1
        unit = multiple // math.gcd(multiple, columns)
        return max(1, lines // unit) * unit

    def pieces(self, multiple: int) -> Iterator[tuple[int, int, Rows]]:
        """Outputs begin … end - 1 and their windows, all but the last a multiple of so many."""
        filled = bool((self.table == ZERO).any())
        for begin, end, windows in blocks(self.x, self.geometry, multiple, filled=filled):
            kind = windows.columns if self.turned else windows.rows
            yield begin, end, kind(self.table, self.first)


def _offsets(table: Table, line: int, channels: int, first: int) -> Table:
    ky, kx, c = table.T
    offsets: Table = (ky * line + kx) * channels + c + first
    offsets[ky == ZERO] = 0
    return offsets  # writable: kernels are compiled again for arrays that are not


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
    line = shape.line
    pieces = [
        (images, lines, (len(images), _extent(len(lines), shape), line, x.shape[3]))
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
    begins = np.concatenate(windows)[first - begin * columns : last - begin * columns]
    return Field(values, begins, line, x.shape[3], filled)


def _extent(windows: int, shape: Geometry) -> int:
    """What so many windows span, down."""
    return (windows - 1) * shape.stride[0] + shape.kernel[0]


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
    line = shape.line * x.shape[3]
    # The window's own height comes once more with every image.
    lines = max(1, _PIECE // max(1, line) * rows // (rows * shape.stride[0] + shape.kernel[0]))
    step = max(1, lines * columns // multiple) * multiple
    outputs = x.shape[0] * rows * columns
    for begin in range(0, outputs, step):
        end = min(begin + step, outputs)
        yield begin, end, field(x, shape, begin, end, filled=filled)
