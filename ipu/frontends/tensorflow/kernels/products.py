"""Products through the units of the target: matrices, convolutions and their gradients.

Images are NHWC and kernels HWIO, as TensorFlow's on a processor. Partials follow the scope, the
policy of the layer, or the device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fpsim.array import Array
from fpsim.records.geometry import Padding
from ipu import ops
from ipu.frontends.tensorflow.kernels.dense import has_kernel, pass_of
from ipu.frontends.tensorflow.kernels.table import NodeSite, Run, kernel
from ipu.ops.dense import LayerRecipe
from ipu.ops.passes import DensePass, product

__all__ = ["has_channels_first", "images_last", "padding_of"]


@kernel("MatMul", of=ops.matmul)
def _matmul(site: NodeSite) -> Run:
    return _product(site, site.attr("transpose_a"), site.attr("transpose_b"), pass_of(site))


@kernel("BatchMatMulV2", "BatchMatMul", of=ops.matmul)
def _batch_matmul(site: NodeSite) -> Run:
    return _product(site, site.attr("adj_x"), site.attr("adj_y"), pass_of(site))


def _product(
    site: NodeSite, is_left_turned: bool, is_right_turned: bool, of: DensePass | None = None
) -> Run:
    device, partials = site.device, site.partials("matmul")

    def run(x: Array, y: Array) -> Array:
        x = _turned(x) if is_left_turned else x
        y = _turned(y) if is_right_turned else y
        how = site.recipe
        if how is not None and of is not None:
            return product(device, x, y, of, how, partials=partials)
        site.note_outside(site.node.type, site.fmt)
        return ops.matmul.value(device, x, y, partials=partials)

    return run


def _turned(x: Array) -> Array:
    return x.like(x.carrier.swapaxes(-1, -2))


# Convolutions -------------------------------------------------------------------------------------


def _images_only(site: NodeSite) -> None:
    """Refuse images that are not NHWC."""
    layout = site.attr("data_format").decode()
    if layout != "NHWC":
        raise NotImplementedError(
            f"node {site.node.name} has data_format={layout}; the machine takes NHWC"
        )


def padding_of(site: NodeSite) -> Padding:
    """SAME, VALID, or rows and columns before and after."""
    padding: str = site.attr("padding").decode()
    if padding != "EXPLICIT":
        return padding
    pads = list(site.attr("explicit_paddings"))
    return (pads[2], pads[3]), (pads[4], pads[5])


def _options(site: NodeSite) -> dict[str, Any]:
    """Options of a row, without groups, which follow from shapes."""
    _images_only(site)
    _, down, across, _ = site.attr("strides")
    _, rows, columns, _ = site.attr("dilations")
    return {
        "stride": (down, across), "padding": padding_of(site), "dilation": (rows, columns),
        "partials": site.partials("conv2d"),
    }


def _recipes(site: NodeSite) -> Callable[[int], LayerRecipe | None]:
    """The recipe of a convolution with so many groups; None: it has none, or is not covered."""
    is_covered = has_kernel(site)

    def recipe_of(groups: int) -> LayerRecipe | None:
        if is_covered and groups == 1:
            return site.recipe
        site.note_outside(site.node.type, site.fmt)
        return None

    return recipe_of


def _sizes(values: Any) -> tuple[int, ...]:
    return tuple(int(n) for n in values)


def _grouped(w: Array) -> Array:
    """A depthwise kernel (rows, columns, C, M): C groups, of one input and M outputs each."""
    rows, columns, channels, multiplier = w.shape
    return w.reshape(rows, columns, 1, channels * multiplier)


def _as_it_is(w: Array) -> Array:
    return w


def _enter_convolutions(forward: str, to_images: str, to_kernel: str, layout: Any) -> None:
    """Kernels of a convolution and its gradients; `layout` makes the row's kernel of the node's."""

    @kernel(forward, of=ops.conv2d)
    def build_forward(site: NodeSite) -> Run:
        device, options, recipe_of = site.device, _options(site), _recipes(site)

        def run(x: Array, w: Array) -> Array:
            kernels = layout(w)
            groups = x.shape[3] // kernels.shape[2]
            return ops.conv2d.value(
                device, x, kernels, groups=groups, recipe=recipe_of(groups), **options
            )

        return run

    @kernel(to_images, of=ops.conv2d, gradient=True)
    def build_to_images(site: NodeSite) -> Run:
        device, options, recipe_of = site.device, _options(site), _recipes(site)
        partials = options.pop("partials")

        def run(sizes: Any, w: Array, gradient: Array) -> Array:
            shape, kernels = _sizes(sizes), layout(w)
            saved = (None, kernels, partials, shape)
            groups = shape[3] // kernels.shape[2]
            return ops.conv2d.pull(
                0, device, gradient, saved, groups=groups, recipe=recipe_of(groups), **options
            )

        return run

    @kernel(to_kernel, of=ops.conv2d, gradient=True)
    def build_to_kernel(site: NodeSite) -> Run:
        device, options, recipe_of = site.device, _options(site), _recipes(site)
        partials = options.pop("partials")

        def run(x: Array, sizes: Any, gradient: Array) -> Array:
            shape = _sizes(sizes)
            kernels = layout(device.zeros(shape, gradient.format))
            groups = x.shape[3] // kernels.shape[2]
            saved = (x, kernels, partials)
            slope = ops.conv2d.pull(
                1, device, gradient, saved, groups=groups, recipe=recipe_of(groups), **options
            )
            return slope.reshape(*shape)

        return run


_enter_convolutions("Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter", _as_it_is)
_enter_convolutions(
    "DepthwiseConv2dNative", "DepthwiseConv2dNativeBackpropInput",
    "DepthwiseConv2dNativeBackpropFilter", _grouped,
)


# Biases -------------------------------------------------------------------------------------------


@kernel("BiasAdd", of=ops.bias, rounding="once")
def _bias_add(site: NodeSite) -> Run:
    device, is_first = site.device, has_channels_first(site)

    def run(x: Array, b: Array) -> Array:
        column = b.reshape(-1, *(1,) * (x.ndim - 2)) if is_first else b
        return ops.bias.value(device, x, column)

    return run


@kernel("BiasAddGrad", of=ops.bias, gradient=True,
        rounding="binary32, once at the end")
def _bias_gradient(site: NodeSite) -> Run:
    device, is_first = site.device, has_channels_first(site)

    def run(g: Array) -> Array:
        shape = (g.shape[1], *(1,) * (g.ndim - 2)) if is_first else g.shape[-1:]
        return ops.bias.pull(1, device, g, (shape, g.format)).reshape(-1)

    return run


def has_channels_first(site: NodeSite) -> bool:
    """Whether channels are the second axis, before rows and columns."""
    return bool(site.attr("data_format") == b"NCHW")


def images_last(site: NodeSite) -> None:
    """Refuse channels that are not the last axis."""
    if has_channels_first(site):
        raise NotImplementedError(f"node {site.node.name} has channels first; use NHWC")
