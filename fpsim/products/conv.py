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

import math
from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import NamedTuple, cast

import numpy as np

from fpsim.elementwise.sizes import check_size
from fpsim.products.by_unit.dispatch import accumulate, accumulate_whole, finish
from fpsim.products.by_unit.unit_settings import UnitSettings
from fpsim.products.jobs.windows import Table, Target, Windows, field
from fpsim.products.lanewise import Beside
from fpsim.products.phases import common_windows, phases, zeros_do_not_matter
from fpsim.products.unfold import dilated, every_position, moved, order, weight_matrix
from fpsim.records.geometry import Geometry, Padding, Pair, Stride, geometry
from fpsim.records.types import Carrier, ElementFlags, Index, Shape
from fpsim.state.draws import NO_PLACES, Draw, Places
from fpsim.state.publish import fold

__all__ = [
    "Forward", "RepeatedConvolution", "WeightGradient", "check_gradient", "extents", "forward",
    "input_gradient",
]


class _Channels(NamedTuple):
    """Some input channels of a convolution, and how their passes run.

    table     of the terms in the kernel; windows: of the same in a window.
    passes    of the unit, with those of zeros.
    """

    settings: UnitSettings
    first: int
    stop: int
    table: Table
    windows: Table
    passes: int

    def weights(self, kernel: Carrier) -> Carrier:
        """The right operand of a kernel (KH, KW, C, N)."""
        if self.stop - self.first < kernel.shape[2]:
            kernel = kernel[:, :, self.first : self.stop]
        return weight_matrix(self.table, kernel)


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
        self.parts, self.depth = _parts(settings, shape.elements, shape.dilation, self.channels)
        self.result: Shape = (len(x), *shape.output, groups * self.n)

    @property
    def rounding_places(self) -> range:
        return self.settings.rounding_places(self.depth)

    def multiply(self, places: Places) -> tuple[Carrier, ElementFlags]:
        """Values and flags of the result."""
        values, flags = np.zeros(self.result, np.float32), np.zeros(self.result, np.uint8)
        if len(self.kernels) == 1:
            self.accumulate(0, values, flags, places)
        elif not self.groups_together(values, flags, places):
            self._one_by_one(values, flags, places)
        # All groups at once: outputs side by side share the counters of their random bits.
        finish(self.settings, self.depth, values, flags, places)
        return values, flags

    def _one_by_one(self, values: Carrier, flags: ElementFlags, places: Places) -> None:
        """Each group in memory of its own, then side by side with the others."""
        for g in range(len(self.kernels)):
            group, part = np.s_[..., g * self.n : (g + 1) * self.n], places.part(0, g * self.n)
            sums, raised = np.ascontiguousarray(values[group]), np.ascontiguousarray(flags[group])
            self.accumulate(g, sums, raised, part)
            values[group], flags[group] = sums, raised

    def accumulate(
        self, group: int, sums: Carrier, flags: ElementFlags, places: Places,
        target: Target | None = None,
    ) -> None:
        """The passes of every window times the kernels of a group, into sums and flags of zero.

        target    where the outputs stand there, as `Windows` take it.
        """
        done, x = 0, _of_group(self.x, group, self.channels)
        for part in self.parts:
            left = Windows(x, self.shape, part.windows, part.first, target=target)
            raised = np.zeros_like(flags) if done else flags
            accumulate(
                part.settings, left, part.weights(self.kernels[group]), sums, raised,
                places.part(0, 0, done), fresh=done == 0,
            )
            if done:
                flags |= raised
            done += part.passes

    def groups_together(
        self, values: Carrier, flags: ElementFlags, places: Places, target: Target | None = None
    ) -> bool:
        """All groups in one product, if there are several and a fast engine can; else zeros stay.

        target    as in `accumulate`, of the whole result.
        """
        if not Beside.pays(len(self.kernels), self.n):
            return False
        beside = Beside(self.x, len(self.kernels), self.n)
        done = 0
        for part in self.parts:
            left = beside.windows(self.shape, part.windows, part.first, target=target)
            weights = np.stack([part.weights(kernel) for kernel in self.kernels])
            right = np.moveaxis(weights, 0, 1).reshape(len(part.table), -1)
            raised = np.zeros_like(flags) if done else flags
            if not accumulate_whole(
                part.settings, left, right, values, raised, places.part(0, 0, done), fresh=done == 0
            ):
                values[...], flags[...] = 0, 0
                return False
            if done:
                flags |= raised
            done += part.passes
        return True

    def operands(self, index: Index) -> tuple[Carrier, Carrier]:
        """The window and the weights of one output, with the zeros that make passes whole."""
        g, column = divmod(index[-1], self.n)
        number = int(np.ravel_multi_index(index[:-1], self.result[:-1]))
        table = order(self.shape.elements, self.channels, self.settings.unit)
        images = field(self.x, self.shape, number, number + 1, filled=True)
        windows = dilated(table, self.shape.dilation)
        window = images.rows(windows, g * self.channels).matrix()[0]
        return window, weight_matrix(table, self.kernels[g])[:, column]


class InputGradient(Forward):
    """A convolution of the gradient, spread by zeros, with the turned kernels."""

    def accumulate(
        self, group: int, sums: Carrier, flags: ElementFlags, places: Places,
        target: Target | None = None,
    ) -> None:
        """The passes, phase by phase where zeros between the terms do not matter."""
        if self._phases is None:
            super().accumulate(group, sums, flags, places, target)
            return
        if self._from_one_image(group, sums, flags):
            return
        for part, outputs in self._phases:
            part.accumulate(group, sums, flags, NO_PLACES, outputs)

    def _from_one_image(self, group: int, sums: Carrier, flags: ElementFlags) -> bool:
        """The passes of all phases over the same laid-out images; else False, and zeros stay."""
        common = common_windows(self.shape)
        if common is None or not self._phases:
            return False
        (geometry, corners), x = common, _of_group(self.x, group, self.channels)
        targets = [outputs for _, outputs in self._phases]
        for done, parts in enumerate(zip(*(part.parts for part, _ in self._phases), strict=True)):
            windows = [
                Windows(x, geometry, moved(part.windows, corner), part.first, target=outputs)
                for part, corner, outputs in zip(parts, corners, targets, strict=True)
            ]
            left = windows[0]._replace(others=tuple(windows[1:]))
            right = np.concatenate(
                [
                    part.weights(phase.kernels[group])
                    for part, (phase, _) in zip(parts, self._phases, strict=True)
                ]
            )
            raised = np.zeros_like(flags) if done else flags
            if not accumulate_whole(
                parts[0].settings, left, right, sums, raised, NO_PLACES, fresh=done == 0
            ):
                sums[...], flags[...] = 0, 0
                return False
            if done:
                flags |= raised
        return True

    def groups_together(
        self, values: Carrier, flags: ElementFlags, places: Places, target: Target | None = None
    ) -> bool:
        """The same phase by phase."""
        if self._phases is None:
            return super().groups_together(values, flags, places, target)
        groups = len(self.kernels)
        for part, outputs in self._phases:
            target = cast("Target", tuple(step * groups for step in outputs))
            if not part.groups_together(values, flags, NO_PLACES, target):
                return False
        return True

    @cached_property
    def _phases(self) -> list[tuple[Forward, Target]] | None:
        """The convolution of each phase, and where its outputs stand."""
        # Of a dilated kernel the phases would meet other elements: all zeros are multiplied.
        if self.shape.dilation != (1, 1):
            return None
        if not zeros_do_not_matter(self.settings, self.shape.spacing, self.kernels):
            return None
        convolutions, (height, width) = [], self.shape.output
        for phase in phases(self.shape):
            if phase.geometry is not None:
                rows, columns = phase.terms
                part = Forward(
                    self.settings, self.x, phase.geometry, self.kernels[:, rows, columns]
                )
                steps = height * width, phase.outputs[0].step * width, phase.outputs[1].step
                first = phase.outputs[0].start * width + phase.outputs[1].start
                outputs = (first * self.n, *(step * self.n for step in steps))
                convolutions.append((part, cast("Target", outputs)))
        return convolutions


@lru_cache(maxsize=256)
def _parts(
    settings: UnitSettings, kernel: Pair, dilation: Pair, channels: int
) -> tuple[tuple[_Channels, ...], int]:
    """All input channels; those that fill no pass by themselves where their passes are shorter.

    And how many terms they have together, with the zeros that make passes whole.
    """
    by_taps = settings.by_taps
    rest = channels % by_taps.unit.channels
    short = by_taps.short(rest) if rest else by_taps
    if short is by_taps:
        rest = 0
    whole = channels - rest
    spans = [(by_taps, 0, whole)] if whole or not rest else []
    if rest:
        spans.append((short, whole, channels))
    parts = []
    for unit_settings, first, stop in spans:
        table = order(kernel, stop - first, unit_settings.unit)
        passes = settings.passes(len(order(kernel, stop - first, settings.unit)))
        parts.append(_Channels(unit_settings, first, stop, table, dilated(table, dilation), passes))
    return tuple(parts), sum(part.passes for part in parts) * settings.unit.channels


def forward(
    settings: UnitSettings, x: Carrier, w: Carrier, shape: Geometry, groups: int
) -> Forward:
    """The convolution of x with w (height, width, channels of a group, outputs)."""
    return Forward(settings, x, shape, _grouped(w, groups).transpose(3, 0, 1, 2, 4))


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
    ) -> None:
        self.settings, self.x, self.extents, self.result = settings, x, extents, result
        self.groups, self.channels, self.n = groups, result[2], result[3] // groups
        self.right = gradient.reshape(math.prod(gradient.shape[:-1]), result[3])
        positions = every_position(extents.elements, self.channels)
        self.positions = dilated(positions, extents.dilation)

    @property
    def rounding_places(self) -> range:
        return self.settings.rounding_places(len(self.right))

    def multiply(self, places: Places) -> tuple[Carrier, ElementFlags]:
        """Values and flags of the result."""
        settings, n = self.settings, self.n
        together = self._groups_together(places)
        if together is not None:
            return together
        # Groups side by side: each is a matrix of its own until the end.
        sums = np.zeros((self.groups, len(self.positions), n), np.float32)
        flags: ElementFlags = np.zeros(sums.shape, np.uint8)
        for g in range(self.groups):
            x = _of_group(self.x, g, self.channels)
            left = Windows(x, self.extents, self.positions, turned=True)
            right = self.right[:, g * n : (g + 1) * n]
            part = places.part(0, g * n)
            accumulate(settings, left, right, sums[g], flags[g], part, fresh=True)
        values = sums.transpose(1, 0, 2).reshape(self.result)
        flags = flags.transpose(1, 0, 2).reshape(self.result)
        finish(settings, len(self.right), values, flags, places)
        return values, flags

    def _groups_together(self, places: Places) -> tuple[Carrier, ElementFlags] | None:
        """Values and flags from one product of all groups; None where no fast engine can."""
        if not Beside.pays(self.groups, self.n):
            return None
        values, flags = np.zeros(self.result, np.float32), np.zeros(self.result, np.uint8)
        beside = Beside(self.x, self.groups, self.n)
        left = beside.windows(self.extents, self.positions, turned=True)
        if not accumulate_whole(self.settings, left, self.right, values, flags, places, fresh=True):
            return None
        finish(self.settings, len(self.right), values, flags, places)
        return values, flags

    def operands(self, index: Index) -> tuple[Carrier, Carrier]:
        """The inputs and the gradients that one weight meets."""
        position = int(np.ravel_multi_index(index[:-1], self.result[:-1]))
        table, first = self.positions[[position]], index[-1] // self.n * self.channels
        pieces = Windows(self.x, self.extents, table, first, turned=True).pieces(1)
        terms = np.concatenate([rows.matrix()[0] for *_, rows in pieces])
        return terms, self.right[:, index[-1]]


class RepeatedConvolution:
    """A convolution that runs time after time, into the memory of a result.

    prepare    makes it from what its operands hold now.
    """

    __slots__ = ("_prepare", "_values")

    def __init__(
        self, prepare: Callable[[], Forward | WeightGradient], values: Carrier
    ) -> None:
        self._prepare, self._values = prepare, values

    def run(self, seed: np.uint64, number: np.uint64) -> int:
        """Compute; the flags of all elements together."""
        work, places = self._prepare(), NO_PLACES
        settings = work.settings.settings
        if settings.rounding.stochastic:
            places = Places(
                Draw(seed, number, None), work.rounding_places, work.result,
                wide=settings.random_most > 16,
            )
        self._values[...], flags = work.multiply(places)
        return fold(flags)


def _grouped(w: Carrier, groups: int) -> Carrier:
    """A kernel's outputs by group: (KH, KW, C, groups, N)."""
    return w.reshape(*w.shape[:3], groups, w.shape[3] // groups)


def _of_group(x: Carrier, group: int, channels: int) -> Carrier:
    """The images with the channels of a group: no other is laid out beside them."""
    if channels == x.shape[3]:
        return x
    return np.ascontiguousarray(x[..., group * channels : (group + 1) * channels])


def extents(
    x: Shape, w: Shape, stride: Stride, padding: Padding, groups: int, dilation: Stride = 1
) -> Geometry:
    """The geometry of conv2d(x, w), if their shapes fit."""
    for shape in (x, w):
        if not isinstance(shape, (tuple, list)) or not all(type(n) is int for n in shape):
            raise TypeError(f"shape={shape!r} is not the shape of images or kernels; give a tuple")
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
    windows = geometry((x[1], x[2]), (w[0], w[1]), stride, padding, dilation)
    plain = windows.dilation == (1, 1)
    name, cause = ("padding", padding) if plain else ("dilation", dilation)
    check_size(name, cause, x[0] * windows.framed * x[3], 4)
    return windows


def check_gradient(gradient: Shape, x: Shape, w: Shape, geometry: Geometry) -> None:
    """Refuse the gradient of another convolution than that of x with w."""
    expected = (x[0], *geometry.output, w[3])
    if gradient != expected:
        raise ValueError(
            f"gradient has shape {gradient}; the convolution of x {x} with w {w} has "
            f"{expected}: give a gradient of that shape"
        )
