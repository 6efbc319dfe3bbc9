"""Convolutions through a matrix unit: forward, gradient to the input, gradient to the weights.

All three are matrix products over a K that `fpsim.products.unfold` puts in order. Forward, K is the
window of an output: input channels of a pass outermost, then ky, kx, then those channels. The
gradient to the input is that of the turned kernel over the gradient's channels, strides spread by
zeros. The gradient to the weights has K = (batch, oy, ox). Partials are stored after every pass.

Groups are products of their own; outputs are numbered over the whole result.

Source    docs/semantics.md §2 (places) and §5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fpsim.array import Array
from fpsim.elementwise.apply import Carrier
from fpsim.products.by_unit.dispatch import accumulate, finish, run
from fpsim.products.by_unit.product import Marks
from fpsim.products.request import Request
from fpsim.products.unfold import blocks, every_position, field, order, weight_matrix
from fpsim.records.formats import Format
from fpsim.records.geometry import Geometry, Padding, Stride, geometry
from fpsim.records.units import MatrixUnit
from fpsim.state.publish import Out

if TYPE_CHECKING:
    from fpsim.context import Context

__all__ = ["conv2d", "conv2d_input_gradient", "conv2d_weight_gradient"]

Shape = tuple[int, ...]


def conv2d(
    x: Array, w: Array, unit: str | MatrixUnit, *, stride: Stride = 1, padding: Padding = "SAME",
    groups: int = 1, context: Context | None = None, partials: Format | None = None,
    scale: int = 0, subnormals: str | None = None, out: Out = None,
) -> Array:  # fmt: skip
    """The convolution of images with kernels (cross-correlation, as networks use the word).

    stride      an integer, or (down, across).
    padding     SAME, VALID, or ((top, bottom), (left, right)) zeros.
    groups      input and output channels are cut in so many; each output sees its own group.
    context, partials, scale, subnormals    as for `fpsim.linalg.matmul`.

    Shapes    x (batch, height, width, channels), w (height, width, channels of a group, outputs):
              result (batch, height, width, outputs).
    Rounding  as the unit's record says; half partials once per pass and kernel position (or per
              window of a unit with taps), by the context.
    Flags     INVALID and OVERFLOW.
    Raises    TypeError for other input formats; ValueError for extents that do not fit.
    Source    docs/semantics.md §5.

    >>> import fpsim as fp, ipu.machine
    >>> half = fp.Context(fp.BINARY16)
    >>> x, w = half.array(np.ones((1, 2, 3, 1))), half.array(np.ones((3, 3, 1, 1)))
    >>> conv2d(x, w, "SLIC_F16_F32").values[0, :, :, 0].tolist()
    [[4.0, 6.0, 4.0], [4.0, 6.0, 4.0]]
    """
    request = Request(
        "conv2d", unit, {"x": x, "w": w}, context=context, partials=partials, scale=scale,
        subnormals=subnormals, out=out,
    )  # fmt: skip
    shape = _extents(x.shape, w.shape, stride, padding, groups)
    kernels = np.moveaxis(_grouped(w.values, groups), 3, 0)
    return _forward(request, x.values, shape, kernels)


def conv2d_input_gradient(
    gradient: Array, w: Array, unit: str | MatrixUnit, shape: Shape, *, stride: Stride = 1,
    padding: Padding = "SAME", groups: int = 1, context: Context | None = None,
    partials: Format | None = None, scale: int = 0, subnormals: str | None = None, out: Out = None,
) -> Array:  # fmt: skip
    """The gradient to x of `conv2d(x, w, …)` whose x has this shape; K are its output channels.

    Shapes    gradient as the result of that convolution; result as x.
    Rounding  as `conv2d`, with the kernel turned by half a turn: positions ascend in the gradient's
              rows and columns. Positions that meet only the zeros of a stride are passes too.
    """
    request = Request(
        "conv2d_input_gradient", unit, {"gradient": gradient, "w": w}, context=context,
        partials=partials, scale=scale, subnormals=subnormals, out=out,
    )  # fmt: skip
    extents = _extents(shape, w.shape, stride, padding, groups)
    _check_gradient(gradient, shape, w.shape, extents)
    kernels = _grouped(w.values, groups)[::-1, ::-1]
    return _forward(request, gradient.values, extents.turned(), kernels.transpose(3, 0, 1, 4, 2))


def conv2d_weight_gradient(
    x: Array, gradient: Array, unit: str | MatrixUnit, shape: Shape, *, stride: Stride = 1,
    padding: Padding = "SAME", groups: int = 1, context: Context | None = None,
    partials: Format | None = None, scale: int = 0, subnormals: str | None = None, out: Out = None,
) -> Array:  # fmt: skip
    """The gradient to w of `conv2d(x, w, …)` whose w has this shape; K = (batch, oy, ox).

    Shapes    gradient as the result of that convolution; result as w.
    Rounding  as the unit's record says; half partials once per pass over K.
    """
    request = Request(
        "conv2d_weight_gradient", unit, {"x": x, "gradient": gradient}, context=context,
        partials=partials, scale=scale, subnormals=subnormals, out=out,
    )  # fmt: skip
    extents = _extents(x.shape, shape, stride, padding, groups)
    _check_gradient(gradient, x.shape, shape, extents)
    return _weight_gradient(request, x.values, gradient.values, extents, shape, groups)


def _forward(request: Request, x: Carrier, shape: Geometry, kernels: Carrier) -> Array:
    """Every window times every kernel (groups, KH, KW, C, N)."""
    product, (groups, *_, channels, n) = request.product, kernels.shape
    table = order(shape.kernel, channels, request.unit)
    right = [weight_matrix(table, kernel) for kernel in kernels]
    result = (len(x), *shape.output, groups * n)
    places = request.open(result, product.places(len(table)))
    values, marks = np.zeros(result, np.float32), np.zeros(result, np.uint8)
    flat, flat_marks = values.reshape(-1, groups * n), marks.reshape(-1, groups * n)
    for begin, end, windows in blocks(x, shape):
        for g, weights in enumerate(right):
            some = np.s_[begin:end, g * n : (g + 1) * n]
            left, part = windows.rows(table, g * channels), places.part(begin, g * n)
            flat[some], flat_marks[some] = run(product, left, weights, None, flat[some].shape, part)

    def operands(index: Shape) -> tuple[Carrier, Carrier]:
        g, column = divmod(index[-1], n)
        number = int(np.ravel_multi_index(index[:-1], result[:-1]))
        window = field(x, shape, number, number + 1).rows(table, g * channels)
        return window.matrix()[0], right[g][:, column]

    return request.publish(values, marks, operands)


def _weight_gradient(
    request: Request, x: Carrier, gradient: Carrier, extents: Geometry, shape: Shape, groups: int
) -> Array:
    """Every position of the kernel times every gradient, chained over blocks of K."""
    product, channels, n = request.product, shape[2], shape[3] // groups
    right = gradient.reshape(-1, shape[3])
    positions = every_position(extents.kernel, channels)
    places = request.open(shape, product.places(len(right)))
    # Groups side by side: each is a matrix of its own until the end.
    sums = np.zeros((groups, len(positions), n), np.float32)
    marks: Marks = np.zeros(sums.shape, np.uint8)
    for begin, end, windows in blocks(x, extents, request.unit.channels):
        for g in range(groups):
            left, weights = windows.columns(positions, g * channels), right[begin:end]
            part, found = places.part(0, g * n, product.passes(begin)), np.zeros_like(marks[g])
            accumulate(product, left, weights[:, g * n : (g + 1) * n], sums[g], found, part)
            marks[g] |= found
    for g in range(groups):
        finish(product, len(right), sums[g], marks[g], places.part(0, g * n))

    def operands(index: Shape) -> tuple[Carrier, Carrier]:
        position = int(np.ravel_multi_index(index[:-1], shape[:-1]))
        some, first = positions[[position]], index[-1] // n * channels
        rows = [windows.columns(some, first).matrix()[0] for *_, windows in blocks(x, extents)]
        return np.concatenate(rows), right[:, index[-1]]

    values, flags = np.moveaxis(sums, 0, 1), np.moveaxis(marks, 0, 1)
    return request.publish(values.reshape(shape), flags.reshape(shape), operands)


def _grouped(w: Carrier, groups: int) -> Carrier:
    """A kernel's outputs by group: (KH, KW, C, groups, N)."""
    return w.reshape(*w.shape[:3], groups, w.shape[3] // groups)


def _extents(x: Shape, w: Shape, stride: Stride, padding: Padding, groups: int) -> Geometry:
    """The geometry of conv2d(x, w), if their shapes fit."""
    if len(x) != 4 or len(w) != 4:
        raise ValueError(
            f"x has shape {x}, w has shape {w}; give images (batch, height, width, channels) and "
            "kernels (height, width, channels of a group, outputs)"
        )
    if isinstance(groups, bool) or not isinstance(groups, int) or groups < 1 or w[3] % groups:
        raise ValueError(f"groups={groups} does not divide the {w[3]} outputs of w")
    if x[3] != w[2] * groups:
        raise ValueError(
            f"x has {x[3]} channels, w takes {w[2]} in each of groups={groups}; give w "
            f"{x[3] / groups:g} input channels, or other groups"
        )
    return geometry((x[1], x[2]), (w[0], w[1]), stride, padding)


def _check_gradient(gradient: Array, x: Shape, w: Shape, extents: Geometry) -> None:
    expected = (x[0], *extents.output, w[3])
    if gradient.shape != expected:
        raise ValueError(
            f"gradient has shape {gradient.shape}; the convolution of x {x} with w {w} has "
            f"{expected}: give a gradient of that shape"
        )
