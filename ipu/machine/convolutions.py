"""The convolutions of a device: forward and both gradients, each through the unit of the rule.

Images are (batch, height, width, channels), kernels (height, width, channels of a group, outputs).

Source    docs/semantics.md §5.
"""

from __future__ import annotations

from fpsim import linalg
from fpsim.array import Array
from fpsim.context import Context
from fpsim.records.formats import BINARY64, Format
from fpsim.records.geometry import Padding, Pair, Stride, geometry
from fpsim.records.units import MatrixUnit
from ipu.machine import reference
from ipu.machine.choice import ConvolutionTraits
from ipu.machine.cost.work import Convolution, Work, of_convolution, of_weight_gradient
from ipu.machine.instructions import Instruction
from ipu.machine.matrix_products import MatrixProducts

__all__ = ["Convolutions"]

Shape = tuple[int, ...]


class Convolutions(MatrixProducts):
    """Convolutions of arrays; stride, padding and groups as in `fpsim.linalg.conv2d`."""

    def conv2d(
        self, x: Array, w: Array, *, stride: Stride = 1, padding: Padding = "SAME",
        groups: int = 1, partials: Format | None = None, out: Format | None = None,
        unit: MatrixUnit | str | None = None, scale: int = 0,
    ) -> Array:  # fmt: skip
        """The convolution of images with kernels.

        scale     of quarters: the result is multiplied by 2**scale, the sum of both metadata.

        Rounding  inside as the unit's record says; once into `out` (default: the inputs' format).
        Raises    ValueError where no such unit exists, and for partials narrower than `out`.

        >>> from fpsim import BINARY16
        >>> from ipu.machine import Device
        >>> device = Device()
        >>> x = device.from_host([[[[1.0], [2.0], [3.0]]]], BINARY16)
        >>> w = device.from_host([[[[1.0]], [[1.0]]]], BINARY16)
        >>> device.conv2d(x, w, padding="VALID").values.tolist(), device.ledger.last.unit
        ([[[[3.0], [5.0]]]], 'SLIC_F16_F32')
        """
        if x.format == BINARY64:
            a, b = self._of(x).core.carriers((x, w))
            return self._native(reference.conv2d(a, b, stride, padding, groups), x, out)
        traits = _traits(w.shape, groups, stride, of_outputs=False)
        chosen = self._unit("conv2d", x, partials, out, unit, traits)

        def compute(context: Context) -> Array:
            return linalg.conv2d(
                x, w, chosen, stride=stride, padding=padding, groups=groups, context=context,
                scale=scale, subnormals=self._inside,
            )  # fmt: skip

        def work_of(instruction: Instruction, result: Shape) -> Work:
            across = _steps(stride)[1]
            forward = Convolution(result, w.shape[:2], w.shape[2], groups, across)
            return of_convolution(forward, instruction)

        return self._product("conv2d", chosen, (x, w), out, compute, work_of, (stride, groups))

    def conv2d_input_gradient(
        self, gradient: Array, w: Array, shape: Shape, *, stride: Stride = 1,
        padding: Padding = "SAME", groups: int = 1, partials: Format | None = None,
        out: Format | None = None, unit: MatrixUnit | str | None = None, scale: int = 0,
    ) -> Array:  # fmt: skip
        """The gradient to the images, which have this shape; K are the output channels."""
        verb = "conv2d_input_gradient"
        if gradient.format == BINARY64:
            a, b = self._of(gradient).core.carriers((gradient, w))
            values = reference.conv2d_input_gradient(a, b, shape, stride, padding, groups)
            return self._native(values, gradient, out)
        traits = _traits(w.shape, groups, stride, of_outputs=True)
        chosen = self._unit(verb, gradient, partials, out, unit, traits)

        def compute(context: Context) -> Array:
            return linalg.conv2d_input_gradient(
                gradient, w, chosen, shape, stride=stride, padding=padding, groups=groups,
                context=context, scale=scale, subnormals=self._inside,
            )  # fmt: skip

        def work_of(instruction: Instruction, result: Shape) -> Work:
            turned = Convolution(result, w.shape[:2], w.shape[3] // groups, groups, 1)
            return of_convolution(turned, instruction)

        return self._product(verb, chosen, (gradient, w), out, compute, work_of, (stride, groups))

    def conv2d_weight_gradient(
        self, x: Array, gradient: Array, shape: Shape, *, stride: Stride = 1,
        padding: Padding = "SAME", groups: int = 1, partials: Format | None = None,
        out: Format | None = None, unit: MatrixUnit | str | None = None, scale: int = 0,
        late: bool = False,
    ) -> Array:  # fmt: skip
        """The gradient to the kernels, which have this shape; K is (batch, height, width).

        late      nobody needs the values soon; see `settling`.
        """
        verb = "conv2d_weight_gradient"
        if x.format == BINARY64:
            a, b = self._of(x).core.carriers((x, gradient))
            values = reference.conv2d_weight_gradient(a, b, shape, stride, padding, groups)
            return self._native(values, x, out)
        chosen = self._unit(verb, x, partials, out, unit)

        def compute(context: Context) -> Array:
            return linalg.conv2d_weight_gradient(
                x, gradient, chosen, shape, stride=stride, padding=padding, groups=groups,
                context=context, scale=scale, subnormals=self._inside,
            )  # fmt: skip

        def work_of(instruction: Instruction, result: Shape) -> Work:
            return of_weight_gradient(gradient.shape, result, groups, instruction)

        return self._product(
            verb, chosen, (x, gradient), out, compute, work_of, (stride, groups),
            late_shape=shape if late else None,
        )  # fmt: skip


def _traits(w: Shape, groups: int, stride: Stride, *, of_outputs: bool) -> ConvolutionTraits | None:
    """What the rule reads; None for a kernel that the convolution is going to refuse."""
    if len(w) != 4:
        return None
    channels = w[3] // max(groups, 1) if of_outputs else w[2]
    return ConvolutionTraits(channels, groups, max(_steps(stride)))


def _steps(stride: Stride) -> Pair:
    """Down and across; other values than strides are refused."""
    return geometry((1, 1), (1, 1), stride, "SAME").stride
