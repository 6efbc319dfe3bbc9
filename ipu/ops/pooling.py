"""Maximum and average over windows of images NHWC.

Positions of a window come in field order: rows, then columns. A maximum follows the device's rule
for NaN. Its full gradient goes to every position that equals it, as poplibs does; `ties="first"`
sends it to the first of them alone, as TensorFlow does elsewhere. An average adds fl(x · fl(1/n))
in the format of x, position after position, n counting elements without the padding. Gradients of
overlapping windows are added in the same order, each sum rounded.

Source    poplibs, MaxPoolingGrad.cpp and SumPooling.cpp (arithmetic in the activations' type; the
          order of positions depends on the layout there and is ASSUMED).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim.array import Array
from fpsim.elementwise.apply import as_read
from fpsim.elementwise.selection import spread_windows, window_maxima
from fpsim.records.geometry import Geometry, Padding, Pair, Stride, geometry
from ipu.machine.device import Device
from ipu.machine.vector import thread_cycles
from ipu.ops.primitive import Primitive
from ipu.ops.rules import Saved, steps

__all__ = ["average_pool", "max_pool"]

Size = int | Pair
Values = NDArray[Any]


def _windows(x: Array, size: Size, stride: Stride | None, padding: Padding) -> Geometry:
    """The extents; stride: by default, windows side by side."""
    if x.ndim != 4:
        raise ValueError(f"pooling takes images (batch, y, x, channels), got shape {x.shape}")
    kernel = (size, size) if isinstance(size, int) else size
    _, height, width, _ = x.shape
    return geometry((height, width), kernel, kernel if stride is None else stride, padding)


def _padded(shape: tuple[int, ...], g: Geometry) -> tuple[tuple[int, ...], tuple[slice, ...]]:
    """Shape of the field that all windows cover, and where in it the image lies."""
    (top, left), (batch, height, width, channels) = g.before, shape
    reach = [(n - 1) * s + k for n, s, k in zip(g.output, g.stride, g.kernel, strict=True)]
    extent = max(reach[0], top + height), max(reach[1], left + width)
    image = np.s_[:, top : top + height, left : left + width, :]
    return (batch, *extent, channels), image


def _positions(g: Geometry) -> Iterator[tuple[slice, ...]]:
    """For each position of a window, where all windows have it."""
    (rows, columns), (down, across) = g.output, g.stride
    for ky in range(g.kernel[0]):
        for kx in range(g.kernel[1]):
            y = slice(ky, ky + (rows - 1) * down + 1, down)
            yield (slice(None), y, slice(kx, kx + (columns - 1) * across + 1, across))


def _overlap(g: Geometry) -> bool:
    return any(k > s for k, s in zip(g.kernel, g.stride, strict=True))


def _spread(
    device: Device, summands: Iterator[Array], shape: tuple[int, ...], g: Geometry
) -> Array:
    """The gradient of every element: the summands of the windows' positions, added in order."""
    padded, image = _padded(shape, g)
    field: Array | None = None
    for position, summand in zip(_positions(g), summands, strict=True):
        if field is None:
            field = device.zeros(padded, summand.format)
        if _overlap(g):
            summand = device.add(field[position], summand)
        field.carrier[position] = summand.carrier
    assert field is not None
    return field[image]


# Maximum --------------------------------------------------------------------------------------


def _max_pool(
    device: Device, x: Array, *, size: Size, stride: Stride | None = None,
    padding: Padding = "VALID", ties: str = "all",
) -> tuple[Array, Saved]:
    if ties not in ("first", "all"):
        raise ValueError(f"ties={ties!r} is not known; use first or all")
    g = _windows(x, size, stride, padding)
    first, context = ties == "first", device.context(x.format)
    plain = context.core.settings.subnormals != "flush_both"
    if x.size and plain and x.carrier.itemsize == 4:
        native = window_maxima(x.carrier, g, first=first)
        if native is not None:
            largest = Array(native[0], context)
            elements = largest.size * math.prod(g.kernel)
            device.vector_cycles += thread_cycles("maximum", x.format, elements)
            return largest, (native[1], x.shape, g)
    return _by_positions(device, x, g, first)


def _by_positions(device: Device, x: Array, g: Geometry, first: bool) -> tuple[Array, Saved]:
    """The same where a NaN is read, where subnormals are zeros, or in binary64."""
    padded, image = _padded(x.shape, g)
    field = x.carrier
    if padded != x.shape:
        field = np.full(padded, -np.inf, x.carrier.dtype)
        field[image] = x.carrier
    field = as_read(field, device.context(x.format).core.settings)
    windows = [field[position] for position in _positions(g)]
    largest = device.reduce_max(Array(np.stack(windows), x.context), axis=0)[0]
    masks = np.stack(_masks(windows, largest.carrier, first))
    return largest, (np.packbits(masks, axis=0, bitorder="little"), x.shape, g)


def _masks(windows: list[Values], largest: Values, first: bool) -> list[NDArray[np.bool_]]:
    """For each position, the windows whose maximum is there."""
    taken = np.zeros(largest.shape, np.bool_)
    masks = []
    for window in windows:
        equal = (window == largest) | (np.isnan(window) & np.isnan(largest))
        masks.append(equal & ~taken if first else equal)
        taken |= equal
    return masks


def _max_pool_x(device: Device, gradient: Array, saved: Saved, **_: Any) -> Array:
    packed, shape, g = saved
    positions = math.prod(g.kernel)
    if not _overlap(g):
        cycles = thread_cycles("select", gradient.format, gradient.size)
        device.vector_cycles += positions * cycles
        spread = spread_windows(gradient.carrier, packed, g)
        return Array(spread, device.context(gradient.format))
    masks = np.unpackbits(packed, axis=0, count=positions, bitorder="little").view(np.bool_)
    return _spread(device, (device.select(where, gradient) for where in masks), shape, g)


# Average --------------------------------------------------------------------------------------


def _average_pool(
    device: Device, x: Array, *, size: Size, stride: Stride | None = None,
    padding: Padding = "VALID",
) -> tuple[Array, Saved]:
    g = _windows(x, size, stride, padding)
    padded, image = _padded(x.shape, g)
    field = device.zeros(padded, x.format)
    field.carrier[image] = x.carrier
    share = device.from_host(1 / _counts(padded, image, g), x.format)
    y = device.zeros((len(x), *g.output, x.shape[3]), x.format)
    for position in _positions(g):
        y = device.add(y, device.multiply(field[position], share))
    return y, (x.shape, g, share)


def _counts(padded: tuple[int, ...], image: tuple[slice, ...], g: Geometry) -> Values:
    """Elements of each window without the padding: (output height, output width, 1)."""
    field = np.zeros((1, *padded[1:3], 1))
    field[image] = 1.0
    counts: Values = np.sum([field[0][position[1:]] for position in _positions(g)], axis=0)
    return counts


def _average_pool_x(device: Device, gradient: Array, saved: Saved, **_: Any) -> Array:
    shape, g, share = saved
    summand = device.multiply(gradient, share)
    return _spread(device, (summand for _ in _positions(g)), shape, g)


# Costs are those of windows side by side, where each element is read once.

#: Largest of each window of `size`; options `stride` (default: size), `padding`, `ties`.
max_pool = Primitive(
    "max_pool",
    _max_pool,
    (_max_pool_x,),
    cost=steps(maximum=1),
    rounding="none",
    gradient="once for each window after the first that has an element",
)
#: Average of each window of `size`; options `stride` (default: size) and `padding`.
average_pool = Primitive(
    "average_pool",
    _average_pool,
    (_average_pool_x,),
    cost=steps(multiply=1, add=1),
    rounding="each product and each sum",
    gradient="each product, then as the gradient of a maximum",
)
