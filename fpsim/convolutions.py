"""Convolutions of Arrays through matrix units: forward, gradient to the input and to the weights.

Source    docs/semantics.md §2 (places) and §5.
"""

from __future__ import annotations

from collections.abc import Callable

from fpsim.array import Array
from fpsim.core import HasCore, Out
from fpsim.products import conv
from fpsim.records.formats import Format
from fpsim.records.geometry import Padding, Stride
from fpsim.records.types import Carrier, Shape
from fpsim.records.units import MatrixUnit
from fpsim.state.processor import usual_arithmetic
from fpsim.unit_products import UnitCall

__all__ = ["conv2d", "conv2d_input_gradient", "conv2d_weight_gradient"]


@usual_arithmetic
def conv2d(
    x: Array, w: Array, unit: str | MatrixUnit, *, stride: Stride = 1, padding: Padding = "SAME",
    groups: int = 1, dilation: Stride = 1, context: HasCore | None = None,
    to: Format | str | None = None, partials: Format | str | None = None, scale: int = 0,
    subnormals: str | None = None, out: Out = None,
) -> Array:
    """The convolution of images with kernels (cross-correlation, as networks use the word).

    stride      an integer, or (down, across).
    padding     SAME, VALID, or ((top, bottom), (left, right)) zeros.
    groups      input and output channels are cut in so many; each output sees its own group.
    dilation    from one element of the kernel to the next: an integer, or (down, across). What
                lies between is no term, so it is in no pass.
    context, to, partials, scale, subnormals    as for `fpsim.linalg.matmul`.

    Shapes    x (batch, height, width, channels), w (height, width, channels of a group, outputs):
              result (batch, height, width, outputs).
    Rounding  as the unit's record says; half partials once per pass and kernel position (or per
              window of a unit with taps), by the context.
    Flags     INVALID and OVERFLOW.
    Raises    TypeError for other input formats; ValueError for extents that do not fit.
    Source    docs/semantics.md §5.

    >>> import numpy as np, fpsim as fp
    >>> half = fp.Context(fp.BINARY16)
    >>> x, w = half.array(np.ones((1, 2, 3, 1))), half.array(np.ones((3, 3, 1, 1)))
    >>> conv2d(x, w, "V100_F16_F32").values[0, :, :, 0].tolist()
    [[4.0, 6.0, 4.0], [4.0, 6.0, 4.0]]
    >>> conv2d(x, w, "V100_F16_F32", dilation=2).values[0, :, :, 0].tolist()
    [[2.0, 1.0, 2.0], [2.0, 1.0, 2.0]]
    """
    call = UnitCall("conv2d", "xw", x, w, unit, context, to, partials, scale, subnormals, out)
    extents = conv.extents(x.shape, w.shape, stride, padding, groups, dilation)
    return _run(
        call, (x.carrier, w.carrier),
        lambda: conv.forward(call.settings, x.carrier, w.carrier, extents, groups),
    )


@usual_arithmetic
def conv2d_input_gradient(
    gradient: Array, w: Array, unit: str | MatrixUnit, shape: Shape, *, stride: Stride = 1,
    padding: Padding = "SAME", groups: int = 1, dilation: Stride = 1,
    context: HasCore | None = None, to: Format | str | None = None,
    partials: Format | str | None = None, scale: int = 0, subnormals: str | None = None,
    out: Out = None,
) -> Array:
    """The gradient to x of `conv2d(x, w, …)` whose x has this shape; K are its output channels.

    Shapes    gradient as the result of that convolution; result as x.
    Rounding  as `conv2d`, with the kernel turned by half a turn: positions ascend in the gradient's
              rows and columns. Positions that meet only the zeros of a stride are passes too.

    >>> import numpy as np, fpsim as fp
    >>> half = fp.Context(fp.BINARY16)
    >>> gradient, w = half.array(np.ones((1, 2, 3, 1))), half.array(np.ones((3, 3, 1, 1)))
    >>> dx = conv2d_input_gradient(gradient, w, "V100_F16_F32", (1, 2, 3, 1))
    >>> dx.values[0, :, :, 0].tolist()
    [[4.0, 6.0, 4.0], [4.0, 6.0, 4.0]]
    """
    call = UnitCall(
        "conv2d_input_gradient", ("gradient", "w"), gradient, w, unit, context, to, partials,
        scale, subnormals, out,
    )
    extents = conv.extents(shape, w.shape, stride, padding, groups, dilation)
    conv.check_gradient(gradient.shape, shape, w.shape, extents)
    return _run(
        call, (gradient.carrier, w.carrier),
        lambda: conv.input_gradient(call.settings, gradient.carrier, w.carrier, extents, groups),
    )


@usual_arithmetic
def conv2d_weight_gradient(
    x: Array, gradient: Array, unit: str | MatrixUnit, shape: Shape, *, stride: Stride = 1,
    padding: Padding = "SAME", groups: int = 1, dilation: Stride = 1,
    context: HasCore | None = None, to: Format | str | None = None,
    partials: Format | str | None = None, scale: int = 0, subnormals: str | None = None,
    out: Out = None,
) -> Array:
    """The gradient to w of `conv2d(x, w, …)` whose w has this shape; K = (batch, oy, ox).

    Shapes    gradient as the result of that convolution; result as w.
    Rounding  as the unit's record says; half partials once per pass over K.

    >>> import numpy as np, fpsim as fp
    >>> ones = fp.Context(fp.BINARY16).array(np.ones((1, 2, 3, 1)))
    >>> dw = conv2d_weight_gradient(ones, ones, "V100_F16_F32", (3, 3, 1, 1))
    >>> dw.values[:, :, 0, 0].tolist()
    [[2.0, 3.0, 2.0], [4.0, 6.0, 4.0], [2.0, 3.0, 2.0]]
    """
    call = UnitCall(
        "conv2d_weight_gradient", ("x", "gradient"), x, gradient, unit, context, to, partials,
        scale, subnormals, out,
    )
    extents = conv.extents(x.shape, shape, stride, padding, groups, dilation)
    conv.check_gradient(gradient.shape, x.shape, shape, extents)
    operands = x.carrier, gradient.carrier
    return _run(
        call, operands,
        lambda: conv.WeightGradient(call.settings, *operands, extents, shape, groups),
    )


def _run(
    call: UnitCall, operands: tuple[Carrier, Carrier],
    prepare: Callable[[], conv.Forward | conv.WeightGradient],
) -> Array:
    """The outcome of a convolution of these operands, published."""
    work = prepare()
    call.check_out(work.result)
    places = call.places(work.result, work.rounding_places)
    values, flags = work.multiply(places)
    return call.publish(
        values, flags, work.operands, operands, lambda: conv.RepeatedConvolution(prepare, values)
    )
