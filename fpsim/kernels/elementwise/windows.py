"""Windows of images: the largest of each, and values that go back to the places they came from.

A step takes one window and as many channels as a vector has lanes; values move as bits. The last
channels of a window need not fill a vector: the lanes beyond belong to what comes next in memory,
so results are written in the order of memory, and what comes next is written later.

Source    IEEE 754-2019 §9.6 (-0 < +0).
"""

from __future__ import annotations

import numpy as np
from numba import njit

from fpsim.kernels.compiling import INLINE, compiled
from fpsim.kernels.lanes.formula import formula
from fpsim.kernels.lanes.memory import (
    copy_item,
    copy_items,
    load_word,
    pointer,
    room,
    splat_item,
    store_low,
)
from fpsim.kernels.lanes.vectors import (
    U32,
    any_lane,
    infinity_like,
    iota,
    select,
    sign_like,
    splat,
    umax,
    width_of,
)

__all__ = ["spread_windows", "window_maxima"]

#: Bits of -infinity in binary32.
_LOWEST = 0xFF800000


@njit(**INLINE)
def _fetch(source, at, end, spare, like):
    """Elements from source[at] on, in lanes as `like`; nothing is read at `end` or beyond."""
    n = 512 // width_of(like)
    if at + n <= end:
        return load_word(source, at, like)
    copy_items(spare, source, at, end - 1, n)
    return load_word(spare, 0, like)


@njit(**INLINE)
def _keep(target, at, end, spare, value):
    """target[at:] = the low bits of the lanes; nothing is written at `end` or beyond."""
    if at + 512 // width_of(value) <= end:
        store_low(target, at, value)
    else:
        store_low(spare, 0, value)
        for k in range(end - at):
            copy_item(target, at + k, spare, k)


@formula
def _key(bits):
    """Unsigned integers in the order of the values with these bits."""
    sign = sign_like(bits)
    return bits ^ ((sign ^ sign) - (bits >> 31) | sign)


@formula
def _value(key):
    """The bits of the value with this key."""
    sign = sign_like(key)
    return key ^ ((key >> 31) - 1 | sign)


@formula
def _nans(bits, live):
    """The bits `live` of lanes that are NaN, zero in others."""
    return select((bits & ~sign_like(bits)) > infinity_like(bits), live, live ^ live)


@formula
def _equal(bits, best):
    """1 in lanes that are equal, as zeros of both signs are; else 0."""
    zero = bits ^ bits
    return select((bits == best) | (((bits | best) & ~sign_like(bits)) == 0), zero + 1, zero)


@formula
def _where(marks, position, value):
    """The value where bit `position` of its marks is set, zero elsewhere."""
    zero = value ^ value
    return select((marks & (zero + 1 << position)) != 0, value, zero)


@njit(**INLINE)
def _bounds(top, size, extent):
    """Positions of a window, along one axis, that lie in the image."""
    return max(-top, 0), min(size, extent - top)


@njit(**INLINE)
def _largest(x, end, corner, pixel, spare, ys, zs, live, nans):
    """The largest of a window's elements, and the NaNs of all windows so far.

    corner, pixel    the index of its position (0, 0), and how far rows and columns lie apart.
    ys, zs           its rows and columns in the image.
    """
    best = _key(splat(_LOWEST, U32))
    for y in range(ys[0], ys[1]):
        for z in range(zs[0], zs[1]):
            bits = _fetch(x, corner + y * pixel[0] + z * pixel[1], end, spare, live)
            nans = nans | _nans(bits, live)
            best = umax(best, _key(bits))
    return _value(best), nans


@njit(**INLINE)
def _mark(x, end, corner, pixel, spare, ys, zs, kernel, best, only, winners, at, plane, few):
    """Write which positions of a window equal its largest: bits of bytes, `plane` bytes apart."""
    none = only ^ only
    earlier, marks, p = none, none, 0
    for y in range(kernel[0]):
        for z in range(kernel[1]):
            bits = splat(_LOWEST, U32)
            if ys[0] <= y < ys[1] and zs[0] <= z < zs[1]:
                bits = _fetch(x, corner + y * pixel[0] + z * pixel[1], end, spare, only)
            equal = _equal(bits, best) & ~(earlier & only)
            earlier = earlier | equal
            marks = marks | (equal << (p & 7))
            p += 1
            if p & 7 == 0 or p == kernel[0] * kernel[1]:
                first = ((p - 1) >> 3) * plane
                _keep(winners, first + at, first + plane, few, marks)
                marks = none


@compiled
def window_maxima(x, kernel, stride, before, first, out, winners):
    """The largest of every window of x, -0 < +0, and where in the window it is.

    x (batch, height, width, channels) and out (batch, rows, columns, channels) bits of binary32 as
    int32; what lies around x is -infinity. Bit p % 8 of winners[p // 8], uint8 (positions / 8, …),
    says that position p, in order of rows and columns, equals the largest, or is the first one to
    equal it if `first`. Arrays are contiguous.
    Returns 1 if there is a NaN, else 0; then the results mean nothing.
    """
    _, height, width, channels = x.shape
    batch, rows, columns, _ = out.shape
    source, largest, marks, end = pointer(x), pointer(out), pointer(winners), out.size
    spare, few = room(x, 16), room(winners, 16)
    none = splat(0, U32)
    only, nans = splat(np.uint32(first), U32), none
    pixel = width * channels, channels
    for n in range(batch):
        for i in range(rows):
            top = i * stride[0] - before[0]
            ys = _bounds(top, kernel[0], height)
            for j in range(columns):
                left = j * stride[1] - before[1]
                zs = _bounds(left, kernel[1], width)
                corner = ((n * height + top) * width + left) * channels
                at = ((n * rows + i) * columns + j) * channels
                for c in range(0, channels, 16):
                    live = select(iota(U32) < channels - c, none + 1, none)
                    best, nans = _largest(
                        source, x.size, corner + c, pixel, spare, ys, zs, live, nans
                    )
                    _keep(largest, at + c, end, spare, best)
                    _mark(
                        source, x.size, corner + c, pixel, spare, ys, zs, kernel, best, only,
                        marks, at + c, end, few,
                    )
    return np.int64(any_lane(nans != 0))


@njit(**INLINE)
def _spread_row(values, marks, size, at, out, end, to, zs, first, channels, rooms, none):
    """The value of a window, all channels, at its positions first + zs[0], … of one row.

    The last channels come first, since the lanes beyond reach into the next position.
    """
    lanes = 512 // width_of(none)
    for c in range((channels - 1) // lanes * lanes, -1, -lanes):
        value = _fetch(values, at + c, size, rooms[0], none)
        value = select(iota(none) < channels - c, value, none)
        for z in range(zs[0], zs[1]):
            p = first + z
            plane = (p >> 3) * size
            byte = _fetch(marks, plane + at + c, plane + size, rooms[1], none)
            _keep(out, to + z * channels + c, end, rooms[0], _where(byte, p & 7, value))


@compiled
def spread_windows(values, winners, kernel, stride, before, out):
    """out = the value of each window at its winning positions; windows side by side.

    values (batch, rows, columns, channels), not empty, and out (batch, height, width, channels) as
    integers; winners as `window_maxima` writes it; out is zero before where no window lies. Arrays
    are contiguous.
    """
    _, height, width, channels = out.shape
    batch, rows, columns, _ = values.shape
    source, marks, target, size = pointer(values), pointer(winners), pointer(out), values.size
    rooms = room(values, 32), room(winners, 32)
    none = splat_item(values, 0)
    none = none ^ none
    for n in range(batch):
        for i in range(rows):
            top = i * stride[0] - before[0]
            ys = _bounds(top, kernel[0], height)
            for y in range(ys[0], ys[1]):
                for j in range(columns):
                    left = j * stride[1] - before[1]
                    zs = _bounds(left, kernel[1], width)
                    at = ((n * rows + i) * columns + j) * channels
                    to = ((n * height + top + y) * width + left) * channels
                    _spread_row(
                        source, marks, size, at, target, out.size, to, zs, y * kernel[1],
                        channels, rooms, none,
                    )
