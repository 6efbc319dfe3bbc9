"""Sums and products so far, and into rows, in index order by the processor's own binary32.

Each step is an operation of two binary32 numbers, which the processor rounds under the status that
the caller gives (see `native`). A NaN is made canonical after each of them.

Source    docs/semantics.md §6 (orders).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numba import njit

from fpsim.kernels.compiling import INLINE, compiled
from fpsim.kernels.elementwise.special import ADD
from fpsim.kernels.lanes.memory import load_float, pointer, room, store_float, transpose
from fpsim.kernels.lanes.tiles import fetch, keep
from fpsim.kernels.lanes.vectors import (
    LaneKind,
    Lanes,
    as_bits,
    as_float,
    is_nan,
    or_lanes,
    select,
    splat,
)
from fpsim.kernels.rounding.direction import raised, set_modes

__all__ = ["folding_kernel", "running_kernel"]

#: Below so many columns each is one chain; from there on rows are combined, column by column.
_CHAINS = 8
#: From so many chains on, numbers of a chain that lie side by side go through a tile.
_TILED = 5
#: Chains in a tile, and numbers of each: sixteen would not stay in registers of 256 bits.
_LANES = 8
_TILE = _LANES * _LANES
_WORDS, _FLOATS = LaneKind(Lanes("u", 32, _LANES)), LaneKind(Lanes("f", 32, _LANES))


@njit(**INLINE)
def _step(is_sum, x, y, nan, has_nan):
    """One operation: the result, and whether it is a NaN, or one was before."""
    result = x + y if is_sum else x * y
    is_nan = result != result
    return nan if is_nan else result, has_nan | is_nan


@njit(**INLINE)
def _first(chain, n, inner, reverse):
    """Where a chain of n numbers, `inner` apart, begins."""
    at = chain // inner * n * inner + chain % inner
    return at + (n - 1) * inner if reverse else at


@njit(**INLINE)
def _one_chain(is_sum, x, out, at, by, ahead, many, nan, has_nan):
    """Results so far of x[at], x[at + by], …, each `ahead` of its number; whether one is a NaN."""
    total = x[at]
    out[at + ahead] = total
    for _ in range(1, many):
        at += by
        total, has_nan = _step(is_sum, total, x[at], nan, has_nan)
        out[at + ahead] = total
    return has_nan


@njit(**INLINE)
def _four_chains(is_sum, x, out, starts, by, ahead, many, nan, has_nan):
    """The same of four chains at a time: an operation waits for the one before it in its chain."""
    a, b, c, d = starts
    p, q, r, s = x[a], x[b], x[c], x[d]
    out[a + ahead], out[b + ahead], out[c + ahead], out[d + ahead] = p, q, r, s
    for _ in range(1, many):
        a, b, c, d = a + by, b + by, c + by, d + by
        p, has_nan = _step(is_sum, p, x[a], nan, has_nan)
        q, has_nan = _step(is_sum, q, x[b], nan, has_nan)
        r, has_nan = _step(is_sum, r, x[c], nan, has_nan)
        s, has_nan = _step(is_sum, s, x[d], nan, has_nan)
        out[a + ahead], out[b + ahead], out[c + ahead], out[d + ahead] = p, q, r, s
    return has_nan


@njit(**INLINE)
def _chains_in_tile(is_sum, x, out, first, shape, reverse, ahead, nan, tile):
    """Results so far of m chains of n numbers in a row, of `many` each; whether one is a NaN.

    A lane is a chain. Lines of the cache are read and written whole, by way of a tile: one number
    of each chain after the other would be many lines of one set where n is a power of two.
    """
    m, n, many = shape
    none, canonical = splat(np.uint32(0), _WORDS), splat(nan, _FLOATS)
    total, strange = as_float(none), none
    for k in range(0, many, _LANES):
        length = min(_LANES, many - k)
        at, last = first + (n - k - length if reverse else k), (length - 1) * _LANES
        fetch(tile, x, at, n, m, length, _LANES, _LANES, none)
        transpose(tile, 0, none)
        if k == 0:  # numbers that begin are no results: a signalling NaN stays one
            total = load_float(tile, last if reverse else 0, none)
        for i in range(1 if k == 0 else 0, length):
            place = last - i * _LANES if reverse else i * _LANES
            number = load_float(tile, place, none)
            result = total + number if is_sum else total * number
            total = select(is_nan(result), canonical, result)
            strange = strange | select(is_nan(result), ~none, none)
            store_float(tile, place, as_bits(total))
        transpose(tile, 0, none)
        keep(out, tile, at + ahead, n, m, length, _LANES, none)
    return or_lanes(strange) != 0


@njit(**INLINE)
def _chains_in_tiles(is_sum, x, out, shape, reverse, ahead, nan):
    """The same of any number of chains."""
    chains, n, many = shape
    data, results, tile, has_nan = pointer(x), pointer(out), room(x, _TILE), False
    for c in range(0, chains, _LANES):
        few = min(_LANES, chains - c), n, many
        has_nan |= _chains_in_tile(is_sum, data, results, c * n, few, reverse, ahead, nan, tile)
    return has_nan


@njit(**INLINE)
def _rows_of_chains(is_sum, x, out, first, by, ahead, many, inner, nan, has_nan):
    """Results so far of `inner` chains side by side, row by row; whether one is a NaN."""
    before = out[first + ahead : first + ahead + inner]
    row = x[first : first + inner]
    for j in range(inner):
        before[j] = row[j]
    for i in range(1, many):
        at = first + i * by
        row, after = x[at : at + inner], out[at + ahead : at + ahead + inner]
        for j in range(inner):
            after[j], has_nan = _step(is_sum, before[j], row[j], nan, has_nan)
        before = after
    return has_nan


@cache
def running_kernel(operation: int) -> Any:
    """flags = running(x, out, shape, reverse, exclusive, start, status, nan, nan_flags)."""
    # Only numbers are captured, so that another process recognises the kernel.
    IS_SUM, CHAINS, TILED = operation == ADD, _CHAINS, _TILED

    @compiled
    def running(x, out, shape, reverse, exclusive, start, status, nan, nan_flags):
        """out[o, i] = x[o, 0] ∘ … ∘ x[o, i], from the last i if reversed.

        x, out       flat, of this shape: outer, along the axis, inner.
        exclusive    without x[o, i]; out[o, 0] is `start` then.
        nan          what a NaN becomes; one raises nan_flags.
        """
        outer, n, inner = shape
        chains, has_nan, many = outer * inner, False, n - exclusive
        by = -inner if reverse else inner
        ahead = by if exclusive else 0
        set_modes(status)
        if exclusive:
            for chain in range(chains):
                out[_first(chain, n, inner, reverse)] = start
        if many > 0 and inner == 1 and outer >= TILED:
            has_nan = _chains_in_tiles(IS_SUM, x, out, (outer, n, many), reverse, ahead, nan)
        elif many > 0 and inner < CHAINS:
            whole = chains - chains % 4
            for chain in range(0, whole, 4):
                starts = (
                    _first(chain, n, inner, reverse), _first(chain + 1, n, inner, reverse),
                    _first(chain + 2, n, inner, reverse), _first(chain + 3, n, inner, reverse),
                )
                has_nan = _four_chains(IS_SUM, x, out, starts, by, ahead, many, nan, has_nan)
            for chain in range(whole, chains):
                at = _first(chain, n, inner, reverse)
                has_nan = _one_chain(IS_SUM, x, out, at, by, ahead, many, nan, has_nan)
        elif many > 0:
            for o in range(outer):
                at = _first(o * inner, n, inner, reverse)
                has_nan = _rows_of_chains(
                    IS_SUM, x, out, at, by, ahead, many, inner, nan, has_nan
                )
        flags = raised()
        return np.int64(flags | nan_flags) if has_nan else np.int64(flags)

    return running


@cache
def folding_kernel(operation: int) -> Any:
    """flags = folding(total, values, rows, before, status, nan, nan_flags)."""
    IS_SUM = operation == ADD

    @compiled
    def folding(total, values, rows, before, status, nan, nan_flags):
        """total[rows[p]] ∘= values[p] for one p after the other; before[p] is what was there.

        total, values    rows of numbers; before as values, or empty.
        nan              what a NaN becomes; one raises nan_flags.
        """
        has_nan, is_told = False, before.shape[0] > 0
        n, width = values.shape
        set_modes(status)
        for p in range(n):
            at = rows[p]
            old, value = total[at], values[p]
            if is_told:
                for k in range(width):
                    before[p, k] = old[k]
            for k in range(width):
                old[k], has_nan = _step(IS_SUM, old[k], value[k], nan, has_nan)
        flags = raised()
        return np.int64(flags | nan_flags) if has_nan else np.int64(flags)

    return folding
