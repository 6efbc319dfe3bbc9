"""Fake quantisation: numbers on a grid of 2**num_bits values between two limits, and its gradient.

TensorFlow has one node for it. Its kernel is a row of elementary operations, and the machine rounds
each of them, the limits' first: they are moved until 0 is a value of the grid.

Source    tensorflow 2.21, core/kernels/fake_quant_ops_functor.h: the operations and their order,
          inferred from its results; in binary32 the values are the same bits.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fpsim.array import Array
from ipu.frontends.tensorflow.engine.values import as_read
from ipu.frontends.tensorflow.kernels.reductions import dropped
from ipu.frontends.tensorflow.kernels.table import Run, Site, kernel

__all__: list[str] = []

_ARGS, _VARS, _CHANNELS = (
    f"FakeQuantWithMinMax{limits}" for limits in ("Args", "Vars", "VarsPerChannel")
)


class _Grid(NamedTuple):
    """The limits, which are values of the grid, and the distance of its values."""

    low: Array
    high: Array
    scale: Array


def _floor(x: Array) -> Array:
    return x.like(np.floor(x.carrier))


def _limits(site: Site, rest: tuple[Array, ...]) -> tuple[Array, Array]:
    """The limits that a node names, or gets."""
    if site.node.type.startswith(_ARGS):
        return site.constant(site.attr("min")), site.constant(site.attr("max"))
    low, high = rest
    return low, high


def _grid(site: Site, low: Array, high: Array) -> _Grid:
    """The grid of a node: limits are moved by less than its distance, so that 0 is on it."""
    device = site.device
    first = site.constant(float(site.attr("narrow_range")))
    last = site.constant(2.0 ** site.attr("num_bits") - 1)
    scale = device.divide(device.subtract(high, low), device.subtract(last, first))
    zero = device.subtract(first, device.divide(low, scale))
    nearest = np.floor(np.float64(zero.carrier) + 0.5)  # as std::round of what is not negative
    inside = np.clip(nearest, np.float64(first.carrier), np.float64(last.carrier))
    zero = zero.like(inside.astype(zero.carrier.dtype))
    least, most = (device.multiply(device.subtract(end, zero), scale) for end in (first, last))
    return _Grid(least, most, scale)


@kernel(_ARGS, _VARS, _CHANNELS,
        rounding="each operation: the limits' on a grid with 0, x - low, 1 / scale, their product, "
                 "- zero, + ½, the product with scale")  # fmt: skip
def _quantize(site: Site) -> Run:
    device = site.device

    def run(x: Array, *rest: Array) -> Array:
        grid = _grid(site, *_limits(site, rest))
        half, inverse = site.constant(0.5), device.divide(site.constant(1.0), grid.scale)
        least = device.maximum(device.negative(x), device.negative(grid.high))
        clamped = device.maximum(device.negative(least), grid.low)
        shifted = device.multiply(device.subtract(clamped, grid.low), inverse)
        zero = device.multiply(device.negative(grid.low), inverse)
        zero = _floor(device.add(zero, half))
        number = _floor(device.add(device.subtract(shifted, zero), half))
        return device.multiply(number, grid.scale)

    return run


def _inside(site: Site, x: Array, grid: _Grid) -> tuple[Any, Any]:
    """Where x is below and above the grid."""
    values = as_read(site.device, x)
    return values < as_read(site.device, grid.low), values > as_read(site.device, grid.high)


@kernel(f"{_ARGS}Gradient", rounding="that of the limits; the gradient or 0")
def _gradient(site: Site) -> Run:
    def run(gradient: Array, x: Array) -> Array:
        below, above = _inside(site, x, _grid(site, *_limits(site, ())))
        return site.device.select(~(below | above), gradient)

    return run


@kernel(f"{_VARS}Gradient", f"{_CHANNELS}Gradient",
        rounding="that of the limits; the gradient or 0; its sums over what is outside in binary32 "
                 "spread over parts, once at the end")  # fmt: skip
def _gradients(site: Site) -> Run:
    device = site.device

    def run(gradient: Array, x: Array, low: Array, high: Array) -> tuple[Array, ...]:
        below, above = _inside(site, x, _grid(site, low, high))
        axes = tuple(range(x.ndim - low.ndim))
        sums = [
            dropped(gradient, device.reduce_sum(device.select(where, gradient), axes), axes)
            if axes else device.select(where, gradient)
            for where in (below, above)
        ]  # fmt: skip
        return device.select(~(below | above), gradient), *sums

    return run
