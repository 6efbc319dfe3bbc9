"""Sums of binary64 whose summands are spread over parts, round after round, in one call.

Source    docs/semantics.md §6 (Sums).
"""

from __future__ import annotations

import numpy as np
from numba import njit

from fpsim.kernels.by_operation.spread_sums import PART
from fpsim.kernels.compiling import INLINE, compiled

__all__ = ["add_spread", "room_for_parts", "spread_total"]


@njit(**INLINE)
def _parts_of(n):
    """Summands of a part of n, and how many parts there are; the last one may have fewer."""
    length = -(-n // -(-n // PART))
    return length, -(-n // length)


@njit(**INLINE)
def room_for_parts(n):
    """Room for the sums of the parts of n summands."""
    return np.empty(-(-n // PART))


@njit(**INLINE)
def _add_parts(source, n, room):
    """A round: the sums of parts, in room, which may be the source; how many they are."""
    length, parts = _parts_of(n)
    for part in range(parts):
        start = part * length
        total = source[start]
        for k in range(start + 1, min(start + length, n)):
            total += source[k]
        room[part] = total
    return parts


@njit(**INLINE)
def spread_total(values, room):
    """The sum of a flat array of at least one number."""
    n = _add_parts(values, values.shape[0], room)
    while n > 1:
        n = _add_parts(room, n, room)
    return room[0]


@njit(**INLINE)
def _add_rows(source, n, room):
    """A round of `_add_parts` for each column."""
    length, parts = _parts_of(n)
    for part in range(parts):
        start = part * length
        for column in range(room.shape[1]):
            room[part, column] = source[start, column]
        for k in range(start + 1, min(start + length, n)):
            for column in range(room.shape[1]):
                room[part, column] += source[k, column]
    return parts


@compiled
def add_spread(planes, sums):
    """sums = those of planes over the second of three axes, which has at least one number."""
    outer, n, inner = planes.shape
    if inner == 1:
        room = room_for_parts(n)
        for i in range(outer):
            sums[i, 0] = spread_total(planes[i, :, 0], room)
        return
    rows = np.empty((-(-n // PART), inner))
    for i in range(outer):
        parts = _add_rows(planes[i], n, rows)
        while parts > 1:
            parts = _add_rows(rows, parts, rows)
        sums[i] = rows[0]
