"""Results counted in one pass: zeros, subnormal numbers, flags, exponents."""

from __future__ import annotations

import numpy as np

from fpsim.kernels.compiling import compiled

__all__ = ["TALLIED", "add_tally", "tally_flags", "tally_moves", "tally_numbers", "tally_values"]

#: Elements that are counted in bytes.
_BYTES = 128
#: Flags of IEEE 754.
_FLAGS = 5
#: Numbers of a tally: zeros, subnormals, and each flag.
TALLIED = 2 + _FLAGS

#: Bits of a binary32 number without its sign, and those of infinity.
_MAGNITUDE, _INFINITY, _FRACTION = np.uint32(0x7FFFFFFF), np.uint32(0x7F800000), np.uint32(23)


@compiled
def tally_flags(marks, numbers):
    """numbers[f] = how many marks have bit f."""
    joined = np.uint8(0)
    for mark in marks:
        joined |= mark
    n = marks.shape[0]
    for f in range(_FLAGS):
        total = 0
        if joined >> f & 1:
            for b in range(0, n, _BYTES):
                few = np.uint8(0)
                for mark in marks[b : b + _BYTES]:
                    few = np.uint8(few + np.uint8(np.uint8(mark >> f) & np.uint8(1)))
                total += few
        numbers[f] = total


@compiled
def tally_numbers(values, smallest):
    """How many values are zero, and how many of the others are below the smallest."""
    small = zeros = 0
    for b in range(0, values.shape[0], _BYTES):
        part = values[b : b + _BYTES]
        few = none = np.uint8(0)
        for i in range(part.shape[0]):
            few = np.uint8(few + np.uint8(abs(part[i]) < smallest))
            none = np.uint8(none + np.uint8(part[i] == np.float32(0)))
        small += few
        zeros += none
    return zeros, small - zeros


@compiled
def add_tally(values, marks, smallest, few, tally):
    """Add to a tally: zeros, other numbers below the smallest, and how many marks have each flag.

    few    room for a number of each flag.
    """
    zeros, subnormals = tally_numbers(values, smallest)
    tally_flags(marks, few)
    tally[0] += zeros
    tally[1] += subnormals
    for f in range(_FLAGS):
        tally[2 + f] += few[f]


@compiled
def tally_values(bits, smallest, first, stride, fields):
    """Zeros, other magnitudes below the bits `smallest`, and the bits of the largest magnitude.

    fields[e] += 1 for each element i with exponent field e of those where first + i is a multiple
    of the stride. The bits are of binary32 numbers; the largest magnitude is returned twice, of all
    and of those that are no NaN.
    """
    zeros = small = most = np.uint32(0)
    n = bits.shape[0]
    for i in range(n):
        magnitude = bits[i] & _MAGNITUDE
        zeros = np.uint32(zeros + np.uint32(magnitude == np.uint32(0)))
        small = np.uint32(small + np.uint32(magnitude < smallest))
        most = max(most, magnitude)
    number = most
    if most > _INFINITY:
        number = np.uint32(0)
        for i in range(n):
            magnitude = bits[i] & _MAGNITUDE
            number = max(number, np.uint32(0) if magnitude > _INFINITY else magnitude)
    for i in range((stride - first % stride) % stride, n, stride):
        fields[(bits[i] & _MAGNITUDE) >> _FRACTION] += 1
    return np.int64(zeros), np.int64(small) - np.int64(zeros), np.int64(most), np.int64(number)


@compiled
def tally_moves(before, terms, after, least, digits, sizes):
    """Terms that are numbers other than zero, and those that leave what they are added to.

    The arrays are bits of binary32 numbers. sizes[r + e] += 1 for each finite normal term of
    2**e units in the last place of what was before, with r in the middle; others count at the ends.

    least     exponent field of the format's smallest normal number.
    digits    of the format after the first one.
    """
    moves = swallowed = 0
    reach = (sizes.shape[0] - 1) // 2
    for i in range(terms.shape[0]):
        term = terms[i] & _MAGNITUDE
        if term == 0 or term > _INFINITY:
            continue
        moves += 1
        x, y = before[i], after[i]
        if x == y:
            swallowed += (x & _MAGNITUDE) <= _INFINITY
        else:
            swallowed += (x | y) & _MAGNITUDE == 0  # zeros of both signs
        if term >= np.uint32(1) << _FRACTION and term < _INFINITY:
            unit = max(np.int64((x & _MAGNITUDE) >> _FRACTION), least)
            size = np.int64(term >> _FRACTION) - unit + digits
            sizes[reach + min(max(size, -reach), reach)] += 1
    return moves, swallowed
