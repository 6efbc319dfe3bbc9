"""Adding by index: duplicates are added in binary32 in index order, rounded once.

Source    ASSUMED for all frameworks: the vendor's order depends on the layout of tiles.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from fpsim.array import Array
from fpsim.records.formats import BINARY32
from ipu.machine.device import Device

__all__ = ["add_rows", "multiply_rows"]


def _turns(rows: Any) -> Iterator[Any]:
    """Positions of the values, so that a row comes at most once in a turn, in their order."""
    order = np.argsort(rows, kind="stable")
    ordered = rows[order]
    starts = np.flatnonzero(np.r_[len(rows) > 0, ordered[1:] != ordered[:-1]])
    sizes = np.diff(np.r_[starts, len(rows)]).astype(np.intp)
    rank = np.arange(len(rows)) - np.repeat(starts, sizes)
    for turn in range(int(sizes.max(initial=0))):
        yield order[rank == turn]


def _folded(device: Device, verb: Any, base: Array, rows: Any, values: Array) -> Array:
    total = device.cast(base, BINARY32)
    total = total.like(total.carrier.copy())
    wide = device.cast(values, BINARY32)
    for chosen in _turns(rows):
        at = rows[chosen]
        result = verb(total.like(total.carrier[at]), wide.like(wide.carrier[chosen]))
        total.carrier[at] = result.carrier
    return device.cast(total, base.format)


def add_rows(device: Device, base: Array, rows: Any, values: Array) -> Array:
    """base with each of the values added to its row, duplicates in order of the values.

    Shapes    base (n, …), rows (m,) of integers, values (m, …).
    Rounding  each addition in binary32, then once into the format of base.
    """
    return _folded(device, device.add, base, rows, values)


def multiply_rows(device: Device, base: Array, rows: Any, values: Array) -> Array:
    """base with its rows multiplied by the values; else as `add_rows`."""
    return _folded(device, device.multiply, base, rows, values)
