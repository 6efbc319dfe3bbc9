"""A few weighted neighbours for each output: interpolation, uneven averages, their gradients.

Each axis has a matrix of weights; its entries are constants in binary32. An output is the sum of
its weighted neighbours, axis after axis and in order of index, in binary32, and rounded once at the
end. Gradients use the transposed matrices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim.array import Array
from fpsim.records.formats import BINARY32, Format
from ipu.machine.device import Device
from ipu.ops.primitive import OperationCost, Primitive
from ipu.ops.rules import Saved

__all__ = ["resample"]

Weights = NDArray[Any]


def _resample(
    device: Device, x: Array, *, weights: Sequence[Weights], first: int | None = None,
    to: Format | None = None,
) -> tuple[Array, Saved]:
    wide = device.cast(x, BINARY32)
    for axis, matrix in enumerate(weights, _first(x, weights, first)):
        wide = _along(device, wide, matrix, axis)
    return device.cast(wide, to or x.format), (x.format,)


def _resample_x(
    device: Device, gradient: Array, saved: Saved, *, weights: Sequence[Weights],
    first: int | None = None, to: Format | None = None,
) -> Array:
    turned = [matrix.T for matrix in weights]
    return _resample(device, gradient, weights=turned, first=first, to=to or saved[0])[0]


def _first(x: Array, weights: Sequence[Weights], first: int | None) -> int:
    return x.ndim - len(weights) if first is None else first


def _along(device: Device, x: Array, weights: Weights, axis: int) -> Array:
    """Sums of weighted neighbours along an axis, in order of index."""
    used = weights != 0
    turns = max(int(used.sum(axis=1).max(initial=0)), 1)
    order = np.argsort(~used, axis=1, kind="stable")
    total: Array | None = None
    for turn in range(turns):
        at = order[:, turn]
        shares = np.take_along_axis(weights, at[:, None], 1)[:, 0]
        term = x.like(np.take(x.carrier, at, axis))
        shape = [len(at) if a == axis else 1 for a in range(x.ndim)]
        if not np.isin(shares, (0.0, 1.0)).all():
            factor = device.from_host(shares.reshape(shape), BINARY32)
            term = device.multiply(term, factor)
        if not (shares != 0).all():
            reached = np.broadcast_to((shares != 0).reshape(shape), term.shape)
            term = device.select(reached, term)
        total = term if total is None else device.add(total, term)
    assert total is not None
    return total


def _cost(arrays: Sequence[Array], output: Array) -> OperationCost:
    """A result for each element of the output; how many neighbours it has is not counted."""
    return OperationCost(results=output.size)


#: x with some of its axes resampled by `weights`, matrices (outputs, inputs); `first` of these
#: axes, which by default are the last; `to`: the result's format.
resample = Primitive(
    "resample", _resample, (_resample_x,), cost=_cost,
    rounding="each weighted sum in binary32, once at the end",
    gradient="each weighted sum in binary32, once at the end",
    source="docs/semantics.md §6: sums inside are binary32",
)
