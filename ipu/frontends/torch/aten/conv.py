"""Convolutions: torch's NCHW images and OIHW kernels through the device's NHWC and HWIO verbs.

A 1-D convolution is a 2-D one of height 1. A transposed convolution is the gradient to the input
of a convolution with the same kernel. A dilated one is cut into phases. 3-D ones, and
dilated ones with strides, run on the host.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fpsim.array import Array
from fpsim.records.geometry import Pair
from ipu.frontends.arrays.phases import Phases
from ipu.frontends.torch.aten.products import factors, of_one_type
from ipu.frontends.torch.aten.table import Call, aten

__all__: list[str] = []

_AS_UNIT = "as the unit's record says, then once"


class _Options(NamedTuple):
    """Of a convolution in rows and columns."""

    stride: Pair
    padding: tuple[Pair, Pair]
    groups: int
    dilation: Pair

    @property
    def is_dilated(self) -> bool:
        return self.dilation != (1, 1)

    def phases(self, image: Any, kernel: Any) -> Phases:
        """How images (NHWC) are cut for a kernel (HWIO)."""
        before = self.padding[0][0], self.padding[1][0]
        return Phases(tuple(image[1:3]), tuple(kernel[:2]), self.dilation, before)

    @property
    def plain(self) -> _Options:
        """Of the convolution of the phases."""
        return self._replace(padding=((0, 0), (0, 0)), dilation=(1, 1))


def _pair(values: Any, axes: int, fill: int) -> Pair:
    """Two numbers from a list of one, or as many as axes."""
    numbers = list(values) * axes if len(values) == 1 else list(values)
    return (fill, numbers[0]) if axes == 1 else (numbers[0], numbers[1])


def _options(axes: int, stride: Any, padding: Any, groups: int, dilation: Any) -> _Options:
    down, across = _pair(padding, axes, 0)
    return _Options(
        _pair(stride, axes, 1), ((down, down), (across, across)), groups, _pair(dilation, axes, 1)
    )


def _is_known(x: Any, stride: Any, dilation: Any) -> bool:
    is_simple = all(d == 1 for d in dilation) or all(s == 1 for s in stride)
    return x.ndim in (3, 4) and x.numel() > 0 and is_simple


def _images(x: Array) -> Array:
    """NCHW or NCL as NHWC."""
    carrier = x.carrier if x.ndim == 4 else x.carrier[:, :, None, :]
    return x.like(np.ascontiguousarray(carrier.transpose(0, 2, 3, 1)))


def _from_images(y: Array, ndim: int) -> Array:
    carrier = y.carrier.transpose(0, 3, 1, 2)
    return y.like(carrier if ndim == 4 else carrier[:, :, 0, :])


def _kernel(w: Array) -> Array:
    """OIHW or OIL as HWIO."""
    carrier = w.carrier if w.ndim == 4 else w.carrier[:, :, None, :]
    return w.like(np.ascontiguousarray(carrier.transpose(2, 3, 1, 0)))


def _from_kernel(w: Array, ndim: int) -> Array:
    carrier = w.carrier.transpose(3, 2, 0, 1)
    return w.like(carrier if ndim == 4 else carrier[:, :, 0, :])


class _Operand(NamedTuple):
    """An array and the tensor that it was read from."""

    array: Array
    tensor: Any


def _through_unit(
    call: Call, verb: str, x: _Operand, y: _Operand, shape: Any, options: _Options
) -> Array:
    """A verb of the device on operands as the unit takes them, in the format of the layer."""
    known = factors(call, x.array, y.array, (x.tensor, y.tensor), verb)
    extra = () if shape is None else (shape,)
    result: Array = getattr(call.device, verb)(
        known.x, known.y, *extra, stride=options.stride, padding=options.padding,
        groups=options.groups, partials=known.partials, to=known.out, scale=known.scale,
    )  # fmt: skip
    return call.device.cast(result, x.array.format)


def _forward(call: Call, x: _Operand, w: _Operand, options: _Options) -> Array:
    if options.is_dilated:
        phases = options.phases(x.array.shape, w.array.shape)
        cut = x._replace(array=phases.cut(x.array))
        return phases.joined_result(_forward(call, cut, w, options.plain))
    return _through_unit(call, "conv2d", x, w, None, options)


def _to_input(call: Call, g: _Operand, w: _Operand, shape: Any, options: _Options) -> Array:
    if options.is_dilated:
        phases = options.phases(shape, w.array.shape)
        cut = g._replace(array=phases.cut_result(g.array))
        inner = (len(cut.array), *phases.grid, shape[3])
        return phases.joined(_to_input(call, cut, w, inner, options.plain))
    return _through_unit(call, "conv2d_input_gradient", g, w, shape, options)


def _to_weight(call: Call, x: _Operand, g: _Operand, shape: Any, options: _Options) -> Array:
    if options.is_dilated:
        phases = options.phases(x.array.shape, shape)
        x = x._replace(array=phases.cut(x.array))
        g = g._replace(array=phases.cut_result(g.array))
        options = options.plain
    return _through_unit(call, "conv2d_weight_gradient", x, g, shape, options)


@aten("convolution.default", rounding=f"{_AS_UNIT}; a bias is added after that")
def _convolution(
    call: Call, x: Any, w: Any, bias: Any, stride: Any, padding: Any, dilation: Any,
    transposed: bool, output_padding: Any, groups: int,
) -> Any:  # fmt: skip
    if not _is_known(x, stride, dilation) or not w.numel():
        return NotImplemented
    of_one_type(bias, x)
    a, kernel, b = call.arrays(x, w, bias)
    ndim, axes = x.ndim, x.ndim - 2
    options = _options(axes, stride, padding, groups, dilation)
    images, kernel = _Operand(_images(a), x), _Operand(_kernel(kernel), w)
    if transposed:
        shape = _transposed_shape(
            images.array.shape, kernel.array.shape, options, output_padding, axes
        )
        y = _to_input(call, images, kernel, shape, options)
    else:
        y = _forward(call, images, kernel, options)
    if b is not None:
        y = call.device.add(y, b)
    return call.result(_from_images(y, ndim))


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


@aten("convolution_backward.default", rounding=f"{_AS_UNIT}; the bias as a sum")
def _convolution_backward(
    call: Call, gradient: Any, x: Any, w: Any, bias_sizes: Any, stride: Any, padding: Any,
    dilation: Any, transposed: bool, output_padding: Any, groups: int, output_mask: Any,
) -> Any:  # fmt: skip
    if not _is_known(x, stride, dilation) or not w.numel():
        return NotImplemented
    device, ndim = call.device, x.ndim
    g, a, kernel = call.arrays(gradient, x, w)
    options = _options(ndim - 2, stride, padding, groups, dilation)
    images, slopes = _Operand(_images(a), x), _Operand(_images(g), gradient)
    kernel = _Operand(_kernel(kernel), w)
    to_x = to_w = to_b = None
    if output_mask[0]:
        if transposed:
            y = _forward(call, slopes, kernel, options)
        else:
            y = _to_input(call, slopes, kernel, images.array.shape, options)
        to_x = call.result(_from_images(y, ndim))
    if output_mask[1]:
        pair = (slopes, images) if transposed else (images, slopes)
        slope = _to_weight(call, *pair, kernel.array.shape, options)
        to_w = call.result(_from_kernel(slope, ndim))
    if output_mask[2]:
        to_b = call.result(device.reduce_sum(slopes.array, (0, 1, 2)).reshape(-1))
    return to_x, to_w, to_b
