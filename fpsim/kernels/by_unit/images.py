"""Images as the loop of tiles reads them: padded pieces in a table, and where windows begin in it.

A piece is what some rows of outputs of one image see, with the zeros around it and between its
elements. The pieces of some neighbouring rows of outputs lie one after the other.
"""

from __future__ import annotations

from numba import njit

from fpsim.kernels.by_unit.panels import write_numbers
from fpsim.kernels.compiling import INLINE, compiled
from fpsim.kernels.lanes.memory import copy_item, pointer, room, splat_item
from fpsim.kernels.lanes.vectors import width_of

__all__ = ["fill_windows"]


@njit(**INLINE)
def _numbers(source, total, first, tables, to, n, how, few):
    """n numbers of a source of `total` from `first` on; up to 15 more are overwritten later."""
    values, fields = tables
    none, shift, wanted = how
    lanes = 512 // width_of(none)
    for i in range(0, n, 16):
        if first + i + 16 <= total:
            for q in range(0, 16, lanes):
                write_numbers(
                    source, first + i + q, values, fields, to + i + q, none, shift, wanted
                )
            continue
        for q in range(16):
            copy_item(few, q, source, min(first + i + q, total - 1))
        for q in range(0, 16, lanes):
            write_numbers(few, q, values, fields, to + i + q, none, shift, wanted)


@njit(**INLINE)
def _zeros(tables, to, n, how, zeros):
    """n zeros; up to 15 more are overwritten later."""
    values, fields = tables
    none, shift, wanted = how
    lanes = 512 // width_of(none)
    for i in range(0, n, lanes):
        write_numbers(zeros, 0, values, fields, to + i, none, shift, wanted)


@njit(**INLINE)
def _line(source, total, first, width, channels, left, apart, n, tables, to, how, few, zeros):
    """One row of an image of `width` elements, `apart` from each other, in a line of n elements.

    `left` zeros stand before it; where it is negative so many elements are not seen.
    """
    if apart == 1:
        begin, end = min(max(left, 0), n), max(min(width + left, n), 0)
        end = max(begin, end)
        _zeros(tables, to, begin * channels, how, zeros)
        _numbers(source, total, first + (begin - left) * channels, tables, to + begin * channels,
                 (end - begin) * channels, how, few)  # fmt: skip
        _zeros(tables, to + end * channels, (n - end) * channels, how, zeros)
        return
    for i in range(n):
        x, rest = (i - left) // apart, (i - left) % apart
        at = to + i * channels
        if i >= left and rest == 0 and x < width:
            _numbers(source, total, first + x * channels, tables, at, channels, how, few)
        else:
            _zeros(tables, at, channels, how, zeros)


@compiled
def fill_windows(
    codes, image, geometry, lines, values, exponents, starts, places, target, zero, shift
):
    """The pieces that rows of outputs begin … end - 1 see, counted over all images.

    codes (n,) binary32 of images of (height, width, channels); geometry: pairs, down and across, of
    the kernel, stride, zeros before, outputs and spacing; values and exponents have room for 15
    numbers more, an empty one is left alone; starts (n,): where the window of each output begins,
    the last one repeated to the end; places (outputs,): where its row stands in the result, as the
    target says: where output 0 does, steps from image to image, down and across. `zero` says how
    wide the lanes are.
    """
    height, width, channels = image
    kernel, stride, before, outputs, spacing = geometry
    none = splat_item(zero, 0)
    source, total = pointer(codes), codes.shape[0]
    tables = pointer(values), pointer(exponents)
    how = none, shift, (values.size > 0, exponents.size > 0)
    few, zeros = room(codes, 16), room(codes, 16)
    for q in range(16):
        zeros[q] = 0
    rows, columns = outputs
    across = (columns - 1) * stride[1] + kernel[1]
    at = n = 0
    line, last = lines
    while line < last:
        number, row = line // rows, line % rows
        count = min(rows - row, last - line)
        for i in range(count):
            row_place = target[0] + number * target[1] + (row + i) * target[2]
            for j in range(columns):
                places[n] = row_place + j * target[3]
                starts[n] = at + (i * stride[0] * across + j * stride[1]) * channels
                n += 1
        for i in range((count - 1) * stride[0] + kernel[0]):
            y = row * stride[0] + i - before[0]
            if y >= 0 and y % spacing[0] == 0 and y // spacing[0] < height:
                first = (number * height + y // spacing[0]) * width * channels
                _line(source, total, first, width, channels, before[1], spacing[1], across, tables,
                      at, how, few, zeros)  # fmt: skip
            else:
                _zeros(tables, at, across * channels, how, zeros)
            at += across * channels
        line += count
    while n < starts.shape[0]:
        starts[n] = starts[n - 1]
        n += 1
    return at
