"""Products through the units of the target: matrices, convolutions and their gradients.

Images are NHWC and kernels HWIO, as TensorFlow's on a processor. Partials follow the scope, the
policy of the layer, or the device.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fpsim.array import Array
from fpsim.records.geometry import Padding, Pair
from ipu.frontends.arrays.phases import Phases
from ipu.frontends.tensorflow.kernels.table import Run, Site, kernel

__all__ = ["has_channels_first", "images_last", "padding_of"]

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


def _images_only(site: Site) -> None:
    """Refuse images that are not NHWC."""
    layout = site.attr("data_format").decode()
    if layout != "NHWC":
        raise NotImplementedError(
            f"node {site.node.name} has data_format={layout}; the machine takes NHWC"
        )


def _dilation(site: Site) -> Pair:
    """Rows and columns from a tap of the kernel to the next."""
    _, down, across, _ = site.attr("dilations")
    return down, across


def padding_of(site: Site) -> Padding:
    """SAME, VALID, or rows and columns before and after."""
    padding: str = site.attr("padding").decode()
    if padding != "EXPLICIT":
        return padding
    pads = list(site.attr("explicit_paddings"))
    return (pads[2], pads[3]), (pads[4], pads[5])


def _options(site: Site) -> dict[str, Any]:
    _images_only(site)
    _, down, across, _ = site.attr("strides")
    if _dilation(site) != (1, 1) and ((down, across) != (1, 1) or "Depthwise" in site.node.type):
        raise NotImplementedError(
            f"node {site.node.name} has dilations={_dilation(site)} and strides={(down, across)}; "
            "the machine has dilated convolutions with stride 1 alone, and no depthwise ones"
        )
    return {
        "stride": (down, across), "padding": padding_of(site), "partials": site.partials("conv2d")
    }  # fmt: skip


def _groups(images: Any, kernel_shape: Any) -> int:
    return int(images[3]) // int(kernel_shape[2])


class _Convolution:
    """A convolution and its gradients; a dilated one is cut into phases."""

    def __init__(self, site: Site) -> None:
        self.device, self.options, self.dilation = site.device, _options(site), _dilation(site)

    @property
    def is_dilated(self) -> bool:
        return self.dilation != (1, 1)

    def forward(self, x: Array, w: Array) -> Array:
        """The convolution of images and a kernel."""
        groups = _groups(x.shape, w.shape)
        if not self.is_dilated:
            return self.device.conv2d(x, w, groups=groups, **self.options)
        pads, phases = self._phases(x.shape, w.shape)
        cut = phases.cut(_padded(x, pads))
        return phases.joined_result(self.device.conv2d(cut, w, groups=groups, **self._inner))

    def to_input(self, sizes: Any, w: Array, gradient: Array) -> Array:
        """The gradient to images of these sizes."""
        shape = tuple(int(n) for n in sizes)
        groups, slope = _groups(shape, w.shape), self.device.conv2d_input_gradient
        if not self.is_dilated:
            return slope(gradient, w, shape, groups=groups, **self.options)
        ((top, _), (left, _)), phases = self._phases(shape, w.shape)
        cut = phases.cut_result(gradient)
        inner = (len(cut), *phases.grid, shape[3])
        joined = phases.joined(slope(cut, w, inner, groups=groups, **self._inner))
        _, rows, columns, _ = shape
        return joined[:, top : top + rows, left : left + columns]

    def to_kernel(self, x: Array, sizes: Any, gradient: Array) -> Array:
        """The gradient to a kernel of these sizes."""
        shape = tuple(int(n) for n in sizes)
        groups, slope = _groups(x.shape, shape), self.device.conv2d_weight_gradient
        if not self.is_dilated:
            return slope(x, gradient, shape, groups=groups, **self.options)
        pads, phases = self._phases(x.shape, shape)
        cut = phases.cut(_padded(x, pads))
        return slope(cut, phases.cut_result(gradient), shape, groups=groups, **self._inner)

    @property
    def _inner(self) -> dict[str, Any]:
        """Options of the convolution of the phases."""
        return self.options | {"padding": "VALID"}

    def _phases(self, image: Any, taps: Any) -> tuple[tuple[Pair, Pair], Phases]:
        """Zeros around the images, and how the padded ones are cut."""
        padding, kernel_shape = self.options["padding"], (int(taps[0]), int(taps[1]))
        if padding == "SAME":
            around = [d * (k - 1) for d, k in zip(self.dilation, kernel_shape, strict=True)]
            padding = tuple((n // 2, n - n // 2) for n in around)
        pads = ((0, 0), (0, 0)) if padding == "VALID" else padding
        rows, columns = (int(n) + sum(pad) for n, pad in zip(image[1:3], pads, strict=True))
        return pads, Phases((rows, columns), kernel_shape, self.dilation, (0, 0))


def _padded(x: Array, pads: tuple[Pair, Pair]) -> Array:
    return x.like(np.pad(x.carrier, ((0, 0), *pads, (0, 0))))


@kernel("Conv2D", rounding=_AS_UNIT)
def _conv2d(site: Site) -> Run:
    return _Convolution(site).forward


@kernel("Conv2DBackpropInput", rounding=_AS_UNIT)
def _to_input(site: Site) -> Run:
    return _Convolution(site).to_input


@kernel("Conv2DBackpropFilter", rounding=_AS_UNIT)
def _to_kernel(site: Site) -> Run:
    return _Convolution(site).to_kernel


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
    add: Run = site.device.add
    if not has_channels_first(site):
        return add
    return lambda x, b: add(x, b.reshape(-1, *(1,) * (x.ndim - 2)))


@kernel("BiasAddGrad", rounding="binary32, once at the end")
def _bias_gradient(site: Site) -> Run:
    reduce_sum, is_first = site.device.reduce_sum, has_channels_first(site)

    def run(g: Array) -> Array:
        axes = [a for a in range(g.ndim) if a != (1 if is_first else g.ndim - 1)]
        return reduce_sum(g, tuple(axes)).reshape(-1)

    return run


def has_channels_first(site: Site) -> bool:
    """Whether channels are the second axis, before rows and columns."""
    return bool(site.attr("data_format") == b"NCHW")


def images_last(site: Site) -> None:
    """Refuse channels that are not the last axis."""
    if has_channels_first(site):
        raise NotImplementedError(f"node {site.node.name} has channels first; use NHWC")
