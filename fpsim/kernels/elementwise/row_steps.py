"""Steps on rows in one call: rounded operations, sums and largest numbers of rows, functions.

All arrays are rows of one length, numbers of rows, or columns that every row meets. Some rows at a
time pass through all steps, so that the values between them stay in the caches. Each step runs in
the kernel that was compiled for it alone, called by its address: what comes out is what the steps
give one after the other. A step that meets what its kernel leaves to others (a NaN, a function in
doubt, a sum that the processor would round in another way) ends the call without a result.

Source    docs/semantics.md §2 (bits of element i of operation n depend on seed, n and i alone).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, njit
from numba.core import cgutils, types
from numba.extending import intrinsic

from fpsim.kernels.compiling import INLINE, compiled
from fpsim.kernels.elementwise.enclosures import IN_DOUBT
from fpsim.kernels.elementwise.tally import add_tally

__all__ = [
    "CHECK", "FUNCTION", "LARGEST", "OPERATION", "POSITIVE", "ROUND", "SPREAD", "SQUARES", "SUM",
    "TABLE", "WIDE_TABLE", "run_rows",
]

#: What a step is: an operation of one kernel; a conversion of what a function left in binary64; a
#: function; a sum of each row, or of its squares; the largest number of each; the number of each
#: row written out; nothing but a look for NaNs; results read from a table of codes; the same in
#: binary64, to be converted; numbers that are zero where they are not positive.
(
    OPERATION, ROUND, FUNCTION, SUM, SQUARES, LARGEST, SPREAD, CHECK, TABLE, WIDE_TABLE, POSITIVE,
) = range(11)


@intrinsic
def _at(typingctx: Any, address: Any, like: Any) -> Any:
    """An address as that of numbers of the type of `like`."""
    result = types.CPointer(like)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], context.get_value_type(sig.return_type))

    return result(types.int64, like), codegen


@intrinsic
def _call(typingctx: Any, address: Any, arguments: Any) -> Any:
    """The int64 that the kernel at an address gives for a tuple of arguments."""
    kinds = list(arguments)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind = context.call_conv.get_function_type(types.int64, kinds)
        callee = builder.inttoptr(args[0], ir.PointerType(kind))
        values = cgutils.unpack_tuple(builder, args[1])
        _, result = context.call_conv.call_function(builder, callee, types.int64, kinds, values)
        return result

    return types.int64(types.int64, arguments), codegen


@njit(**INLINE)
def _block(slot, first, m, memory):
    """m numbers of an operand from row `first` on: of an array, of a room, or a constant."""
    arrays, steps_of, rooms, constants = memory
    n_arrays, n_rooms = arrays.shape[0], rooms.shape[0]
    if slot < n_arrays:
        at = arrays[slot] + 4 * first * steps_of[slot]
        return carray(_at(at, np.float32(0)), (m,))
    if slot < n_arrays + n_rooms:
        return rooms[slot - n_arrays, :m]
    return constants[slot - n_arrays - n_rooms, :m]


@njit(**INLINE)
def _has_nan(x):
    nans = 0
    for i in range(x.shape[0]):
        nans |= x[i] != x[i]
    return nans != 0


@njit(**INLINE)
def _spread(numbers, out):
    """Each number as often as it fits."""
    times = out.shape[0] // numbers.shape[0]
    for i in range(numbers.shape[0]):
        row, number = out[i * times : (i + 1) * times], numbers[i]
        for k in range(times):
            row[k] = number


@njit(**INLINE)
def _largest(x, out, least):
    """The largest of each row, -0 < +0; magnitudes below the bits `least` are zeros."""
    n = x.shape[0] // out.shape[0]
    bits, results = x.view(np.int32), out.view(np.int32)
    for i in range(out.shape[0]):
        most = np.int32(-0x80000000)
        for k in range(i * n, (i + 1) * n):
            b = bits[k]
            if (b & np.int32(0x7FFFFFFF)) < least:
                b &= np.int32(-0x80000000)
            b ^= (b >> np.int32(31)) & np.int32(0x7FFFFFFF)
            most = max(most, b)
        results[i] = most ^ ((most >> np.int32(31)) & np.int32(0x7FFFFFFF))


@njit(**INLINE)
def _edges(x, out, reals):
    """Values where the function's kernel has none; False where they are no plain numbers."""
    least, end, low, high, is_odd = reals[0], reals[1], reals[2], reals[3], reals[4] != 0.0
    for i in range(x.shape[0]):
        v = np.float64(x[i])
        if abs(v) < least:
            v = np.copysign(0.0, v)
        if v == np.inf:
            out[i] = high
        elif v == -np.inf and end == -np.inf:
            out[i] = low
        elif v != v or v <= end:
            return False
        elif is_odd and v == 0.0:
            out[i] = v
    return True


@njit(**INLINE)
def _sum(address, x, squared, rows, columns, rooms, out):
    """The sum of each row; 1 where one is inexact, -1 where these are not the sums."""
    free, reduced, sums, marks = rooms
    by_columns = columns < 0  # never: the numbers of an output lie side by side
    free[0][0] = rows
    marks[:] = 0
    plan = (rows, columns, by_columns, not by_columns, rows * columns)
    at = _call(address, (x, free, reduced, plan, squared, sums, marks))
    if at < 0:
        return -1
    inexact = 0
    for i in range(rows):
        out[i] = sums[at + i]
        inexact |= np.int64(marks[i])
    return inexact


@njit(**INLINE)
def _along(o, kernels, x, out, columns, sums):
    """A step from whole rows to a number of each, or back; its flags, or -1 without a result."""
    steps, words = kernels[0], kernels[3]
    what = steps[o, 0]
    if what == SPREAD:
        _spread(x, out)
        return 0
    if what == LARGEST:
        if _has_nan(x):
            return -1
        _largest(x, out, np.int32(words[o, 0]))
        return 0
    return _sum(steps[o, 1], x, what == SQUARES, out.shape[0], columns, sums, out)


@njit(**INLINE)
def _function(o, kernels, x, wide_room, doubts):
    """A function of all numbers to odd; whether each has a value."""
    m, steps, words, reals = x.shape[0], kernels[0], kernels[3], kernels[4]
    table = carray(_at(steps[o, 8], 0.0), (steps[o, 9],))
    events = _call(steps[o, 1], (
        x, wide_room[:m], doubts[:m], words[o, 0], words[o, 1], reals[o, 0], reals[o, 1], table,
    ))
    return not events & IN_DOUBT and (events == 0 or _edges(x, wide_room, reals[o]))


@njit(**INLINE)
def _look_up(o, kernels, x, out, marks, by_element):
    """Values of all numbers from a table of codes in the type of the result; the marks, joined."""
    steps, shift = kernels[0], np.uint32(kernels[3][o, 0])
    values = carray(_at(steps[o, 8], out[0]), (steps[o, 9],))
    all_marks = carray(_at(steps[o, 10], np.uint8(0)), (steps[o, 9],))
    return _call(steps[o, 1], (
        x.view(np.uint32), shift, values, all_marks, out, marks, by_element,
    ))


@njit(**INLINE)
def _positive(o, kernels, x, out, marks):
    """Numbers from the least one on, +0 for others; -1 where there is a NaN. Nothing is marked."""
    marks[: x.shape[0]] = 0
    return -_call(kernels[0][o, 1], (x, np.float32(kernels[4][o, 0]), out))


@njit(**INLINE)
def _is_within(x, end):
    """Whether all are numbers beyond the end of a function, as far as it has one."""
    outside = 0
    for i in range(x.shape[0]):
        outside |= not (x[i] > end or end == -np.inf) or x[i] != x[i]
    return outside == 0


@njit(**INLINE)
def _operation(o, kernels, x, y, z, out, element_flags, no_words, at, seed):
    """The flags of an operation of one kernel."""
    steps, number = kernels[0], kernels[5][o]
    is_large = at < 0  # never: the blocks stay in the caches
    if steps[o, 2]:
        return _call(steps[o, 1], (
            x, y, z, out, element_flags, no_words, kernels[2][o], at, seed, number, is_large
        ))
    return _call(steps[o, 1], (
        x, y, z, out, element_flags, no_words, kernels[1][o], at, seed, number, is_large
    ))


@njit(**INLINE)
def _step(o, kernels, seed, memory, rooms, first, rows, columns, by_element):
    """Step o on some rows from the first on; its flags, or -1 without a result.

    by_element: operations leave the flags of each element among the doubts.
    """
    steps, (wide_room, doubts, no_words, sums) = kernels[0], rooms
    what, full = steps[o, 0], rows * columns
    if what in (SPREAD, SUM, SQUARES, LARGEST):
        n, m = (rows, full) if what == SPREAD else (full, rows)
        x, out = _block(steps[o, 3], first, n, memory), _block(steps[o, 6], first, m, memory)
        return _along(o, kernels, x, out, columns, sums)
    m, at = (rows, first) if steps[o, 7] else (full, first * columns)
    x = _block(steps[o, 3], first, m, memory)
    if what == CHECK:
        return -1 if _has_nan(x) else 0
    if what == FUNCTION:
        return 0 if _function(o, kernels, x, wide_room, doubts) else -1
    if what == WIDE_TABLE:
        marks = _look_up(o, kernels, x, wide_room[:m], doubts, False)
        return 0 if not marks or _is_within(x, kernels[4][o, 1]) else -1
    out = _block(steps[o, 6], first, m, memory)
    if what == TABLE:
        return _look_up(o, kernels, x, out, doubts, by_element)
    if what == POSITIVE:
        return _positive(o, kernels, x, out, doubts)
    if what == ROUND:
        w = wide_room[:m]
        return _operation(o, kernels, w, w, w, out, doubts, no_words, at, seed)
    # A constant that is not the first operand is one number.
    first_constant = memory[0].shape[0] + memory[2].shape[0]
    y = _block(steps[o, 4], first, 1 if steps[o, 4] >= first_constant else m, memory)
    z = _block(steps[o, 5], first, 1 if steps[o, 5] >= first_constant else m, memory)
    return _operation(o, kernels, x, y, z, out, doubts, no_words, at, seed)


@njit(**INLINE)
def _tally(o, kernels, memory, rooms, first, rows, columns, counting):
    """The results of a step are counted, if those of an operation."""
    smallest, few, tallies = counting
    if smallest[o] < 0:
        return
    steps, (_, doubts, _, sums) = kernels[0], rooms
    m = rows if steps[o, 7] else rows * columns
    marks = sums[3] if steps[o, 0] in (SUM, SQUARES) else doubts
    add_tally(_block(steps[o, 6], first, m, memory), marks[:m], smallest[o], few, tallies[o])


@compiled
def run_rows(kernels, seed, memory, rooms, columns, tile, flags, counting, begin, end):
    """0 where rows begin … end - 1 have passed all steps, and flags[o] |= those of step o; else -1.

    kernels    steps: of each what it is; the address of its kernel; whether the constants of that
               are wide; slots of three operands and of the result; whether it has one number a row;
               of a table that it reads the address, the length and where marks are. Then narrow and
               wide constants of operations, integers and numbers that other kernels are given, and
               the numbers of steps for random bits.
    memory     where the arrays begin; how much further the next row of each is; rooms for values
               between steps; constants. Slots are counted in that order.
    rooms      of numbers of `tile` rows: binary64 values, doubts; words that are none; and those of
               `fpsim.kernels.by_operation.spread_sums`: axes of outputs and summands, sums, marks.
    counting   of each step the smallest normal number of its format, below 0 where it does not
               count, or none at all; room for numbers of flags; tallies of the steps.
    """
    is_counting = counting[0].shape[0] > 0
    for first in range(begin, end, tile):
        rows = min(tile, end - first)
        for o in range(kernels[0].shape[0]):
            raised = _step(o, kernels, seed, memory, rooms, first, rows, columns, is_counting)
            if raised < 0:
                return -1
            flags[o] |= raised
            if is_counting:
                _tally(o, kernels, memory, rooms, first, rows, columns, counting)
    return 0
