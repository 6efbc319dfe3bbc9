"""Convolutions by a recipe: products of written-out windows with a kernel, as a dense layer's.

A token is a position, the inputs of a dense layer are a window's rows, columns and channels in the
order of the kernel's memory, so blocks lie along channels first. The gradient to the images sums
over the turned kernel and the outputs: its windows are those of the gradient, its elements the
stride apart. What windows have in common is quantised in each of them, as an implicit product does.

No recipe's source has convolutions: this layout is ours, ASSUMED. It takes one group; the rows of
products leave others in the layer's format.

Source    docs/semantics.md §5 (orders) and §6 (recipes).
"""

from __future__ import annotations

import numpy as np

from fpsim.array import Array
from fpsim.records.formats import Format
from fpsim.records.geometry import Geometry
from fpsim.records.types import Shape
from ipu.machine.device import Device
from ipu.ops import dense
from ipu.ops.dense import LayerRecipe

__all__ = ["forward", "images_gradient", "kernel_gradient"]


def forward(
    device: Device, x: Array, w: Array, extents: Geometry, how: LayerRecipe, to: Format
) -> Array | None:
    """The convolution of images NHWC with a kernel HWIO; None: the recipe leaves it out."""
    kernel = w.reshape(-1, w.shape[3]).T
    y = dense.forward(device, _windows(x, extents), kernel, how, to)
    return None if y is None else y.reshape(len(x), *extents.output, w.shape[3])


def images_gradient(
    device: Device, dy: Array, w: Array, extents: Geometry, how: LayerRecipe, to: Format
) -> Array | None:
    """What flows to the images, likewise."""
    turned = w.carrier[::-1, ::-1].swapaxes(2, 3)
    kernel = w.like(np.ascontiguousarray(turned).reshape(-1, w.shape[2]))
    dx = dense.input_gradient(device, _windows(dy, extents.turned()), kernel, how, to)
    return None if dx is None else dx.reshape(len(dy), *extents.image, w.shape[2])


def kernel_gradient(
    device: Device, dy: Array, x: Array, shape: Shape, extents: Geometry, how: LayerRecipe,
    to: Format,
) -> Array | None:
    """What flows to a kernel of this shape, likewise."""
    outputs = dy.reshape(-1, shape[3])
    dw = dense.weight_gradient(device, outputs, _windows(x, extents), how, to)
    return None if dw is None else dw.T.reshape(*shape)


def _windows(x: Array, extents: Geometry) -> Array:
    """Every window as a row."""
    (rows, columns), (kh, kw) = extents.output, extents.elements
    padded = _padded(x.carrier, extents)
    windows = np.empty((len(x), rows, columns, kh, kw, x.shape[3]), padded.dtype)
    (down, across), (gap_down, gap_across) = extents.stride, extents.dilation
    for i in range(kh):
        lines = slice(i * gap_down, i * gap_down + (rows - 1) * down + 1, down)
        for j in range(kw):
            places = slice(j * gap_across, j * gap_across + (columns - 1) * across + 1, across)
            windows[:, :, :, i, j] = padded[:, lines, places]
    return x.like(windows.reshape(len(x) * rows * columns, -1))


def _padded(images: np.ndarray, extents: Geometry) -> np.ndarray:
    """Images with their elements `spacing` apart, in zeros as far as windows reach."""
    shape = tuple(
        (n - 1) * step + k
        for n, step, k in zip(extents.output, extents.stride, extents.kernel, strict=True)
    )
    padded = np.zeros((len(images), *shape, images.shape[3]), images.dtype)
    into, of = [slice(None)], [slice(None)]
    for n, before, gap, size in zip(
        extents.image, extents.before, extents.spacing, shape, strict=True
    ):
        first = max(0, -(before // gap))  # of the elements that are seen
        last = min(n, -(-(size - before) // gap))
        into.append(slice(before + first * gap, before + (last - 1) * gap + 1, gap))
        of.append(slice(first, last))
    if all(part.stop > part.start for part in of[1:]):
        padded[tuple(into)] = images[tuple(of)]
    return padded
