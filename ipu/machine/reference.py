"""binary64 on a device: the processor's own arithmetic, a reference for studies. No IPU has it.

Nothing is rounded to another format, no flag is raised, and nothing is counted or entered into the
ledger. Sums are numpy's and BLAS's, in their order.

Source    docs/semantics.md §6 (ASSUMED, not an IPU feature).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy.special import erf, expit

from fpsim.records.formats import BINARY32, BINARY64, Format
from fpsim.records.geometry import Geometry, Padding, Stride, geometry
from fpsim.records.types import Carrier
from fpsim.state.processor import usual_arithmetic

__all__ = [
    "FUNCTIONS", "conv2d", "conv2d_input_gradient", "conv2d_weight_gradient", "matmul", "wide",
]

Shape = tuple[int, ...]

#: Functions by the name of the device's verb.
FUNCTIONS: dict[str, Callable[[Carrier], Any]] = {
    "exp": np.exp, "log": np.log, "tanh": np.tanh, "sigmoid": expit, "erf": erf,
    "rsqrt": lambda x: 1 / np.sqrt(x),
}


def wide(fmt: Format) -> Format:
    """The format of sums, losses and statistics of values in fmt: binary32, or binary64 itself.

    >>> from fpsim.records.formats import BINARY16
    >>> print(wide(BINARY16), wide(BINARY64))
    binary32 binary64
    """
    return BINARY64 if fmt == BINARY64 else BINARY32


@usual_arithmetic
def matmul(x: Carrier, y: Carrier) -> Carrier:
    """x @ y."""
    with np.errstate(all="ignore"):
        product: Carrier = np.matmul(x, y)
    return product


def _windows(image: Shape, w: Shape, stride: Stride, padding: Padding) -> Geometry:
    return geometry((image[1], image[2]), (w[0], w[1]), stride, padding)


def _extent(image: Shape, g: Geometry) -> tuple[Shape, tuple[slice, ...]]:
    """Shape of the padded images that all windows lie in, and where the images are in it."""
    (top, left), (batch, height, width, channels) = g.before, image
    reach = [(n - 1) * s + k for n, s, k in zip(g.output, g.stride, g.kernel, strict=True)]
    extent = max(reach[0], top + height), max(reach[1], left + width)
    return (batch, *extent, channels), np.s_[:, top : top + height, left : left + width, :]


def _taps(g: Geometry) -> Iterator[tuple[int, int, tuple[slice, ...]]]:
    """Each position of the kernel, and the elements of the padded images that it meets."""
    (rows, columns), (down, across) = g.output, g.stride
    for ky in range(g.kernel[0]):
        for kx in range(g.kernel[1]):
            y = slice(ky, ky + (rows - 1) * down + 1, down)
            yield ky, kx, (slice(None), y, slice(kx, kx + (columns - 1) * across + 1, across))


def _groups(w: Shape, groups: int) -> Iterator[tuple[slice, slice]]:
    """Input and output channels of each group."""
    outputs = w[3] // groups
    for k in range(groups):
        yield slice(k * w[2], (k + 1) * w[2]), slice(k * outputs, (k + 1) * outputs)


@usual_arithmetic
def conv2d(x: Carrier, w: Carrier, stride: Stride, padding: Padding, groups: int) -> Carrier:
    """Images NHWC with kernels HWIO."""
    g = _windows(x.shape, w.shape, stride, padding)
    shape, inside = _extent(x.shape, g)
    padded, y = np.zeros(shape), np.zeros((len(x), *g.output, w.shape[3]))
    padded[inside] = x
    for ky, kx, tap in _taps(g):
        for i, o in _groups(w.shape, groups):
            y[..., o] += padded[tap][..., i] @ w[ky, kx][:, o]
    return y


@usual_arithmetic
def conv2d_input_gradient(
    gradient: Carrier, w: Carrier, image: Shape, stride: Stride, padding: Padding, groups: int
) -> Carrier:
    """The gradient to images of this shape."""
    g = _windows(image, w.shape, stride, padding)
    shape, inside = _extent(image, g)
    padded = np.zeros(shape)
    for ky, kx, tap in _taps(g):
        for i, o in _groups(w.shape, groups):
            padded[tap][..., i] += gradient[..., o] @ w[ky, kx][:, o].T
    return padded[inside]


@usual_arithmetic
def conv2d_weight_gradient(
    x: Carrier, gradient: Carrier, kernel: Shape, stride: Stride, padding: Padding, groups: int
) -> Carrier:
    """The gradient to kernels of this shape."""
    g = _windows(x.shape, kernel, stride, padding)
    shape, inside = _extent(x.shape, g)
    padded, slope = np.zeros(shape), np.zeros(kernel)
    padded[inside] = x
    for ky, kx, tap in _taps(g):
        for i, o in _groups(kernel, groups):
            slope[ky, kx][:, o] = np.tensordot(
                padded[tap][..., i], gradient[..., o], axes=((0, 1, 2), (0, 1, 2))
            )
    return slope
