"""Order of values: extrema along axes, places of extrema, sorting, the different values.

Extrema follow IEEE 754's maximum and minimum: a NaN wins, -0 < +0, a signalling NaN raises INVALID.
Sorting is selection and raises nothing: -0 < +0, NaNs come last, equal values keep their order.

Source    IEEE 754-2019 §9.6 (maximum, maximumNumber), §5.10 (totalOrder raises nothing).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim.elementwise.apply import apply, as_read, broadcast
from fpsim.elementwise.axes import checked_axes
from fpsim.elementwise.codes import to_codes
from fpsim.elementwise.compare import extreme, is_signalling
from fpsim.records.flags import Flags
from fpsim.records.formats import Format
from fpsim.records.settings import Settings
from fpsim.records.types import Axis, Carrier, ElementFlags, Shape

__all__ = [
    "axes_of", "distinct", "extreme_along", "is_total_order", "keys", "largest_along",
    "place_along", "reduced_shape", "rows",
]


def axes_of(ndim: int, axis: Axis) -> tuple[int, ...]:
    """Axes from the first on, each once; default: all."""
    return tuple(sorted(checked_axes(axis, ndim)))


def reduced_shape(shape: Shape, axis: Axis, keepdims: bool) -> Shape:
    """Of a reduction over axes, which vanish or stay with length 1.

    >>> reduced_shape((2, 3, 4), (0, 2), True), reduced_shape((2, 3, 4), -1, False)
    ((1, 3, 1), (2, 3))
    """
    axes = axes_of(len(shape), axis)
    if keepdims:
        return tuple(1 if i in axes else n for i, n in enumerate(shape))
    return tuple(n for i, n in enumerate(shape) if i not in axes)


def rows(x: Carrier, axis: Axis) -> Carrier:
    """Values as (outputs, elements), elements in C order."""
    axes = axes_of(x.ndim, axis)
    outer = tuple(i for i in range(x.ndim) if i not in axes)
    elements = math.prod(x.shape[i] for i in axes)
    outputs = math.prod(x.shape[i] for i in outer)
    return x.transpose((*outer, *axes)).reshape(outputs, elements)


def extreme_along(name: str, x: Carrier, settings: Settings) -> tuple[Carrier, ElementFlags]:
    """maximum, minimum, fmax or fmin of each row, neighbour with neighbour; with flags of each row.

    Of several NaNs the first counts where the policy propagates. One element is itself.

    >>> from fpsim.records.formats import BINARY16
    >>> extreme_along("maximum", np.float32([[1, 3, 2]]), Settings(BINARY16))[0]
    array([3.], dtype=float32)
    """
    if x.shape[1] == 0:
        raise ValueError(f"{name} of no elements has no value; give at least one")
    x, flags = as_read(x, settings), np.zeros(len(x), np.uint8)
    while x.shape[1] > 1:
        even = x.shape[1] // 2 * 2
        larger, raised = extreme(name, x[:, 0:even:2], x[:, 1:even:2], settings)
        flags |= np.bitwise_or.reduce(raised, axis=1)
        x = np.concatenate([larger, x[:, even:]], axis=1)
    return x[:, 0].copy(), flags


def largest_along(
    x: Carrier, axis: int | tuple[int, ...], settings: Settings, *, number_wins: bool
) -> tuple[Carrier, bool]:
    """The largest along axes, which stay with length 1, and whether there is a NaN; -0 < +0.

    number_wins   a NaN, quiet or signalling, counts only where nothing else is; else it wins.

    Numbers are compared as integers: loops of numpy on floats differ by the processor's vectors
    where they meet a signalling NaN or two zeros.

    >>> from fpsim.records.formats import BINARY32
    >>> x = np.float32([[1, np.nan, 3], [-0.0, 0.0, -1]])
    >>> largest, _ = largest_along(x, 1, Settings(BINARY32), number_wins=True)
    >>> largest.tolist()
    [[3.0], [0.0]]
    """
    order = _signed(as_read(x, settings))
    infinity = int(np.array(np.inf, x.dtype).view(order.dtype))
    # Beyond the infinities there are NaNs alone.
    has_nan = bool(order.max(initial=0) > infinity or order.min(initial=0) < ~infinity)
    lost = None
    if has_nan:
        nan = (order > infinity) | (order < ~infinity)
        lost = nan.all(axis, keepdims=True) if number_wins else nan.any(axis, keepdims=True)
        order[nan] = np.iinfo(order.dtype).min
    values: Carrier = _turned(order.max(axis=axis, keepdims=True)).view(x.dtype)
    if lost is not None:
        values[lost] = _nan_of(settings)
    return values, has_nan


def _nan_of(settings: Settings) -> Carrier:
    """What an operation makes of quiet NaNs alone."""
    nan = np.full(1, np.nan, settings.format.carrier)
    return apply("add", (nan, nan), settings, track=False)[0]


def keys(x: Carrier) -> NDArray[np.signedinteger[Any]]:
    """Integers in the order of the values: -0 < +0, and NaN above all.

    >>> keys(np.float32([-1, -0.0, 0.0, 1])).argsort().tolist()
    [0, 1, 2, 3]
    """
    return np.where(np.isnan(x), np.iinfo(f"i{x.dtype.itemsize}").max, _signed(x))


def is_total_order(x: Carrier, y: Carrier, fmt: Format) -> NDArray[np.bool_]:
    """Where x stands before y or is the same: -NaN, numbers with -0 < +0, NaN; raises nothing.

    A signalling NaN stands nearer to the numbers than a quiet one, a smaller payload than a larger.

    Source    IEEE 754-2019 §5.10 totalOrder.

    >>> from fpsim.records.formats import BINARY16
    >>> x, y = np.float32([0.0, -0.0, np.nan]), np.float32([-0.0, 0.0, np.inf])
    >>> is_total_order(x, y, BINARY16).tolist()
    [False, True, False]
    """
    x, y = broadcast(x, y)
    return np.asarray(_ranks(x, fmt) <= _ranks(y, fmt))


def _ranks(x: Carrier, fmt: Format) -> NDArray[np.signedinteger[Any]]:
    """Integers in the total order; payloads of NaN are in the order of their codes."""
    if fmt.specials != "ieee":
        return _signed(x)
    codes = to_codes(x, fmt)
    size = codes.itemsize
    aligned = np.asarray(np.left_shift(codes, 8 * size - fmt.bits), codes.dtype)
    return _turned(aligned.view(f"i{size}"))


def _signed(x: Carrier) -> NDArray[np.signedinteger[Any]]:
    """Integers in the order of the values, in memory of their own; NaNs lie beyond infinities."""
    # Without dimensions numpy makes scalars, which have no memory to view.
    return _turned(np.ascontiguousarray(x).reshape(x.shape).view(f"i{x.dtype.itemsize}"))


def _turned(bits: NDArray[np.signedinteger[Any]]) -> NDArray[np.signedinteger[Any]]:
    """Bits of numbers as integers in their order, and back."""
    turned = np.asarray(bits >> (8 * bits.dtype.itemsize - 1))
    turned &= np.iinfo(bits.dtype).max
    turned ^= bits
    return turned


def place_along(name: str, x: Carrier, settings: Settings) -> tuple[NDArray[np.intp], ElementFlags]:
    """Index of the first element of each row that is its maximum or minimum; flags of each row."""
    if x.shape[1] == 0:
        raise ValueError(f"{name} of no elements has no place; give at least one")
    x = as_read(x, settings)
    order, nan = keys(x), np.isnan(x)
    if name == "minimum":
        order = np.where(nan, np.iinfo(order.dtype).min, order)
        place = order.argmin(axis=1)
    else:
        place = order.argmax(axis=1)
    loud = nan if settings.quiet_nan_raises else is_signalling(x)
    # A row of one element is not compared with anything.
    raised = loud.any(axis=1) & (x.shape[1] > 1)
    return place, raised.astype(np.uint8) * np.uint8(Flags.INVALID)


def distinct(
    x: NDArray[Any], *, equal_nan: bool = True
) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
    """Of the different values in ascending order: index of the first, inverse, counts.

    Zeros of both signs are one value, and so are all NaNs if `equal_nan`.
    """
    flat = x.reshape(-1)
    plain = np.where(flat == 0, flat.dtype.type(0), flat)
    _, first, inverse, counts = np.unique(
        plain, return_index=True, return_inverse=True, return_counts=True, equal_nan=equal_nan
    )
    return first, inverse.reshape(x.shape), counts
