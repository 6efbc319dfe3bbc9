"""Which additions an order makes of a tile of elements, as steps on slots.

A slot holds one number of each of sixteen rows: an element of the tile, or a partial sum. A step is
target = left + right, left - right or a copy of right; an addition says with which element its
right operand starts, which is its rounding place. Partial sums outlive their tile, so a row of any
length needs the slots of one tile and one for each level of its tree.

Source    docs/semantics.md §2 (places) and §4 (orders); Kahan 1965.
"""

from __future__ import annotations

from numba import njit

from fpsim.kernels.by_operation.rows import TILE
from fpsim.kernels.compiling import INLINE

__all__ = [
    "ADDED", "BLOCKED", "CARRY", "COPIED", "KAHAN", "MOST_STEPS", "N_SLOTS", "PAIRWISE",
    "SEQUENTIAL", "SINGLE", "SUBTRACTED", "TOTAL", "tile_steps",
]

SEQUENTIAL, PAIRWISE, BLOCKED, KAHAN, SINGLE = range(5)

ADDED, SUBTRACTED, COPIED = range(3)

#: Slots behind those of the tile: the sum, Kahan's other sum or that of a block, c, y, t - s, a
#: partial sum on its way up, and those of each level.
TOTAL = TILE
_OTHER, CARRY, _Y, _DIFFERENCE, _RISING, _LEVELS = range(TILE + 1, TILE + 7)
N_SLOTS = _LEVELS + 48

#: Steps of a tile: Kahan's four for each element, and those that are left.
MOST_STEPS = 4 * TILE + 64


@njit(**INLINE)
def _put(steps, count, kind, target, left, right, start):
    """One more step; `start` is the element that its right operand starts with."""
    steps[count, 0], steps[count, 1], steps[count, 2] = kind, target, left
    steps[count, 3], steps[count, 4] = right, start
    return count + 1


@njit(**INLINE)
def _kahan(steps, count, k, j):
    """s and t change places, so that s = t costs nothing; four rounding places an element."""
    s, t = (TOTAL, _OTHER) if j & 1 else (_OTHER, TOTAL)
    start = 4 * j - 3
    count = _put(steps, count, SUBTRACTED, _Y, k, CARRY, start)
    count = _put(steps, count, ADDED, t, s, _Y, start + 1)
    count = _put(steps, count, SUBTRACTED, _DIFFERENCE, t, s, start + 2)
    return _put(steps, count, SUBTRACTED, CARRY, _DIFFERENCE, _Y, start + 3)


@njit(**INLINE)
def _carries(steps, count, k, j):
    """Level by level, as a binary counter of elements carries."""
    right, level = k, 0
    while j >> level & 1:
        left = k - 1 if level == 0 else _LEVELS + level
        target = _RISING if j >> (level + 1) & 1 else _LEVELS + level + 1
        count = _put(steps, count, ADDED, target, left, right, j + 1 - (1 << level))
        right, level = _RISING, level + 1
    return count


@njit(**INLINE)
def _last_carries(steps, count, m, n):
    """The partial sums that are left of n elements, from the smallest on."""
    right = -1
    for level in range(48):
        if n >> level & 1:
            left = m - 1 if level == 0 else _LEVELS + level
            if right < 0:
                right = left
                continue
            count = _put(steps, count, ADDED, _RISING, left, right, n >> level << level)
            right = _RISING
    return _put(steps, count, COPIED, TOTAL, 0, right, 0)


@njit(**INLINE)
def _of_blocks(steps, count, k, j, block):
    """Inside a block; where one begins, the one before it is added to those before that."""
    if j % block:
        return _put(steps, count, ADDED, _OTHER, _OTHER, k, j)
    if j == block:
        count = _put(steps, count, COPIED, TOTAL, 0, _OTHER, 0)
    elif j:
        count = _put(steps, count, ADDED, TOTAL, TOTAL, _OTHER, j - block)
    return _put(steps, count, COPIED, _OTHER, 0, k, 0)


@njit(**INLINE)
def _last(steps, count, order, m, n, block):
    """What follows the last element: the sum goes to `TOTAL`."""
    if order == PAIRWISE:
        return _last_carries(steps, count, m, n)
    if order == KAHAN and n & 1 == 0:
        return _put(steps, count, COPIED, TOTAL, 0, _OTHER, 0)
    if order == BLOCKED:
        if n <= block:
            return _put(steps, count, COPIED, TOTAL, 0, _OTHER, 0)
        return _put(steps, count, ADDED, TOTAL, TOTAL, _OTHER, (n - 1) // block * block)
    return count


@njit(**INLINE)
def tile_steps(steps, order, begin, m, n, block):
    """Steps of elements begin … begin + m - 1 of n, and of what is left behind the last one.

    `SINGLE` is one step of the first and the last element of a tile.
    Returns their number.
    """
    count = 0
    if order == SINGLE:
        return _put(steps, count, ADDED, TOTAL, 0, m - 1, 1)
    for k in range(m):
        j = begin + k
        if order == PAIRWISE:
            count = _carries(steps, count, k, j)
        elif order == BLOCKED:
            count = _of_blocks(steps, count, k, j, block)
        elif j == 0:
            count = _put(steps, count, COPIED, TOTAL, 0, k, 0)
        elif order == KAHAN:
            count = _kahan(steps, count, k, j)
        else:
            count = _put(steps, count, ADDED, TOTAL, TOTAL, k, j)
    return _last(steps, count, order, m, n, block) if begin + m == n else count
