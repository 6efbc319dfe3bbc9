"""Convolutions: torch's NCHW images and OIHW kernels as the rows' NHWC and HWIO.

A 1-D convolution is a 2-D one of height 1. 3-D ones run on the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from fpsim.array import Array
from fpsim.records.geometry import Pair
from ipu import ops
from ipu.frontends.torch.aten.dense import dense_convolution
from ipu.frontends.torch.aten.factors import factors, of_one_type
from ipu.frontends.torch.aten.table import Call, aten
from ipu.machine.derived import derived

__all__: list[str] = []


class _Options(NamedTuple):
    """Of a convolution in rows and columns, as rows take them."""

    stride: Pair
    padding: tuple[Pair, Pair]
    groups: int
    dilation: Pair


def _pair(values: Any, axes: int, fill: int) -> Pair:
    """Two numbers from a list of one, or as many as axes."""
    numbers = list(values) * axes if len(values) == 1 else list(values)
    return (fill, numbers[0]) if axes == 1 else (numbers[0], numbers[1])


def _options(axes: int, stride: Any, padding: Any, groups: int, dilation: Any) -> _Options:
    down, across = _pair(padding, axes, 0)
    return _Options(
        _pair(stride, axes, 1), ((down, down), (across, across)), groups, _pair(dilation, axes, 1)
    )


def _is_known(x: Any, w: Any) -> bool:
    return x.ndim in (3, 4) and bool(x.numel() and w.numel())


def _images(call: Call, x: Array) -> Array:
    """NCHW or NCL as NHWC."""
    carrier = x.carrier if x.ndim == 4 else x.carrier[:, :, None, :]
    return x.like(derived(call.device, np.ascontiguousarray, carrier.transpose(0, 2, 3, 1)))


def _from_images(y: Array, ndim: int) -> Array:
    carrier = y.carrier.transpose(0, 3, 1, 2)
    return y.like(carrier if ndim == 4 else carrier[:, :, 0, :])


def _kernel(call: Call, w: Array) -> Array:
    """OIHW or OIL as HWIO."""
    carrier = w.carrier if w.ndim == 4 else w.carrier[:, :, None, :]
    return w.like(derived(call.device, np.ascontiguousarray, carrier.transpose(2, 3, 1, 0)))


def _from_kernel(w: Array, ndim: int) -> Array:
    carrier = w.carrier.transpose(3, 2, 0, 1)
    return w.like(carrier if ndim == 4 else carrier[:, :, 0, :])


@aten("convolution.default", of=(ops.conv2d, ops.conv2d_transpose, ops.bias),
      rounding=f"{ops.conv2d.rounding}; a bias is added after that")
def _convolution(
    call: Call, x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor | None, stride: Sequence[int],
    padding: Sequence[int], dilation: Sequence[int], transposed: bool,
    output_padding: Sequence[int], groups: int,
) -> Any:
    if not _is_known(x, w):
        return NotImplemented
    of_one_type(bias, x)
    a, kernel, b = call.arrays(x, w, bias)
    ndim, axes = x.ndim, x.ndim - 2
    options = _options(axes, stride, padding, groups, dilation)
    images, kernel = _images(call, a), _kernel(call, kernel)
    verb = "conv2d_input_gradient" if transposed else "conv2d"
    recipe = dense_convolution(call, _named(transposed, groups), x, w, groups,
                               is_usual=not transposed)
    operands = factors(call, images, kernel, (x, w), verb)
    how = options._asdict() | operands.options
    if transposed:
        shape = _transposed_shape(images.shape, kernel.shape, options, output_padding, axes)
        y = ops.conv2d_transpose.value(call.device, operands.x, operands.y, shape=shape, **how)
    else:
        y = ops.conv2d.value(call.device, operands.x, operands.y, **how, **recipe)
    if b is not None:
        y = ops.bias.value(call.device, y, b)
    return call.result(_from_images(y, ndim))


def _named(transposed: bool, groups: int) -> str:
    """What a report calls a convolution that no recipe covers."""
    return ("conv_transpose" if transposed else "conv2d") + (" in groups" if groups > 1 else "")


def _transposed_shape(
    images: Any, kernel: Any, options: _Options, output_padding: Any, axes: int
) -> tuple[int, int, int, int]:
    extra = _pair(output_padding, axes, 0)
    rows, columns = (
        (n - 1) * s - 2 * p[0] + d * (k - 1) + 1 + e
        for n, s, p, d, k, e in zip(
            images[1:3],
            options.stride,
            options.padding,
            options.dilation,
            kernel[:2],
            extra,
            strict=True,
        )
    )
    return images[0], rows, columns, kernel[2] * options.groups


@aten("convolution_backward.default", of=(ops.conv2d, ops.conv2d_transpose, ops.bias),
      gradient=True, rounding=f"{ops.conv2d.gradient}; the bias as a sum")
def _convolution_backward(
    call: Call, gradient: torch.Tensor, x: torch.Tensor, w: torch.Tensor,
    bias_sizes: Sequence[int] | None, stride: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int], transposed: bool, output_padding: Sequence[int], groups: int,
    output_mask: Sequence[bool],
) -> Any:
    if not _is_known(x, w):
        return NotImplemented
    device, ndim = call.device, x.ndim
    g, a, kernel = call.arrays(gradient, x, w)
    options = _options(ndim - 2, stride, padding, groups, dilation)._asdict()
    images, slopes = _images(call, a), _images(call, g)
    kernel = _kernel(call, kernel)
    row: Any = ops.conv2d
    if transposed:
        row, options = ops.conv2d_transpose, options | {"shape": images.shape}
    to_x = to_w = to_b = None
    recipe = dense_convolution(call, f"{_named(transposed, groups)}, backward", x, w, groups,
                               is_usual=not transposed)
    options |= recipe
    if output_mask[0]:
        verb = "conv2d" if transposed else "conv2d_input_gradient"
        operands = factors(call, slopes, kernel, (gradient, w), verb)
        saved = (None, operands.y, operands.partials, *(() if transposed else (images.shape,)))
        y = row.pull(0, device, operands.x, saved, **options, **operands.rounding)
        to_x = call.result(_from_images(y, ndim))
    if output_mask[1]:
        pair = (slopes, images) if transposed else (images, slopes)
        tensors = (gradient, x) if transposed else (x, gradient)
        operands = factors(call, *pair, tensors, "conv2d_weight_gradient")
        left, right = (operands.y, operands.x) if transposed else (operands.x, operands.y)
        saved = (left, kernel, operands.partials)
        slope = row.pull(1, device, right, saved, **options, **operands.rounding)
        to_w = call.result(_from_kernel(slope, ndim))
    if output_mask[2]:
        channels = (slopes.shape[3],)
        to_b = call.result(ops.bias.pull(1, device, slopes, (channels, slopes.format)))
    return to_x, to_w, to_b
