"""Matrix products and convolutions; their backward rules are products too.

A product is rounded once, as the record of its unit says. A bias is added to the rounded product. A
dilated convolution is cut into phases (`ops.phases`), a transposed one is the gradient to the
images of a convolution with the same kernel.

Their checks of shapes and their costs hold for products of quarters as well (`ops.fp8`).

Source    docs/semantics.md §5 (units), §6 (gradients are products of the same unit).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from fpsim.array import Array
from fpsim.records.evidence import Evidence
from fpsim.records.formats import Format, find_number_format
from fpsim.records.geometry import Geometry, Padding, Stride, geometry
from ipu.machine.device import Device
from ipu.machine.stacked import StackedArray
from ipu.ops import dense, dense_images
from ipu.ops.dense import LayerRecipe
from ipu.ops.phases import Phases
from ipu.ops.primitive import OperationCost, Primitive
from ipu.ops.rules import Saved, sum_to

__all__ = [
    "conv2d", "conv2d_transpose", "matmul", "matmul_bias",
]

Shape = tuple[int, ...]

AS_UNIT = "as the unit's record says, then once"
_SOURCE = "docs/semantics.md §5 and §6: poplin's matMul and convolution, and their gradients"


def _rounded(
    product: Callable[..., Array], *operands: Any, partials: Format | str,
    to: Format | str | None, **how: Any,
) -> Array:
    """A product of the device in a format, by default that of the operands.

    A unit leaves no more digits than its partials have: a wider result is cast exactly.
    """
    if to is None:
        return product(*operands, partials=partials, **how)
    if type(to) is not Format:
        to = find_number_format(to, "to")
    if type(partials) is not Format:
        partials = find_number_format(partials, "partials")
    leaves = partials if partials.precision < to.precision else to
    device = product.__self__  # type: ignore[attr-defined]
    result: Array = device.cast(product(*operands, partials=partials, to=leaves, **how), to)
    return result


# Matrices -----------------------------------------------------------------------------------------


def check_matrices(x: Array, y: Array) -> None:
    """Refuse operands that are not matrices."""
    if x.ndim != 2 or y.ndim != 2:
        raise ValueError(f"matmul takes matrices, got shapes {x.shape} and {y.shape}; reshape them")


def _turned(x: Array) -> Array:
    if isinstance(x, StackedArray):
        return x.mT
    return Array(x.carrier.swapaxes(-1, -2), x.context)


def _format(to: Format | str | None, x: Array) -> Format:
    """The format of a result."""
    return x.format if to is None else find_number_format(to, "to")


def _batches(x: Array, batch: Shape) -> Array:
    """Matrices broadcast to these axes, which become one."""
    matrices = x.shape[-2:]
    if x.shape[:-2] != batch:
        x = x.like(np.broadcast_to(x.carrier, (*batch, *matrices)))
    return x if len(batch) == 1 else x.like(x.carrier.reshape(math.prod(batch), *matrices))


def _of_matrices(device: Device, x: Array, y: Array, **how: Any) -> Array:
    """x @ y, batch by batch."""
    if x.ndim == y.ndim == 2:
        return _rounded(device.matmul, x, y, **how)
    batch = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    z = _rounded(device.matmul, _batches(x, batch), _batches(y, batch), **how)
    return z.reshape(*batch, *z.shape[-2:])


def _matmul(
    device: Device, x: Array, y: Array, *, partials: Format | str | None = None, scale: int = 0,
    to: Format | str | None = None, recipe: LayerRecipe | None = None,
) -> tuple[Array, Saved]:
    if min(x.ndim, y.ndim) < 2:
        check_matrices(x, y)
    partials = partials or device.partials_for(x.format)
    z = None if recipe is None else dense.forward(
        device, x, _turned(y), recipe, _format(to, x)
    )
    if z is None:
        z = _of_matrices(device, x, y, partials=partials, scale=scale, to=to)
    return z, (x, y, partials)


def _matmul_x(
    device: Device, gradient: Array, saved: Saved, *, scale: int = 0,
    to: Format | str | None = None, recipe: LayerRecipe | None = None, **_: Any,
) -> Array:
    x, y, partials = saved
    if recipe is not None:
        fmt = _format(to, gradient)
        in_blocks = dense.input_gradient(device, gradient, _turned(y), recipe, fmt)
        if in_blocks is not None:
            return _unbroadcast(device, in_blocks, x)
    slope = _of_matrices(device, gradient, _turned(y), partials=partials, scale=scale, to=to)
    return _unbroadcast(device, slope, x)


def _matmul_y(
    device: Device, gradient: Array, saved: Saved, *, scale: int = 0,
    to: Format | str | None = None, recipe: LayerRecipe | None = None, **_: Any,
) -> Array:
    x, y, partials = saved
    if recipe is not None:
        in_blocks = dense.weight_gradient(device, gradient, x, recipe, _format(to, gradient))
        if in_blocks is not None:
            return _unbroadcast(device, _turned(in_blocks), y)
    slope = _of_matrices(
        device, _turned(x), gradient, partials=partials, scale=scale, to=to, late=True
    )
    return _unbroadcast(device, slope, y)


def _unbroadcast(device: Device, slope: Array, operand: Array | None) -> Array:
    """What flows to an operand whose batch was broadcast; None: it was not."""
    if slope.ndim == 2 or operand is None:
        return slope
    return sum_to(device, slope, operand.shape, slope.format)


def matmul_cost(arrays: Sequence[Array], output: Array) -> OperationCost:
    """A multiply-add for each column of x, for each result."""
    return OperationCost(macs=output.size * arrays[0].shape[-1])


def _matmul_bias(
    device: Device, bias: Array, x: Array, y: Array, *, alpha: float | Array = 1,
    beta: float | Array = 1, partials: Format | str | None = None, scale: int = 0,
    to: Format | str | None = None, recipe: LayerRecipe | None = None,
) -> tuple[Array, Saved]:
    z, saved = _matmul(device, x, y, partials=partials, scale=scale, to=to, recipe=recipe)
    if not _is(alpha, 1):
        z = device.multiply(z, alpha)
    added = (bias.shape, bias.format, *saved)
    if _is(beta, 0):
        return z, added
    return device.add(z, bias if _is(beta, 1) else device.multiply(bias, beta)), added


def _is(factor: float | Array, number: float) -> bool:
    """Whether a factor is this number itself: one that was rounded to it is none."""
    return not isinstance(factor, Array) and factor == number


def _matmul_bias_bias(
    device: Device, gradient: Array, saved: Saved, *, beta: float | Array = 1, **_: Any
) -> Array:
    shape, fmt = saved[:2]
    if _is(beta, 0):
        return device.zeros(shape, fmt)
    slope = gradient if _is(beta, 1) else device.multiply(gradient, beta)
    return sum_to(device, slope, shape, fmt)


def _matmul_bias_x(
    device: Device, gradient: Array, saved: Saved, *, alpha: float | Array = 1, **options: Any
) -> Array:
    slope = gradient if _is(alpha, 1) else device.multiply(gradient, alpha)
    return _matmul_x(device, slope, saved[2:], **options)


def _matmul_bias_y(
    device: Device, gradient: Array, saved: Saved, *, alpha: float | Array = 1, **options: Any
) -> Array:
    slope = gradient if _is(alpha, 1) else device.multiply(gradient, alpha)
    return _matmul_y(device, slope, saved[2:], **options)


def _matmul_bias_cost(arrays: Sequence[Array], output: Array) -> OperationCost:
    return matmul_cost(arrays[1:], output)


# Convolutions -------------------------------------------------------------------------------------


class _How(NamedTuple):
    """Extents and roundings of a convolution, as its rules take them."""

    stride: Stride
    padding: Padding
    groups: int
    dilation: Stride
    partials: Format | str
    scale: int
    to: Format | str | None
    recipe: LayerRecipe | None = None

    def extents(self, image: Shape, kernel: Shape) -> Geometry:
        """Of images of this shape and a kernel of that shape."""
        (_, rows, columns, _), (height, width, *_) = image, kernel
        return geometry(
            (rows, columns), (height, width), self.stride, self.padding, self.dilation
        )

    @property
    def is_in_blocks(self) -> bool:
        """Whether a recipe may cover it, which is for one group."""
        return self.recipe is not None and self.groups == 1

    @property
    def is_dilated(self) -> bool:
        return self.dilation not in (1, (1, 1))

    def phases(self, image: Shape, kernel: Shape) -> Phases:
        """How images of this shape are cut for a kernel of that shape."""
        (_, rows, columns, _), (height, width, *_) = image, kernel
        return Phases((rows, columns), (height, width), self.stride, self.padding, self.dilation)

    def inner(self, phases: Phases) -> _How:
        """Of the convolution of the phases."""
        return self._replace(stride=phases.stride, padding="VALID", dilation=1)

    def product(self, verb: Callable[..., Array], *operands: Any, **late: bool) -> Array:
        """A convolution of the device."""
        return _rounded(
            verb, *operands, partials=self.partials, to=self.to, scale=self.scale,
            stride=self.stride, padding=self.padding, groups=self.groups, **late,
        )


def _forward(device: Device, x: Array, w: Array, how: _How) -> Array:
    if not how.is_dilated:
        return how.product(device.conv2d, x, w)
    phases = how.phases(x.shape, w.shape)
    return phases.joined_result(_forward(device, phases.cut(x), w, how.inner(phases)))


def _to_images(device: Device, gradient: Array, w: Array, shape: Shape, how: _How) -> Array:
    if not how.is_dilated:
        return how.product(device.conv2d_input_gradient, gradient, w, shape)
    phases = how.phases(shape, w.shape)
    cut = phases.cut_result(gradient)
    inner = (len(cut), *phases.grid, shape[3])
    return phases.joined(_to_images(device, cut, w, inner, how.inner(phases)))


def _to_kernel(device: Device, x: Array, gradient: Array, shape: Shape, how: _How) -> Array:
    if how.is_dilated:
        phases = how.phases(x.shape, shape)
        x, gradient, how = phases.cut(x), phases.cut_result(gradient), how.inner(phases)
    return how.product(device.conv2d_weight_gradient, x, gradient, shape, late=True)


def _conv2d(
    device: Device, x: Array, w: Array, *, stride: Stride = 1, padding: Padding = "SAME",
    groups: int = 1, dilation: Stride = 1, partials: Format | str | None = None, scale: int = 0,
    to: Format | str | None = None, recipe: LayerRecipe | None = None,
) -> tuple[Array, Saved]:
    partials = partials or device.partials_for(x.format, "conv2d")
    how = _How(stride, padding, groups, dilation, partials, scale, to, recipe)
    saved = (x, w, partials, x.shape)
    if recipe is not None and how.is_in_blocks:
        extents = how.extents(x.shape, w.shape)
        y = dense_images.forward(device, x, w, extents, recipe, _format(to, x))
        if y is not None:
            return y, saved
    return _forward(device, x, w, how), saved


def _conv2d_x(
    device: Device, gradient: Array, saved: Saved, *, stride: Stride = 1,
    padding: Padding = "SAME", groups: int = 1, dilation: Stride = 1, scale: int = 0,
    to: Format | str | None = None, recipe: LayerRecipe | None = None, **_: Any,
) -> Array:
    w, partials, shape = saved[1:]
    how = _How(stride, padding, groups, dilation, partials, scale, to, recipe)
    if recipe is not None and how.is_in_blocks:
        extents = how.extents(shape, w.shape)
        dx = dense_images.images_gradient(
            device, gradient, w, extents, recipe, _format(to, gradient)
        )
        if dx is not None:
            return dx
    return _to_images(device, gradient, w, shape, how)


def _conv2d_w(
    device: Device, gradient: Array, saved: Saved, *, stride: Stride = 1,
    padding: Padding = "SAME", groups: int = 1, dilation: Stride = 1, scale: int = 0,
    to: Format | str | None = None, recipe: LayerRecipe | None = None, **_: Any,
) -> Array:
    x, w, partials = saved[:3]
    how = _How(stride, padding, groups, dilation, partials, scale, to, recipe)
    if recipe is not None and how.is_in_blocks:
        extents = how.extents(x.shape, w.shape)
        dw = dense_images.kernel_gradient(
            device, gradient, x, w.shape, extents, recipe, _format(to, gradient)
        )
        if dw is not None:
            return dw
    return _to_kernel(device, x, gradient, w.shape, how)


def conv2d_cost(arrays: Sequence[Array], output: Array) -> OperationCost:
    """A multiply-add for each element of a kernel, for each result."""
    return OperationCost(macs=output.size * math.prod(arrays[1].shape[:3]))


def _conv2d_transpose(
    device: Device, x: Array, w: Array, *, shape: Shape, stride: Stride = 1,
    padding: Padding = "SAME", groups: int = 1, dilation: Stride = 1,
    partials: Format | str | None = None, scale: int = 0, to: Format | str | None = None,
) -> tuple[Array, Saved]:
    partials = partials or device.partials_for(x.format, "conv2d_input_gradient")
    how = _How(stride, padding, groups, dilation, partials, scale, to)
    return _to_images(device, x, w, shape, how), (x, w, partials)


def _conv2d_transpose_x(
    device: Device, gradient: Array, saved: Saved, *, shape: Shape, stride: Stride = 1,
    padding: Padding = "SAME", groups: int = 1, dilation: Stride = 1, scale: int = 0,
    to: Format | str | None = None, **_: Any,
) -> Array:
    _, w, partials = saved
    how = _How(stride, padding, groups, dilation, partials, scale, to)
    return _forward(device, gradient, w, how)


def _conv2d_transpose_w(
    device: Device, gradient: Array, saved: Saved, *, shape: Shape, stride: Stride = 1,
    padding: Padding = "SAME", groups: int = 1, dilation: Stride = 1, scale: int = 0,
    to: Format | str | None = None, **_: Any,
) -> Array:
    x, w, partials = saved
    how = _How(stride, padding, groups, dilation, partials, scale, to)
    return _to_kernel(device, gradient, x, w.shape, how)


def _transpose_cost(arrays: Sequence[Array], output: Array) -> OperationCost:
    """A multiply-add for each element of a kernel, for each element of x."""
    x, w = arrays
    return OperationCost(macs=x.size * w.shape[0] * w.shape[1] * w.shape[2])


#: x @ y for matrices, or batches of them that broadcast; options `partials` (default: the
#: device's), `scale` (the product is multiplied by its power of two), `to`, the result's format,
#: and `recipe` of a dense layer, whose weight is y: its three passes are products in blocks.
matmul = Primitive(
    "matmul", _matmul, (_matmul_x, _matmul_y), "AMP", matmul_cost, rounding=AS_UNIT,
    gradient=f"{AS_UNIT}; what flows to a broadcast batch as a sum",
    evidence=Evidence.DOCUMENTED, source=_SOURCE,
)
#: bias · `beta` + (x @ y) · `alpha`, the bias broadcast; a factor of 1 is none, a beta of 0 reads
#: no bias.
matmul_bias = Primitive(
    "matmul_bias", _matmul_bias, (_matmul_bias_bias, _matmul_bias_x, _matmul_bias_y), "AMP",
    _matmul_bias_cost, rounding="product, then alpha, beta, and the sum",
    gradient=f"alpha or beta, then {AS_UNIT}; the bias as a sum", source=_SOURCE,
)
#: Images NHWC with kernels HWIO; options `stride`, `padding`, `groups`, `dilation`, and those of
#: `matmul`; a recipe holds for one group.
conv2d = Primitive(
    "conv2d", _conv2d, (_conv2d_x, _conv2d_w), "by rule", conv2d_cost, rounding=AS_UNIT,
    gradient=AS_UNIT, evidence=Evidence.DOCUMENTED, source=_SOURCE,
)
#: The gradient of `conv2d` to images of this `shape`, as an operation; other options as there.
conv2d_transpose = Primitive(
    "conv2d_transpose", _conv2d_transpose, (_conv2d_transpose_x, _conv2d_transpose_w), "by rule",
    _transpose_cost, rounding=AS_UNIT, gradient=AS_UNIT, evidence=Evidence.DOCUMENTED,
    source=_SOURCE,
)
