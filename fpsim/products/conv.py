"""Convolutions through a matrix unit: forward, gradient to the input, gradient to the weights.

All three are matrix products over a K that `fpsim.products.unfold` puts in order. Forward, K is the
window of an output: input channels of a pass outermost, then ky, kx, then those channels. The
gradient to the input is that of the turned kernel over the gradient's channels, strides spread by
zeros. The gradient to the weights has K = (batch, oy, ox). Partials are stored after every pass.

Groups are products of their own; outputs are numbered over the whole result.

Source    docs/semantics.md §2 (places) and §5.
"""

from __future__ import annotations

import numpy as np

from fpsim.products.by_unit.dispatch import accumulate, finish, multiply
from fpsim.products.by_unit.unit_settings import UnitSettings
from fpsim.products.unfold import blocks, every_position, field, order, weight_matrix
from fpsim.records.geometry import Geometry, Padding, Stride, geometry
from fpsim.records.types import Carrier, ElementFlags, Index, Shape
from fpsim.state.draws import Places

__all__ = [
    "Forward", "WeightGradient", "check_gradient", "extents", "forward", "input_gradient",
]  # fmt: skip


class Forward:
    """Every window of x times every kernel.

    Shapes    x (batch, height, width, channels), kernels (groups, height, width, channels of a
              group, outputs of a group); `result` (batch, height, width, outputs).
    """

    def __init__(
        self, settings: UnitSettings, x: Carrier, shape: Geometry, kernels: Carrier
    ) -> None:
        self.settings, self.x, self.shape = settings, x, shape
        groups, *_, self.channels, self.n = kernels.shape
        self.table = order(shape.kernel, self.channels, settings.unit)
        self.right = [weight_matrix(self.table, kernel) for kernel in kernels]
        self.result: Shape = (len(x), *shape.output, groups * self.n)

    @property
    def rounding_places(self) -> range:
        return self.settings.rounding_places(len(self.table))

    def multiply(self, places: Places) -> tuple[Carrier, ElementFlags]:
        """Values and flags of the result."""
        values, flags = np.zeros(self.result, np.float32), np.zeros(self.result, np.uint8)
        outputs = self.result[-1]
        flat, flat_flags = values.reshape(-1, outputs), flags.reshape(-1, outputs)
        for begin, end, windows in blocks(self.x, self.shape):
            for g, weights in enumerate(self.right):
                part = np.s_[begin:end, g * self.n : (g + 1) * self.n]
                left = windows.rows(self.table, g * self.channels)
                flat[part], flat_flags[part] = multiply(
                    self.settings, left, weights, None, flat[part].shape,
                    places.part(begin, g * self.n),
                )  # fmt: skip
        return values, flags

    def operands(self, index: Index) -> tuple[Carrier, Carrier]:
        """The window and the weights of one output."""
        g, column = divmod(index[-1], self.n)
        number = int(np.ravel_multi_index(index[:-1], self.result[:-1]))
        window = field(self.x, self.shape, number, number + 1).rows(self.table, g * self.channels)
        return window.matrix()[0], self.right[g][:, column]


def forward(
    settings: UnitSettings, x: Carrier, w: Carrier, shape: Geometry, groups: int
) -> Forward:
    """The convolution of x with w (height, width, channels of a group, outputs)."""
    return Forward(settings, x, shape, np.moveaxis(_grouped(w, groups), 3, 0))


def input_gradient(
    settings: UnitSettings, gradient: Carrier, w: Carrier, shape: Geometry, groups: int
) -> Forward:
    """The gradient to x of a convolution of this geometry: a convolution with turned kernels."""
    kernels = _grouped(w, groups)[::-1, ::-1].transpose(3, 0, 1, 4, 2)
    return Forward(settings, gradient, shape.turned(), kernels)


class WeightGradient:
    """Every position of the kernel times every gradient, chained over blocks of K.

    Shapes    x and gradient as in the convolution; `result` as its w.
    """

    def __init__(
        self, settings: UnitSettings, x: Carrier, gradient: Carrier, extents: Geometry,
        result: Shape, groups: int,
    ) -> None:  # fmt: skip
        self.settings, self.x, self.extents, self.result = settings, x, extents, result
        self.groups, self.channels, self.n = groups, result[2], result[3] // groups
        self.right = gradient.reshape(-1, result[3])
        self.positions = every_position(extents.kernel, self.channels)

    @property
    def rounding_places(self) -> range:
        return self.settings.rounding_places(len(self.right))

    def multiply(self, places: Places) -> tuple[Carrier, ElementFlags]:
        """Values and flags of the result."""
        settings, n = self.settings, self.n
        # Groups side by side: each is a matrix of its own until the end.
        sums = np.zeros((self.groups, len(self.positions), n), np.float32)
        flags: ElementFlags = np.zeros(sums.shape, np.uint8)
        for begin, end, windows in blocks(self.x, self.extents, settings.unit.channels):
            for g in range(self.groups):
                left = windows.columns(self.positions, g * self.channels)
                right = self.right[begin:end, g * n : (g + 1) * n]
                part, block_flags = (
                    places.part(0, g * n, settings.passes(begin)),
                    np.zeros_like(flags[g]),
                )
                accumulate(settings, left, right, sums[g], block_flags, part)
                flags[g] |= block_flags
        for g in range(self.groups):
            finish(settings, len(self.right), sums[g], flags[g], places.part(0, g * n))
        values, flags = np.moveaxis(sums, 0, 1), np.moveaxis(flags, 0, 1)
        return values.reshape(self.result), flags.reshape(self.result)

    def operands(self, index: Index) -> tuple[Carrier, Carrier]:
        """The inputs and the gradients that one weight meets."""
        position = int(np.ravel_multi_index(index[:-1], self.result[:-1]))
        chosen, first = self.positions[[position]], index[-1] // self.n * self.channels
        rows = [
            windows.columns(chosen, first).matrix()[0]
            for *_, windows in blocks(self.x, self.extents)
        ]
        return np.concatenate(rows), self.right[:, index[-1]]


def _grouped(w: Carrier, groups: int) -> Carrier:
    """A kernel's outputs by group: (KH, KW, C, groups, N)."""
    return w.reshape(*w.shape[:3], groups, w.shape[3] // groups)


def extents(x: Shape, w: Shape, stride: Stride, padding: Padding, groups: int) -> Geometry:
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


def check_gradient(gradient: Shape, x: Shape, w: Shape, geometry: Geometry) -> None:
    """Refuse the gradient of another convolution than that of x with w."""
    expected = (x[0], *geometry.output, w[3])
    if gradient != expected:
        raise ValueError(
            f"gradient has shape {gradient}; the convolution of x {x} with w {w} has "
            f"{expected}: give a gradient of that shape"
        )
