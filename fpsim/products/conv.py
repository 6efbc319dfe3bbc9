"""Convolutions through a matrix unit: forward, gradient to the input, gradient to the weights.

All three are matrix products over a K that `fpsim.products.unfold` puts in order. Forward, K is the
window of an output: input channels of a pass outermost, then ky, kx, then those channels. The
gradient to the input is that of the turned kernel over the gradient's channels, strides spread by
zeros, which `fpsim.products.phases` leaves out where that changes no bit. The gradient to the
weights has K = (batch, oy, ox). Partials are stored after every pass.

Groups are products of their own; outputs are numbered over the whole result.

Source    docs/semantics.md §2 (places) and §5.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from fpsim.products.by_unit.dispatch import accumulate, finish
from fpsim.products.by_unit.unit_settings import UnitSettings
from fpsim.products.phases import phases, zeros_do_not_matter
from fpsim.products.unfold import (
    ZERO,
    Field,
    Table,
    blocks,
    every_position,
    field,
    order,
    weight_matrix,
)
from fpsim.records.geometry import Geometry, Padding, Stride, geometry
from fpsim.records.types import Carrier, ElementFlags, Index, Shape
from fpsim.state.draws import NO_PLACES, Places

__all__ = [
    "Forward", "WeightGradient", "check_gradient", "extents", "forward", "input_gradient",
]  # fmt: skip


class _Channels(NamedTuple):
    """Some input channels of a convolution: how their passes run, and their weights by group."""

    settings: UnitSettings
    first: int
    table: Table
    right: list[Carrier]

    @classmethod
    def of(
        cls, settings: UnitSettings, shape: Geometry, kernels: Carrier, first: int, stop: int
    ) -> _Channels:
        """Channels first … stop - 1 of every kernel."""
        table = order(shape.kernel, stop - first, settings.unit)
        right = [weight_matrix(table, kernel[:, :, first:stop]) for kernel in kernels]
        return cls(settings, first, table, right)

    @property
    def passes(self) -> int:
        return self.settings.passes(len(self.table))


class Forward:
    """Every window of x times every kernel, chained over whole passes and the channels left over.

    Shapes    x (batch, height, width, channels), kernels (groups, height, width, channels of a
              group, outputs of a group); `result` (batch, height, width, outputs).
    """

    def __init__(
        self, settings: UnitSettings, x: Carrier, shape: Geometry, kernels: Carrier
    ) -> None:
        self.settings, self.x, self.shape, self.kernels = settings, x, shape, kernels
        groups, *_, self.channels, self.n = kernels.shape
        self.parts = list(_parts(settings, shape, kernels))
        self.filled = any(bool((part.table == ZERO).any()) for part in self.parts)
        #: Terms with the zeros that make passes whole.
        self.depth = sum(part.passes for part in self.parts) * settings.unit.channels
        self.result: Shape = (len(x), *shape.output, groups * self.n)

    @property
    def rounding_places(self) -> range:
        return self.settings.rounding_places(self.depth)

    def multiply(self, places: Places) -> tuple[Carrier, ElementFlags]:
        """Values and flags of the result."""
        return self._multiply(places, rounded=True)

    def sums(self) -> tuple[Carrier, ElementFlags]:
        """The same before the last rounding."""
        return self._multiply(NO_PLACES, rounded=False)

    def _multiply(self, places: Places, *, rounded: bool) -> tuple[Carrier, ElementFlags]:
        values, flags = np.zeros(self.result, np.float32), np.zeros(self.result, np.uint8)
        outputs = self.result[-1]
        flat, flat_flags = values.reshape(-1, outputs), flags.reshape(-1, outputs)
        for begin, end, windows in blocks(self.x, self.shape, filled=self.filled):
            for g in range(outputs // self.n):
                block = np.s_[begin:end, g * self.n : (g + 1) * self.n]
                self._block(windows, g, flat[block], flat_flags[block],
                            places.part(begin, g * self.n), rounded)  # fmt: skip
        return values, flags

    def _block(
        self, windows: Field, group: int, values: Carrier, flags: ElementFlags, places: Places,
        rounded: bool,
    ) -> None:  # fmt: skip
        """Some windows times the kernels of a group, into values and flags, which are zero."""
        sums, raised = np.ascontiguousarray(values), np.ascontiguousarray(flags)
        done = 0
        for part in self.parts:
            left = windows.rows(part.table, group * self.channels + part.first)
            marks = raised if done == 0 else np.zeros_like(raised)
            accumulate(
                part.settings, left, part.right[group], sums, marks, places.part(0, 0, done),
                fresh=done == 0,
            )  # fmt: skip
            if done:
                raised |= marks
            done += part.passes
        if rounded:
            finish(self.settings, self.depth, sums, raised, places)
        if sums is not values:
            values[:], flags[:] = sums, raised

    def operands(self, index: Index) -> tuple[Carrier, Carrier]:
        """The window and the weights of one output, with the zeros that make passes whole."""
        g, column = divmod(index[-1], self.n)
        number = int(np.ravel_multi_index(index[:-1], self.result[:-1]))
        table = order(self.shape.kernel, self.channels, self.settings.unit)
        seen = field(self.x, self.shape, number, number + 1, filled=True)
        window = seen.rows(table, g * self.channels).matrix()[0]
        return window, weight_matrix(table, self.kernels[g])[:, column]


class InputGradient(Forward):
    """A convolution of the gradient, spread by zeros, with the turned kernels."""

    def multiply(self, places: Places) -> tuple[Carrier, ElementFlags]:
        """Values and flags of the result, phase by phase where its zeros do not matter."""
        if not zeros_do_not_matter(self.settings, self.shape.spacing, self.kernels):
            return super().multiply(places)
        values, flags = np.zeros(self.result, np.float32), np.zeros(self.result, np.uint8)
        for phase in phases(self.shape):
            if phase.geometry is not None:
                rows, columns = phase.terms
                kernels = self.kernels[:, rows, columns]
                part = Forward(self.settings, self.x, phase.geometry, kernels)
                outputs = (slice(None), *phase.outputs)
                values[outputs], flags[outputs] = part.sums()
        for g in range(len(self.kernels)):
            group = np.s_[..., g * self.n : (g + 1) * self.n]
            sums, raised = np.ascontiguousarray(values[group]), np.ascontiguousarray(flags[group])
            finish(self.settings, self.depth, sums, raised, places.part(0, g * self.n))
            if len(self.kernels) > 1:
                values[group], flags[group] = sums, raised
        return values, flags


def _parts(settings: UnitSettings, shape: Geometry, kernels: Carrier) -> Iterator[_Channels]:
    """All input channels; those that fill no pass by themselves where their passes are shorter."""
    channels = kernels.shape[3]
    rest = channels % settings.unit.channels
    short = settings.short(rest) if rest else settings
    if short is settings:
        rest = 0
    whole = channels - rest
    if whole or not rest:
        yield _Channels.of(settings, shape, kernels, 0, whole)
    if rest:
        yield _Channels.of(short, shape, kernels, whole, channels)


def forward(
    settings: UnitSettings, x: Carrier, w: Carrier, shape: Geometry, groups: int
) -> Forward:
    """The convolution of x with w (height, width, channels of a group, outputs)."""
    return Forward(settings, x, shape, np.moveaxis(_grouped(w, groups), 3, 0))


def input_gradient(
    settings: UnitSettings, gradient: Carrier, w: Carrier, shape: Geometry, groups: int
) -> InputGradient:
    """The gradient to x of a convolution of this geometry: a convolution with turned kernels."""
    kernels = _grouped(w, groups)[::-1, ::-1].transpose(3, 0, 1, 4, 2)
    return InputGradient(settings, gradient, shape.turned(), kernels)


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
