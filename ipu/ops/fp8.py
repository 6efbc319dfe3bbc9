"""Products of quarters: F143 forward, F152 with F143 backward, a power of two per tensor.

A tensor of quarters holds q with value q · 2**scale. The scale is the smallest for which no finite
magnitude of the tensor exceeds the largest value (ASSUMED: the frameworks leave the choice to the
user); it is chosen from the tensor as it is, step by step. The unit adds both scales to the
exponents of the products, and the result is binary16.

Source    Graphcore, QuarterFloat (metadata: scale from -32 to 31, value q · 2**scale; -32 has no
          negation and is left out); poplibs, Cast.cpp (one rounding) and ConvVertexType.cpp (half
          partials); Noune et al. 2022 (F143 forward, F152 for gradients).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fpsim.array import Array
from fpsim.records.evidence import Evidence, Fact
from fpsim.records.formats import BINARY16, BINARY32, F143, F152, Format, find_number_format
from fpsim.records.geometry import Padding, Stride
from ipu.machine.device import Device
from ipu.ops.primitive import Primitive
from ipu.ops.products import check_matrices, conv2d_cost, matmul_cost
from ipu.ops.rules import Saved

__all__ = ["RULE", "Quarters", "conv2d", "matmul", "quarters", "scale_for"]

_LOWEST, _HIGHEST = -31, 31

RULE = Fact(
    "smallest power of two at which no magnitude exceeds the largest value", Evidence.ASSUMED,
    "the frameworks leave the scale of a tensor of quarters to the user",
)


class Quarters(NamedTuple):
    """A tensor of eight-bit numbers: its value is values · 2**scale."""

    values: Array
    scale: int

    @property
    def T(self) -> Quarters:
        """Transposed."""
        return Quarters(self.values.T, self.scale)


def scale_for(x: Array, fmt: Format | str) -> int:
    """The smallest scale from -31 to 31 at which no finite element of x exceeds the largest of fmt.

    An element less than half a step above it raises the scale too, although it would round down.

    >>> x = Device("mk2-fp8").from_host([3.0, -240.0], BINARY16)
    >>> scale_for(x, F143), scale_for(x, F152)
    (0, -7)
    """
    fmt = find_number_format(fmt, "fmt")
    finite = np.abs(x.values[np.isfinite(x.values)])
    largest = float(finite.max()) if finite.size else 0.0
    if largest == 0:
        return 0
    scale = math.frexp(largest)[1] - math.frexp(float(fmt.max))[1]
    if math.ldexp(largest, -scale) > float(fmt.max):
        scale += 1
    return min(max(scale, _LOWEST), _HIGHEST)


def quarters(device: Device, x: Array, fmt: Format | str) -> Quarters:
    """x in quarters of that format.

    Rounding  once: x · 2**-scale, which is exact, into the format.
    """
    scale = scale_for(x, fmt)
    moved = np.ldexp(x.values.astype(np.float32), -scale)
    return Quarters(device.cast(Array(moved, device.context(BINARY32)), fmt), scale)


class _Once:
    """Converts a gradient once for both backward rules, which are called one after the other."""

    def __init__(self) -> None:
        self._last: tuple[Array, Quarters] | None = None

    def __call__(self, device: Device, gradient: Array) -> Quarters:
        if self._last is not None and self._last[0] is gradient:
            converted, self._last = self._last[1], None
            return converted
        self._last = (gradient, quarters(device, gradient, F152))
        return self._last[1]


def _operands(device: Device, x: Array, y: Array) -> tuple[Quarters, Quarters]:
    return quarters(device, x, F143), quarters(device, y, F143)


def _saved(x: Quarters, y: Quarters) -> Saved:
    """For the backward rules; arrays stand alone because the tape counts their bytes."""
    return x.values, x.scale, y.values, y.scale, _Once()


def _product(device: Device, x: Quarters, y: Quarters) -> Array:
    return device.matmul(x.values, y.values, to=BINARY16, scale=x.scale + y.scale)


def _matmul(device: Device, x: Array, y: Array) -> tuple[Array, Saved]:
    check_matrices(x, y)
    a, b = _operands(device, x, y)
    return _product(device, a, b), _saved(a, b)


def _matmul_x(device: Device, gradient: Array, saved: Saved) -> Array:
    *_, y, scale, once = saved
    return _product(device, once(device, gradient), Quarters(y, scale).T)


def _matmul_y(device: Device, gradient: Array, saved: Saved) -> Array:
    x, scale, *_, once = saved
    return _product(device, Quarters(x, scale).T, once(device, gradient))


def _conv2d(
    device: Device, x: Array, w: Array, *, stride: Stride = 1, padding: Padding = "SAME",
    groups: int = 1,
) -> tuple[Array, Saved]:
    a, b = _operands(device, x, w)
    y = device.conv2d(
        a.values, b.values, stride=stride, padding=padding, groups=groups, to=BINARY16,
        scale=a.scale + b.scale,
    )
    return y, _saved(a, b)


def _conv2d_x(
    device: Device, gradient: Array, saved: Saved, *, stride: Stride = 1,
    padding: Padding = "SAME", groups: int = 1,
) -> Array:
    x, _, w, scale, once = saved
    g = once(device, gradient)
    return device.conv2d_input_gradient(
        g.values, w, x.shape, stride=stride, padding=padding, groups=groups, to=BINARY16,
        scale=g.scale + scale,
    )


def _conv2d_w(
    device: Device, gradient: Array, saved: Saved, *, stride: Stride = 1,
    padding: Padding = "SAME", groups: int = 1,
) -> Array:
    x, scale, w, _, once = saved
    g = once(device, gradient)
    return device.conv2d_weight_gradient(
        x, g.values, w.shape, stride=stride, padding=padding, groups=groups, to=BINARY16,
        scale=scale + g.scale,
    )


_ROUNDED = "each operand once into quarters; the product as the unit's record says, then once"

#: x @ y for binary16 matrices, through quarters.
matmul = Primitive(
    "fp8_matmul", _matmul, (_matmul_x, _matmul_y), "AMP", matmul_cost, rounding=_ROUNDED,
    gradient=_ROUNDED, source="Noune et al. 2022 (formats); Graphcore, QuarterFloat (metadata)",
)
#: Images NHWC with kernels HWIO through quarters; options `stride`, `padding`, `groups`.
conv2d = Primitive(
    "fp8_conv2d", _conv2d, (_conv2d_x, _conv2d_w), "by rule", conv2d_cost, rounding=_ROUNDED,
    gradient=_ROUNDED, source="Noune et al. 2022 (formats); Graphcore, QuarterFloat (metadata)",
)
