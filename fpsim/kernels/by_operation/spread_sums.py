"""Spread sums: rounds of chains of at most 64 summands, sixteen chains side by side.

The additions are the processor's own, seen as in `fpsim.kernels.by_operation.native_sums`: each
chain knows whether it is exact, and whatever else could make a difference is left to the caller.

Where outputs lie side by side in memory, rows of them are added as they stand; elsewhere sixteen
chains are copied into a tile first: where summands lie side by side sixteen numbers of each, which
are transposed, else number by number.

Source    docs/semantics.md §6 (Sums).
"""

from __future__ import annotations

import numpy as np
from numba import njit

from fpsim.kernels.by_operation.native_sums import add_lanes, inexact_lanes, strange_lanes
from fpsim.kernels.compiling import INLINE, compiled
from fpsim.kernels.lanes.memory import (
    copy_item,
    load_few,
    load_float,
    load_word,
    pointer,
    room,
    store_float,
    store_low,
    transpose,
)
from fpsim.kernels.lanes.vectors import (
    U32,
    VECTOR_WIDTH,
    as_bits,
    iota,
    or_lanes,
    select,
    sign_like,
    splat,
)

__all__ = ["FEWEST_COLUMNS", "PART", "spread_sums"]

#: Summands of a part, at most; numbers of sixteen such parts.
PART = 64
_TILE = PART * VECTOR_WIDTH

#: Outputs side by side from which on rows of them are added as they stand.
FEWEST_COLUMNS = 4

#: Outputs whose sums so far stay in the first cache, and so many that they stay in registers.
_COLUMNS, _FEW_COLUMNS = 512, 64

_MAGNITUDE = 0x7FFFFFFF


@njit(**INLINE)
def _offset(index, extents, steps):
    """Where the element with this number (C order) lies, from the first one."""
    offset = 0
    for axis in range(extents.shape[0] - 1, 0, -1):
        offset += index % extents[axis] * steps[axis]
        index //= extents[axis]
    return offset + index * steps[0]


@njit(**INLINE)
def _run(first, n, extents):
    """How many of n summands from number `first` on lie one step from each other."""
    inner = extents[extents.shape[0] - 1]
    return min(inner - first % inner, n) if extents.shape[0] > 1 else n


@njit(**INLINE)
def _copy_chain(tile, lane, data, base, first, n, extents, steps):
    """One lane of a tile = n summands from number `first` on."""
    k, step = 0, steps[steps.shape[0] - 1]
    while k < n:
        begin = base + _offset(first + k, extents, steps)
        run = _run(first + k, n - k, extents)
        for i in range(run):
            copy_item(tile, (k + i) * VECTOR_WIDTH + lane, data, begin + i * step)
        k += run


@njit(**INLINE)
def _numbers(data, at, squared, none):
    """Sixteen numbers, or their squares."""
    x = load_float(data, at, none)
    return x * x if squared else x


@njit(**INLINE)
def _few_numbers(data, at, few, size, squared, none):
    """`few` numbers, or their squares; beside them is whatever memory has, or zeros at its end."""
    beyond = at + VECTOR_WIDTH > size
    x = load_few(data, at, few, none) if beyond else load_float(data, at, none)
    return x * x if squared else x


@njit(**INLINE)
def _note(marks, at, lost):
    """Add to the marks of sixteen outputs in a row which of them are inexact."""
    store_low(marks, at, load_word(marks, at, lost) | inexact_lanes(lost))


@njit(**INLINE)
def _copy_chains(tile, data, c, free, reduced, plan):
    """The lanes of a tile from chain c on, number by number."""
    outputs, n, parts, length, by_output = plan
    for lane in range(VECTOR_WIDTH):
        m = 0
        if c + lane < outputs * parts:
            output, part = _output_and_part(c + lane, outputs, parts, by_output)
            m = min(length, n - part * length)
            base = _offset(output, *free)
            _copy_chain(tile, lane, data, base, part * length, m, *reduced)
        for k in range(m, length):  # -0 changes no sum
            tile[k * VECTOR_WIDTH + lane] = np.float32(-0.0)


@njit(**INLINE)
def _transpose_chains(tile, data, c, free, plan, none):
    """The lanes of a tile from chain c on, whose summands lie side by side."""
    outputs, n, parts, length, by_output = plan
    for lane in range(VECTOR_WIDTH):
        m, begin = 0, 0
        if c + lane < outputs * parts:
            output, part = _output_and_part(c + lane, outputs, parts, by_output)
            m = min(length, n - part * length)
            begin = _offset(output, *free) + part * length
        for k in range(0, length, VECTOR_WIDTH):
            at, few = (k + lane) * VECTOR_WIDTH, max(0, m - k)
            if few >= VECTOR_WIDTH:
                store_float(tile, at, as_bits(load_float(data, begin + k, none)))
                continue
            x = as_bits(load_few(data, begin + k, few, none))
            store_float(tile, at, select(iota(none) < few, x, sign_like(none)))  # -0 as above
    for k in range(0, length, VECTOR_WIDTH):
        transpose(tile, k * VECTOR_WIDTH, none)


@njit(**INLINE)
def _tiles(data, free, reduced, plan, squared, sums, marks, rooms):
    """A round through a tile: chain c is part c mod parts of an output, or the other way round."""
    outputs, _, parts, length, by_output = plan
    tile, few_marks = rooms
    none = splat(np.uint32(0), U32)
    strange, chains = none, outputs * parts
    are_side_by_side = reduced[0].shape[0] == 1 and reduced[1][0] == 1
    for c in range(0, chains, VECTOR_WIDTH):
        if are_side_by_side:
            _transpose_chains(tile, data, c, free, plan, none)
        else:
            _copy_chains(tile, data, c, free, reduced, plan)
        s = _numbers(tile, 0, squared, none)
        lost, least = none, (as_bits(s) & _MAGNITUDE) - 1
        for k in range(1, length):
            x = _numbers(tile, k * VECTOR_WIDTH, squared, none)
            s, lost, least = add_lanes(s, x, lost, least)
        strange = strange | strange_lanes(s, lost, least)
        store_float(sums, c, as_bits(s))
        if parts == 1:
            _note(marks, c, lost)
            continue
        store_low(few_marks, 0, inexact_lanes(lost))
        for lane in range(min(VECTOR_WIDTH, chains - c)):
            output, _ = _output_and_part(c + lane, outputs, parts, by_output)
            marks[output] |= few_marks[lane]
    return strange


@njit(**INLINE)
def _output_and_part(chain, outputs, parts, by_output):
    if parts == 1:
        return chain, 0
    if by_output:
        return chain // parts, chain % parts
    return chain % outputs, chain // outputs


@njit(**INLINE)
def _columns(data, size, free, reduced, plan, squared, sums, marks, rooms):
    """A round where outputs lie side by side: chain c is part c div outputs of an output."""
    outputs, n, parts, length, _ = plan
    none = splat(np.uint32(0), U32)
    strange, width = none, free[0][free[0].shape[0] - 1]
    few, step = min(width, VECTOR_WIDTH), reduced[1][reduced[1].shape[0] - 1]
    store_float(rooms[0], 0, ~none)
    mask = as_bits(load_few(rooms[0], 0, few, none))
    for part in range(parts):
        first, last = part * length, min((part + 1) * length, n)
        for output in range(0, outputs, width):
            base, end = _offset(output, *free), part * outputs + output
            if width > _FEW_COLUMNS:
                strange = strange | _many_columns(
                    data, base, width, first, last, reduced, squared, sums, marks, end, output,
                    rooms, none,
                )
                continue
            for column in range(0, width, VECTOR_WIDTH):
                # The last sixteen may have been summed in part already, to the same sums.
                left = min(column, width - few)
                at = base + left + _offset(first, *reduced)
                s = _few_numbers(data, at, few, size, squared, none)
                lost, least = none, (as_bits(s) & _MAGNITUDE) - 1
                k = first + 1
                while k < last:
                    at, run = base + left + _offset(k, *reduced), _run(k, last - k, reduced[0])
                    inside = run if at + max(0, run * step) + VECTOR_WIDTH <= size else 0
                    for i in range(inside):
                        x = _numbers(data, at + i * step, squared, none)
                        s, lost, least = add_lanes(s, x, lost, least)
                    for i in range(inside, run):
                        x = _few_numbers(data, at + i * step, few, size, squared, none)
                        s, lost, least = add_lanes(s, x, lost, least)
                    k += run
                strange = strange | (strange_lanes(s, lost, least) & mask)
                store_float(sums, end + left, as_bits(s))  # sums beside it come later
                _note(marks, output + left, lost & mask)
    return strange


@njit(**INLINE)
def _many_columns(
    data, base, width, first, last, reduced, squared, sums, marks, end, output, rooms, none
):
    """The chains of a part of outputs in a row, row by row of summands, as memory has them."""
    so_far, losses, leasts = rooms
    strange = none
    for column in range(0, width, _COLUMNS):
        span = min(_COLUMNS, width - column)
        # The last sixteen may have been summed in part already, to the same sums.
        begin, rest = base + column, span - VECTOR_WIDTH
        at = begin + _offset(first, *reduced)
        for i in range(0, span, VECTOR_WIDTH):
            s = _numbers(data, at + min(i, rest), squared, none)
            store_float(so_far, i, as_bits(s))
            store_float(losses, i, none)
            store_float(leasts, i, (as_bits(s) & _MAGNITUDE) - 1)
        for k in range(first + 1, last):
            at = begin + _offset(k, *reduced)
            for i in range(0, span, VECTOR_WIDTH):
                x = _numbers(data, at + min(i, rest), squared, none)
                s, lost, least = add_lanes(
                    load_float(so_far, i, none), x, as_bits(load_float(losses, i, none)),
                    as_bits(load_float(leasts, i, none)),
                )
                store_float(so_far, i, as_bits(s))
                store_float(losses, i, lost)
                store_float(leasts, i, least)
        for i in range(0, span, VECTOR_WIDTH):
            s, lost = load_float(so_far, i, none), as_bits(load_float(losses, i, none))
            strange = strange | strange_lanes(s, lost, as_bits(load_float(leasts, i, none)))
            store_float(sums, end + column + min(i, rest), as_bits(s))
            _note(marks, output + column + min(i, rest), lost)
    return strange


@njit(**INLINE)
def _line(extent, step):
    """One axis."""
    extents, steps = np.empty(1, np.int64), np.empty(1, np.int64)
    extents[0], steps[0] = extent, step
    return extents, steps


@compiled
def spread_sums(source, free, reduced, plan, squared, sums, inexact):
    """Sums of summands in C order, spread: parts, and the sums of the parts, until one is left.

    source    array that begins with the first element; its size does not matter.
    free, reduced    extents and steps of the axes of the outputs, and of the summands, in C order.
    plan      outputs; summands; whether FEWEST_COLUMNS outputs or more lie side by side (the last
              of `free` has step 1); whether the parts of an output lie nearer than outputs do;
              numbers in memory from the first element on, up to the last.
    squared   sums of squares, which must be numbers of binary32.
    sums      room for the chains of all rounds and sixteen more of each; the last are the result.
    inexact   zeros, sixteen more than outputs; 1 where a sum is inexact afterwards.
    Returns where the result begins in sums; a negative number where these are not the sums.
    """
    outputs, n, by_columns, by_output, size = plan
    data, room_left = pointer(source), sums
    tile, few_marks = room(sums, _TILE), room(inexact, VECTOR_WIDTH)
    rooms = room(sums, _COLUMNS), room(sums, _COLUMNS), room(sums, _COLUMNS)
    marks, begin = pointer(inexact), 0
    while True:
        parts = -(-n // PART)
        length = -(-n // parts)
        numbers = outputs, n, parts, length, by_output
        chains = pointer(room_left)
        if by_columns:
            strange = _columns(data, size, free, reduced, numbers, squared, chains, marks, rooms)
        else:
            strange = _tiles(
                data, free, reduced, numbers, squared, chains, marks, (tile, few_marks)
            )
        if or_lanes(strange):
            return -1
        if parts == 1:
            return begin
        data, squared, n = chains, False, parts
        size = outputs * parts + VECTOR_WIDTH
        begin += size
        room_left = sums[begin:]
        by_output = by_output and not by_columns
        by_columns = not by_output and outputs >= FEWEST_COLUMNS
        free = _line(outputs, parts if by_output else 1)
        reduced = _line(parts, 1 if by_output else outputs)
