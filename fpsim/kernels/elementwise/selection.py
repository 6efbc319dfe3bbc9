"""Values chosen, not computed: of elements by a mask or their sign, and of windows of images.

One pass over memory each. Values move as bits, so NaNs keep their payloads; a NaN that is read is
told to the caller, who knows what reading it raises.

Source    IEEE 754-2019 §9.6 (-0 < +0).
"""

from __future__ import annotations

import numpy as np
from numba import njit

from fpsim.kernels.compiling import INLINE, compiled

__all__ = ["keep_least", "keep_positive", "keep_where", "spread_windows", "window_maxima"]

#: Bits of -infinity in binary32.
_LOWEST = np.int32(-0x800000)


@compiled
def keep_where(where, x, out):
    """out = x where true, zero elsewhere; x and out as integers."""
    for i in range(out.shape[0]):
        out[i] = x[i] if where[i] else 0


@compiled
def keep_positive(keys, most, x, out):
    """out = x where 0 < key <= most, zero elsewhere; x and out as integers, keys unsigned."""
    for i in range(out.shape[0]):
        out[i] = x[i] if (keys[i] > 0) & (keys[i] <= most) else 0


@compiled
def keep_least(x, least, out):
    """out = x where x >= least, +0 elsewhere; returns 1 if there is a NaN, else 0."""
    zero = x.dtype.type(0)
    nans = np.int64(0)
    for i in range(out.shape[0]):
        v = x[i]
        nans |= np.int64(v != v)
        out[i] = v if v >= least else zero
    return nans


@njit(**INLINE)
def _key(bits):
    """Integers in the order of the values with these bits."""
    return bits ^ ((bits >> np.int32(31)) & np.int32(0x7FFFFFFF))


@njit(**INLINE)
def _largest(x, n, top, left, kernel, out, i, j):
    """out[n, i, j] = the largest of the window at top and left, of all channels; 1 for a NaN."""
    _, height, width, channels = x.shape
    nans = np.int32(0)
    for c in range(channels):
        out[n, i, j, c] = _LOWEST
    for y in range(max(top, 0), min(top + kernel[0], height)):
        for z in range(max(left, 0), min(left + kernel[1], width)):
            for c in range(channels):
                bits, best = x[n, y, z, c], out[n, i, j, c]
                nans |= np.int32((bits & np.int32(0x7FFFFFFF)) > np.int32(0x7F800000))
                out[n, i, j, c] = bits if _key(bits) > _key(best) else best
    return nans


@njit(**INLINE)
def _mark(x, n, top, left, kernel, out, i, j, first, chosen):
    """The bits of the positions that equal the largest, zeros of both signs being equal."""
    _, height, width, channels = x.shape
    for p in range(kernel[0] * kernel[1]):
        y, z = top + p // kernel[1], left + p % kernel[1]
        inside = 0 <= y < height and 0 <= z < width
        for c in range(channels):
            seen = x[n, y, z, c] if inside else _LOWEST
            best = out[n, i, j, c]
            same = seen == best or ((seen | best) & np.int32(0x7FFFFFFF)) == 0
            if first:
                for earlier in range((p >> 3) + 1):
                    same = same and chosen[earlier, n, i, j, c] == 0
            chosen[p >> 3, n, i, j, c] |= np.uint8(same) << np.uint8(p & 7)


@compiled
def window_maxima(x, kernel, stride, before, first, out, chosen):
    """The largest of every window of x, -0 < +0, and where in the window it is.

    x (batch, height, width, channels) and out (batch, rows, columns, channels) bits of binary32 as
    int32; what lies around x is -infinity. chosen (positions / 8, …) uint8 is zero before: bit
    p % 8 of chosen[p // 8] says that position p, in order of rows and columns, equals the largest,
    or is the first one to equal it if `first`.
    Returns 1 if there is a NaN, else 0; then the results mean nothing.
    """
    nans = np.int32(0)
    batch, rows, columns, _ = out.shape
    for n in range(batch):
        for i in range(rows):
            for j in range(columns):
                top, left = i * stride[0] - before[0], j * stride[1] - before[1]
                nans |= _largest(x, n, top, left, kernel, out, i, j)
                _mark(x, n, top, left, kernel, out, i, j, first, chosen)
    return nans


@compiled
def spread_windows(values, chosen, kernel, stride, before, out):
    """out = the value of each window at its chosen positions; windows side by side.

    values (batch, rows, columns, channels) and out (batch, height, width, channels) as integers;
    chosen as `window_maxima` writes it; out is zero before.
    """
    _, height, width, channels = out.shape
    batch, rows, columns, _ = values.shape
    for n in range(batch):
        for i in range(rows):
            for j in range(columns):
                top, left = i * stride[0] - before[0], j * stride[1] - before[1]
                for y in range(max(top, 0), min(top + kernel[0], height)):
                    for z in range(max(left, 0), min(left + kernel[1], width)):
                        p = (y - top) * kernel[1] + z - left
                        for c in range(channels):
                            mark = chosen[p >> 3, n, i, j, c] >> np.uint8(p & 7) & np.uint8(1)
                            out[n, y, z, c] = values[n, i, j, c] if mark else 0
