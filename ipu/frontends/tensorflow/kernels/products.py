"""Products through the units of the target: matrices, convolutions and their gradients.

Images are NHWC and kernels HWIO, as TensorFlow's on a processor. Partials follow the scope, the
policy of the layer, or the device.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fpsim.array import Array
from fpsim.records.geometry import Padding
from ipu.frontends.tensorflow.kernels.table import Run, Site, kernel

__all__ = ["images_only", "padding_of"]

_AS_UNIT = "as the unit's record says, then once"


@kernel("MatMul", rounding=_AS_UNIT)
def _matmul(site: Site) -> Run:
    return _product(site, site.attr("transpose_a"), site.attr("transpose_b"))


@kernel("BatchMatMulV2", "BatchMatMul", rounding=_AS_UNIT)
def _batch_matmul(site: Site) -> Run:
    return _product(site, site.attr("adj_x"), site.attr("adj_y"))


def _product(site: Site, is_left_turned: bool, is_right_turned: bool) -> Run:
    device, partials = site.device, site.partials("matmul")

    def run(x: Array, y: Array) -> Array:
        x = _turned(x) if is_left_turned else x
        y = _turned(y) if is_right_turned else y
        if x.ndim == y.ndim == 2:
            return device.matmul(x, y, partials=partials)
        batch = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
        flat = [
            a.like(np.broadcast_to(a.carrier, (*batch, *a.shape[-2:])).reshape(-1, *a.shape[-2:]))
            for a in (x, y)
        ]
        z = device.matmul(*flat, partials=partials)
        return z.reshape(*batch, *z.shape[-2:])

    return run


def _turned(x: Array) -> Array:
    return x.like(x.carrier.swapaxes(-1, -2))


# Convolutions -------------------------------------------------------------------------------------


def images_only(site: Site) -> None:
    """Refuse images that are not NHWC, and dilated kernels."""
    layout = site.attr("data_format").decode()
    if layout != "NHWC":
        raise NotImplementedError(
            f"node {site.node.name} has data_format={layout}; the machine takes NHWC"
        )
    dilations = list(site.attr("dilations"))
    if any(n != 1 for n in dilations):
        raise NotImplementedError(
            f"node {site.node.name} has dilations={dilations}; the machine has "
            "no dilated convolutions"
        )


def padding_of(site: Site) -> Padding:
    """SAME, VALID, or rows and columns before and after."""
    padding: str = site.attr("padding").decode()
    if padding != "EXPLICIT":
        return padding
    pads = list(site.attr("explicit_paddings"))
    return (pads[2], pads[3]), (pads[4], pads[5])


def _options(site: Site) -> dict[str, Any]:
    images_only(site)
    _, down, across, _ = site.attr("strides")
    return {
        "stride": (down, across), "padding": padding_of(site), "partials": site.partials("conv2d")
    }  # fmt: skip


def _groups(images: Any, kernel_shape: Any) -> int:
    return int(images[3]) // int(kernel_shape[2])


@kernel("Conv2D", rounding=_AS_UNIT)
def _conv2d(site: Site) -> Run:
    device, options = site.device, _options(site)
    return lambda x, w: device.conv2d(x, w, groups=_groups(x.shape, w.shape), **options)


@kernel("Conv2DBackpropInput", rounding=_AS_UNIT)
def _to_input(site: Site) -> Run:
    device, options = site.device, _options(site)

    def run(sizes: Any, w: Array, gradient: Array) -> Array:
        shape = tuple(int(n) for n in sizes)
        groups = _groups(shape, w.shape)
        return device.conv2d_input_gradient(gradient, w, shape, groups=groups, **options)

    return run


@kernel("Conv2DBackpropFilter", rounding=_AS_UNIT)
def _to_kernel(site: Site) -> Run:
    device, options = site.device, _options(site)

    def run(x: Array, sizes: Any, gradient: Array) -> Array:
        shape = tuple(int(n) for n in sizes)
        groups = _groups(x.shape, shape)
        return device.conv2d_weight_gradient(x, gradient, shape, groups=groups, **options)

    return run


# A depthwise kernel (rows, columns, C, M) is one of C groups, of one input and M outputs each.


def _grouped(w: Array) -> Array:
    rows, columns, channels, multiplier = w.shape
    return w.reshape(rows, columns, 1, channels * multiplier)


@kernel("DepthwiseConv2dNative", rounding=_AS_UNIT)
def _depthwise(site: Site) -> Run:
    device, options = site.device, _options(site)
    return lambda x, w: device.conv2d(x, _grouped(w), groups=w.shape[2], **options)


@kernel("DepthwiseConv2dNativeBackpropInput", rounding=_AS_UNIT)
def _depthwise_to_input(site: Site) -> Run:
    device, options = site.device, _options(site)

    def run(sizes: Any, w: Array, gradient: Array) -> Array:
        shape = tuple(int(n) for n in sizes)
        return device.conv2d_input_gradient(
            gradient, _grouped(w), shape, groups=w.shape[2], **options
        )

    return run


@kernel("DepthwiseConv2dNativeBackpropFilter", rounding=_AS_UNIT)
def _depthwise_to_kernel(site: Site) -> Run:
    device, options = site.device, _options(site)

    def run(x: Array, sizes: Any, gradient: Array) -> Array:
        rows, columns, channels, multiplier = shape = tuple(int(n) for n in sizes)
        result = device.conv2d_weight_gradient(
            x, gradient, (rows, columns, 1, channels * multiplier), groups=channels, **options
        )
        return result.reshape(*shape)

    return run


@kernel("BiasAdd", rounding="once")
def _bias_add(site: Site) -> Run:
    images_last(site)
    add: Run = site.device.add
    return add


@kernel("BiasAddGrad", rounding="binary32 in index order, once at the end")
def _bias_gradient(site: Site) -> Run:
    images_last(site)
    reduce_sum = site.device.reduce_sum
    return lambda g: reduce_sum(g, tuple(range(g.ndim - 1))).reshape(-1)


def images_last(site: Site) -> None:
    """Refuse channels that are not the last axis."""
    if site.attr("data_format").decode() != "NHWC":
        raise NotImplementedError(f"node {site.node.name} has channels first; use NHWC")
