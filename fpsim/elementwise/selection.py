"""Values chosen, not computed, on carriers: by a mask, by a bound, in windows of images.

Nothing is rounded and no flag is raised; a NaN that is read is told to the caller.

Source    docs/semantics.md §6; IEEE 754-2019 §9.6 (-0 < +0).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim.kernels.elementwise import selection, windows
from fpsim.records.geometry import Geometry
from fpsim.records.settings import Settings
from fpsim.records.types import Carrier
from fpsim.state.threads import run_blocks

__all__ = [
    "Keys", "kept_least", "kept_positive", "kept_where", "least_positive", "spread_windows",
    "window_maxima",
]

#: Elements below which a second thread costs more than it gives.
_SMALLEST = 1 << 16

#: Codes of values, or bits of floats.
Keys = NDArray[np.unsignedinteger[Any]]

#: Bits of the positions of windows, by eight: (positions / 8, …).
Chosen = NDArray[np.uint8]


def kept_where(where: NDArray[np.bool_], x: Carrier, out: Carrier | None = None) -> Carrier:
    """x where true, +0 elsewhere; in `out`, if it is there.

    Shapes    where and x broadcast; out is as the result, in C order.

    >>> kept_where(np.array([True, False]), np.float32([-1, -2])).tolist()
    [-1.0, 0.0]
    """
    if where.shape != x.shape:
        where, x = np.broadcast_arrays(where, x)
    out = np.empty(x.shape, x.dtype) if out is None else out
    masks, values, target = _flat(where), _whole_numbers(x), _whole_numbers(out)

    def work(a: int, b: int) -> int:
        selection.keep_where(masks[a:b], values[a:b], target[a:b])
        return 0

    run_blocks(work, 0, x.size, _SMALLEST)
    return out


def kept_positive(keys: Keys, most: int, x: Carrier, out: Carrier | None = None) -> Carrier:
    """x where 0 < key <= most, +0 elsewhere; in `out`, if it is there.

    Keys are codes, or bits of floats: unsigned integers, positive numbers from 1 on in their order.

    Shapes    keys and x broadcast; out is as the result, in C order.

    >>> kept_positive(np.uint16([0, 1, 0x7C00, 0x7C01]), 0x7C00, np.float32([1, 2, 3, 4])).tolist()
    [0.0, 2.0, 3.0, 0.0]
    """
    if keys.shape != x.shape:
        keys, x = np.broadcast_arrays(keys, x)
    out = np.empty(x.shape, x.dtype) if out is None else out
    codes, values, target = _flat(keys), _whole_numbers(x), _whole_numbers(out)
    bound = codes.dtype.type(most)

    def work(a: int, b: int) -> int:
        selection.keep_positive(codes[a:b], bound, values[a:b], target[a:b])
        return 0

    run_blocks(work, 0, x.size, _SMALLEST)
    return out


def least_positive(settings: Settings) -> float:
    """The least number of a format that is not read as zero.

    >>> from fpsim.records.formats import BINARY16
    >>> least_positive(Settings(BINARY16)) == BINARY16.smallest_subnormal
    True
    """
    fmt = settings.format
    return (
        fmt.smallest_normal if settings.subnormals == "flush_both" else fmt.smallest_subnormal
    )


def kept_least(x: Carrier, least: float, out: Carrier | None = None) -> Carrier | None:
    """x where x >= least, +0 elsewhere; None where there is a NaN; in `out`, if it is there.

    >>> kept_least(np.float32([-1, 2]), 0.0), kept_least(np.float32([np.nan]), 0.0)
    (array([0., 2.], dtype=float32), None)
    """
    out = np.empty(x.shape, x.dtype) if out is None else out
    values, target, bound = _flat(x), out.reshape(-1), x.dtype.type(least)

    def work(a: int, b: int) -> int:
        nans: int = selection.keep_least(values[a:b], bound, target[a:b])
        return nans

    return None if run_blocks(work, 0, x.size, _SMALLEST) else out


def window_maxima(x: Carrier, g: Geometry, *, first: bool) -> tuple[Carrier, Chosen] | None:
    """The largest of every window, and which positions equal it; None where there is a NaN.

    Around x is -infinity. Position p, in order of rows and columns, has bit p mod 8 of
    choices[p div 8].

    first    only the first of the equal positions is chosen.

    Shapes    x binary32 (batch, height, width, channels); the result as many windows as g has.

    >>> from fpsim.records.geometry import geometry
    >>> x = np.float32([1, 3, 3, 2]).reshape(1, 2, 2, 1)
    >>> largest, choices = window_maxima(x, geometry((2, 2), (2, 2), 2, "VALID"), first=False)
    >>> largest.item(), bin(choices.item())
    (3.0, '0b110')
    """
    shape = (len(x), *g.output, x.shape[3])
    out = np.empty(shape, np.float32)
    positions = g.kernel[0] * g.kernel[1]
    choices = np.empty((-(-positions // 8), *shape), np.uint8)
    source = np.ascontiguousarray(x).view(np.int32)
    nans = windows.window_maxima(
        source, g.kernel, g.stride, g.before, first, out.view(np.int32), choices
    )
    return None if nans else (out, choices)


def spread_windows(values: Carrier, choices: Chosen, g: Geometry) -> Carrier:
    """The values of windows at their chosen positions, +0 elsewhere; windows do not overlap.

    Shapes    values as the largest of `window_maxima`, the result as its x.
    """
    new = np.empty if values.size and _is_covered(g) else np.zeros
    out = new((len(values), *g.image, values.shape[3]), values.dtype)
    kind = f"i{values.itemsize}"
    source, marks = np.ascontiguousarray(values), np.ascontiguousarray(choices)
    if values.size:
        windows.spread_windows(
            source.view(kind), marks, g.kernel, g.stride, g.before, out.view(kind)
        )
    return out


def _is_covered(g: Geometry) -> bool:
    """Whether every element of the image lies in a window; windows do not overlap."""
    axes = zip(g.kernel, g.stride, g.before, g.output, g.image, strict=True)
    return all(k == s and 0 <= b <= n * k - extent for k, s, b, n, extent in axes)


def _flat(array: NDArray[np.generic]) -> NDArray[np.generic]:
    return np.ascontiguousarray(array).reshape(-1)


def _whole_numbers(array: Carrier) -> NDArray[np.generic]:
    return _flat(array).view(f"i{array.itemsize}")
