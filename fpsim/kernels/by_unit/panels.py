"""Operands as the loop of tiles reads them: values, and exponents in the place of the field.

A zero has an exponent so low that it never takes part in the largest one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from fpsim.kernels.by_unit.terms import COLUMNS
from fpsim.kernels.compiling import INLINE, compiled
from fpsim.kernels.lanes.memory import (
    copy_item,
    load_float,
    load_word,
    pointer,
    room,
    splat_item,
    store,
    store_float,
)
from fpsim.kernels.lanes.vectors import U32, as_bits, iota, select, splat, umax, width_of

__all__ = ["PLAIN", "Shift", "fill_panels", "fill_table", "write_numbers", "write_zeros"]


class Shift(NamedTuple):
    """How exponents are written: biased, zero apart, none below the smallest of the format."""

    bias: int
    nothing: int
    emin: int
    factor: float  # of the values
    flush: bool  # binary32 subnormals are zero


#: Values alone, as they are.
PLAIN = Shift(0, 0, 0, 1.0, False)


@njit(**INLINE)
def write_numbers(source, i, values, exponents, at, none, shift, wanted):
    """As many numbers as `none` has lanes."""
    magnitude = load_word(source, i, none) & 0x7FFFFFFF
    if wanted[0]:
        value = as_bits(load_float(source, i, none) * shift.factor)
        if shift.flush:
            value = select(magnitude < 0x00800000, none, value)
        store_float(values, at, value)
    if wanted[1]:
        field = umax(magnitude >> 23, none + np.uint64(shift.emin + 127))
        field = field + np.uint64(shift.bias - 127)
        field = select(magnitude != 0, field, none + np.uint64(shift.nothing))
        store(exponents, at, field << (23 if width_of(none) == 32 else 52))


@njit(**INLINE)
def write_zeros(values, exponents, at, none, shift, wanted):
    """As many zeros as `none` has lanes."""
    if wanted[0]:
        store_float(values, at, none)
    if wanted[1]:
        field = none + np.uint64(shift.nothing)
        store(exponents, at, field << (23 if width_of(none) == 32 else 52))


@compiled
def fill_table(codes, begin, end, values, exponents, zero, shift):
    """Numbers begin … end - 1 of binary32 codes (n,) into tables (n and up to 15 more).

    `zero` says how wide the lanes are; an empty table is left alone. begin is a multiple of 16.
    """
    none = splat_item(zero, 0)
    lanes = 512 // width_of(none)
    source, numbers, fields = pointer(codes), pointer(values), pointer(exponents)
    wanted = (values.size > 0, exponents.size > 0)
    last = room(codes, 16)
    for i in range(begin, end, 16):
        if i + 16 <= end:
            for q in range(0, 16, lanes):
                write_numbers(source, i + q, numbers, fields, i + q, none, shift, wanted)
            continue
        for q in range(16):
            copy_item(last, q, source, min(i + q, end - 1))
        for q in range(0, 16, lanes):
            write_numbers(last, q, numbers, fields, i + q, none, shift, wanted)
    return 0


@compiled
def fill_panels(codes, rows, steps, first, last, begin, end, values, exponents, zero, shift):
    """Panels begin … end - 1 of some rows and the columns first … last - 1 of a matrix.

    codes (n,) binary32; element (k, j) of the matrix stands at k * steps[0] + j * steps[1]. Rows of
    number -1 and columns beyond the last are zeros; values and exponents (panels, rows, 16), an
    empty one is left alone.
    """
    none = splat_item(zero, 0)
    lanes = 512 // width_of(none)
    wanted = (values.size > 0, exponents.size > 0)
    depth = rows.shape[0]
    source = pointer(codes)
    panels, fields = pointer(values.reshape(-1)), pointer(exponents.reshape(-1))
    row = room(codes, 16)
    zeros = splat(np.uint32(0), U32)
    for panel in range(begin, end):
        column = first + panel * COLUMNS
        n = min(COLUMNS, last - column)
        within = iota(U32) < np.uint32(n)
        for k in range(depth):
            at = rows[k] * steps[0] + column * steps[1]
            to = (panel * depth + k) * COLUMNS
            side_by_side = rows[k] >= 0 and steps[1] == 1 and at + COLUMNS <= codes.shape[0]
            numbers = source
            if not side_by_side or n < COLUMNS:
                store(row, 0, zeros)
                if side_by_side:
                    store(row, 0, select(within, load_word(source, at, zeros), zeros))
                else:
                    for c in range(n if rows[k] >= 0 else 0):
                        copy_item(row, c, source, at + c * steps[1])
                numbers, at = row, 0
            for q in range(0, COLUMNS, lanes):
                write_numbers(numbers, at + q, panels, fields, to + q, none, shift, wanted)
    return 0
