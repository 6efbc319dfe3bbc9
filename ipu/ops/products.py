"""Matrix product and convolution; their backward rules are products too.

Their checks of shapes and their costs hold for products of quarters as well (`ops.fp8`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from fpsim.array import Array
from fpsim.records.formats import Format
from fpsim.records.geometry import Padding, Stride
from ipu.machine.device import Device
from ipu.ops.primitive import OperationCost, Primitive
from ipu.ops.rules import Saved

__all__ = ["conv2d", "matmul"]


def check_matrices(x: Array, y: Array) -> None:
    """Refuse operands that are not matrices."""
    if x.ndim != 2 or y.ndim != 2:
        raise ValueError(f"matmul takes matrices, got shapes {x.shape} and {y.shape}; reshape them")


def _matmul(
    device: Device, x: Array, y: Array, *, partials: Format | None = None
) -> tuple[Array, Saved]:
    check_matrices(x, y)
    partials = partials or device.partials_for(x.format)
    return device.matmul(x, y, partials=partials), (x, y, partials)


def _matmul_x(device: Device, gradient: Array, saved: Saved, **_: Any) -> Array:
    y, partials = saved[1], saved[2]
    return device.matmul(gradient, y.T, partials=partials)


def _matmul_y(device: Device, gradient: Array, saved: Saved, **_: Any) -> Array:
    x, partials = saved[0], saved[2]
    return device.matmul(x.T, gradient, partials=partials, late=True)


def matmul_cost(arrays: Sequence[Array], output: Array) -> OperationCost:
    """A multiply-add for each column of x, for each result."""
    return OperationCost(macs=output.size * arrays[0].shape[1])


def _conv2d(
    device: Device, x: Array, w: Array, *, stride: Stride = 1, padding: Padding = "SAME",
    groups: int = 1, partials: Format | None = None,
) -> tuple[Array, Saved]:  # fmt: skip
    partials = partials or device.partials_for(x.format, "conv2d")
    y = device.conv2d(x, w, stride=stride, padding=padding, groups=groups, partials=partials)
    return y, (x, w, partials, x.shape)


def _conv2d_x(
    device: Device, gradient: Array, saved: Saved, *, stride: Stride = 1,
    padding: Padding = "SAME", groups: int = 1, **_: Any,
) -> Array:  # fmt: skip
    w, partials, shape = saved[1:]
    return device.conv2d_input_gradient(
        gradient, w, shape, stride=stride, padding=padding, groups=groups, partials=partials
    )


def _conv2d_w(
    device: Device, gradient: Array, saved: Saved, *, stride: Stride = 1,
    padding: Padding = "SAME", groups: int = 1, **_: Any,
) -> Array:  # fmt: skip
    x, w, partials = saved[:3]
    return device.conv2d_weight_gradient(
        x, gradient, w.shape, stride=stride, padding=padding, groups=groups, partials=partials,
        late=True,
    )  # fmt: skip


def conv2d_cost(arrays: Sequence[Array], output: Array) -> OperationCost:
    """A multiply-add for each element of a kernel, for each result."""
    return OperationCost(macs=output.size * math.prod(arrays[1].shape[:3]))


#: x @ y for matrices; option `partials` (default: the device's).
matmul = Primitive(
    "matmul",
    _matmul,
    (_matmul_x, _matmul_y),
    "AMP",
    matmul_cost,
    rounding="as the record of the unit says, then once",
    gradient="as the record of the unit says, then once",
)
#: Images NHWC with kernels HWIO; options `stride`, `padding`, `groups`, `partials`.
conv2d = Primitive(
    "conv2d",
    _conv2d,
    (_conv2d_x, _conv2d_w),
    "by rule",
    conv2d_cost,
    rounding="as the record of the unit says, then once",
    gradient="as the record of the unit says, then once",
)
