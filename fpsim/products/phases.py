"""The gradient to the input of a convolution with strides, without the products by zeros.

It is a convolution of the gradient spread by zeros. Outputs that lie a stride apart are one phase:
they see the same terms of the kernel, and all others meet zeros. A pass of zeros leaves the partial
as it is on most units, so each phase is a small convolution of the gradient as it lies in memory,
and the last rounding comes over all outputs with the random bits of their places. Where phases
have as many outputs each, their windows lie in larger ones that all have in common, so an image is
laid out once for all of them.

Source    docs/semantics.md §5 (orders); the condition is derived at `UnitSettings.skips_zeros`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fpsim.products.by_unit.unit_settings import UnitSettings
from fpsim.records.geometry import Geometry, Pair
from fpsim.records.types import Carrier

__all__ = ["ConvolutionPhase", "common_windows", "phases", "zeros_do_not_matter"]


class ConvolutionPhase(NamedTuple):
    """Outputs that see the same terms of the kernel.

    outputs    where they stand, down and across.
    terms      the part of the kernel that meets no zeros, down and across.
    geometry   their convolution over what is not spread; None where they meet zeros alone.
    """

    outputs: tuple[slice, slice]
    terms: tuple[slice, slice]
    geometry: Geometry | None


@lru_cache(maxsize=64)
def phases(spread: Geometry) -> tuple[ConvolutionPhase, ...]:
    """The phases of a convolution of stride 1 over an input spread by zeros.

    >>> stride2 = Geometry((2, 2), (3, 3), (1, 1), (2, 2), (4, 4), spacing=(2, 2))
    >>> [phase.geometry.kernel for phase in phases(stride2)]
    [(2, 2), (2, 1), (1, 2), (1, 1)]
    """
    return tuple(_phases(spread))


def _phases(spread: Geometry) -> Iterator[ConvolutionPhase]:
    down, across = (list(_axis(spread, axis)) for axis in (0, 1))
    for rows, top, kernel_rows, height, lines in down:
        for columns, left, kernel_columns, width, line in across:
            geometry = replace(
                spread, kernel=(height, width), before=(top, left), output=(lines, line),
                spacing=(1, 1),
            )
            yield ConvolutionPhase(
                (rows, columns), (kernel_rows, kernel_columns),
                geometry if height and width else None,
            )


@lru_cache(maxsize=64)
def common_windows(spread: Geometry) -> tuple[Geometry, tuple[Pair, ...]] | None:
    """The convolution whose windows hold those of every phase, and where each begins in them.

    Phases that meet zeros alone are left out. None where phases differ in their outputs.

    >>> stride2 = Geometry((2, 2), (3, 3), (1, 1), (2, 2), (4, 4), spacing=(2, 2))
    >>> windows, corners = common_windows(stride2)
    >>> windows.kernel, windows.before, corners
    ((2, 2), (1, 1), ((0, 0), (0, 1), (1, 0), (1, 1)))
    """
    shapes = [phase.geometry for phase in phases(spread) if phase.geometry is not None]
    if len({shape.output for shape in shapes}) != 1:
        return None
    top, left = (max(shape.before[axis] for shape in shapes) for axis in (0, 1))
    corners = tuple((top - shape.before[0], left - shape.before[1]) for shape in shapes)
    height, width = (
        max(
            corner[axis] + shape.kernel[axis] for corner, shape in zip(corners, shapes, strict=True)
        )
        for axis in (0, 1)
    )
    return replace(shapes[0], kernel=(height, width), before=(top, left)), corners


def _axis(spread: Geometry, axis: int) -> Iterator[tuple[slice, int, slice, int, int]]:
    """Outputs, zeros before the input, terms, how many terms and outputs, of each phase."""
    step, kernel, before = (pair[axis] for pair in (spread.spacing, spread.kernel, spread.before))
    for first in range(min(step, spread.output[axis])):
        term = (before - first) % step
        yield (
            slice(first, None, step), (before - first - term) // step, slice(term, None, step),
            len(range(term, kernel, step)), len(range(first, spread.output[axis], step)),
        )


def zeros_do_not_matter(settings: UnitSettings, spacing: Pair, kernels: Carrier) -> bool:
    """Whether the products by the zeros between the terms of the input may be left out.

    An infinity of the kernel makes a NaN of its zeros.
    """
    return spacing != (1, 1) and settings.skips_zeros and bool(np.isfinite(kernels).all())
