"""Images as the loop of tiles reads them: padded pieces in a table, and where windows begin in it.

A piece is what some rows of outputs of one image see, with the zeros around it and between its
elements. The pieces of some neighbouring rows of outputs lie one after the other.
"""

from __future__ import annotations

from numba import njit

from fpsim.kernels.by_unit.panels import write_numbers, write_zeros
from fpsim.kernels.compiling import INLINE, compiled
from fpsim.kernels.lanes.memory import pointer, room, splat_item
from fpsim.kernels.lanes.vectors import width_of

__all__ = ["fill_windows", "place_windows"]


@njit(**INLINE)
def _numbers(source, first, tables, to, n, how):
    """n numbers of a source from `first` on; up to 15 more are overwritten later."""
    values, fields = tables
    none, shift, wanted = how
    for i in range(0, n, 16):
        numbers, at = source[0], first + i
        if at + 16 > source[2]:
            numbers, at = source[1], at + 16 - source[2]
        for q in range(0, 16, 512 // width_of(none)):
            write_numbers(numbers, at + q, values, fields, to + i + q, none, shift, (True, wanted))


@njit(**INLINE)
def _zeros(tables, to, n, how):
    """n zeros; up to 15 more are overwritten later."""
    none, shift, wanted = how
    for i in range(0, n, 512 // width_of(none)):
        write_zeros(*tables, to + i, none, shift, (True, wanted))


@njit(**INLINE)
def _run(i, left, apart, width, n):
    """Zeros from i on in a line, or else elements (as many as -1 times the result).

    An image's row of `width` elements, `apart` from each other, begins at `left` in a line of n.
    """
    x = i - left
    if x < 0:
        return min(-x, n - i)
    if x >= (width - 1) * apart + 1:
        return n - i
    if apart == 1:
        return -min(width - x, n - i)
    return min(-x % apart, n - i) if x % apart else -1


@compiled
def fill_windows(codes, image, geometry, lines, values, exponents, zero, shift):
    """The pieces that rows of outputs begin … end - 1 see, counted over all images.

    codes (n,) binary32 of images of (height, width, channels); geometry: pairs, down and across, of
    the kernel, stride, zeros before, outputs and spacing; values and exponents have room for 15
    numbers more, empty exponents are left alone. `zero` says how wide the lanes are.
    """
    height, width, channels = image
    kernel, stride, before, outputs, spacing = geometry
    total, last, left = codes.shape[0], room(codes, 32), before[1]
    # Vectors that would end beyond the source are read from a copy of its last numbers.
    for q in range(32 if total else 0):
        last[q] = codes[min(max(total - 16 + q, 0), total - 1)]
    source = pointer(codes), last, total
    tables = pointer(values), pointer(exponents)
    how = splat_item(zero, 0), shift, exponents.size > 0
    across = (outputs[1] - 1) * stride[1] + kernel[1]
    at, line = 0, lines[0]
    while line < lines[1]:
        number, row = line // outputs[0], line % outputs[0]
        count = min(outputs[0] - row, lines[1] - line)
        for y in range(row * stride[0] - before[0],
                       (row + count - 1) * stride[0] - before[0] + kernel[0]):
            inside = y >= 0 and y % spacing[0] == 0 and y // spacing[0] < height
            first = (number * height + y // spacing[0]) * width
            i = 0
            while i < across:
                run = _run(i, left, spacing[1], width if inside else 0, across)
                to = at + i * channels
                if run > 0:
                    _zeros(tables, to, run * channels, how)
                else:
                    x = (i - left) // spacing[1]
                    _numbers(source, (first + x) * channels, tables, to, -run * channels, how)
                i += abs(run)
            at += across * channels
        line += count
    return at


@compiled
def place_windows(channels, geometry, lines, starts, places, target):
    """Where the windows of rows of outputs begin in their pieces, and where their results stand.

    geometry, lines    as for `fill_windows`, of images of so many channels.
    starts (n,)        of the window of each output, the last one repeated to the end.
    places (outputs,)  of each row in the result, as the target says: of output 0, and steps from
                       image to image, down and across.
    """
    kernel, stride, _, outputs, _ = geometry
    across = (outputs[1] - 1) * stride[1] + kernel[1]
    at, n, line = 0, 0, lines[0]
    while line < lines[1]:
        number, row = line // outputs[0], line % outputs[0]
        count = min(outputs[0] - row, lines[1] - line)
        for i in range(count):
            first = target[0] + number * target[1] + (row + i) * target[2]
            for j in range(outputs[1]):
                places[n] = first + j * target[3]
                starts[n] = (at + i * stride[0] * across + j * stride[1]) * channels
                n += 1
        at += ((count - 1) * stride[0] + kernel[0]) * across
        line += count
    for i in range(n, starts.shape[0]):
        starts[i] = starts[n - 1]
    return n
