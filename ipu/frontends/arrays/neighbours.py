"""A few weighted neighbours for each output: interpolation, uneven averages, their gradients.

Each axis has a matrix of weights; its entries are constants in binary32. An output is the sum of
its weighted neighbours, axis after axis and in order of index, in binary32. Gradients use the
transposed matrices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim.array import Array
from fpsim.records.formats import BINARY32
from ipu.machine.device import Device

__all__ = ["Weights", "resample"]

Weights = NDArray[Any]


def resample(device: Device, x: Array, matrices: Sequence[Weights], first: int = 0) -> Array:
    """x with some of its axes resampled, in binary32.

    matrices    for each of the axes, weights (outputs, inputs).
    first       of these axes; by default they are the last.
    """
    first = first or x.ndim - len(matrices)
    wide = device.cast(x, BINARY32)
    for axis, weights in enumerate(matrices, first):
        wide = _along(device, wide, weights, axis)
    return wide


def _along(device: Device, x: Array, weights: Weights, axis: int) -> Array:
    """Sums of weighted neighbours along an axis, in order of index."""
    used = weights != 0
    turns = max(int(used.sum(axis=1).max(initial=0)), 1)
    order = np.argsort(~used, axis=1, kind="stable")
    total: Array | None = None
    for turn in range(turns):
        at = order[:, turn]
        each = np.take_along_axis(weights, at[:, None], 1)[:, 0]
        term = x.like(np.take(x.carrier, at, axis))
        shape = [len(at) if a == axis else 1 for a in range(x.ndim)]
        if not np.isin(each, (0.0, 1.0)).all():
            factor = device.from_host(each.reshape(shape), BINARY32)
            term = device.multiply(term, factor)
        if not (each != 0).all():
            kept = np.broadcast_to((each != 0).reshape(shape), term.shape)
            term = device.select(kept, term)
        total = term if total is None else device.add(total, term)
    assert total is not None
    return total
