"""Results counted in one pass: zeros, subnormal numbers, flags, exponents."""

from __future__ import annotations

import numpy as np

from fpsim.kernels.compiling import compiled

__all__ = ["count_fields", "largest_magnitude", "tally_flags", "tally_moves", "tally_numbers"]

#: Elements that are counted in bytes.
_BYTES = 128
#: Flags of IEEE 754.
_FLAGS = 5

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
def count_fields(bits, stride, counts):
    """counts[e] += 1 for each binary32 number of every stride-th with exponent field e.

    Returns the largest exponent field of all that are not NaN.
    """
    n, largest = bits.shape[0], np.uint32(0)
    for i in range(n):
        magnitude = bits[i] & _MAGNITUDE
        largest = max(largest, np.uint32(0) if magnitude > _INFINITY else magnitude)
    for i in range(0, n, stride):
        counts[(bits[i] & _MAGNITUDE) >> _FRACTION] += 1
    return np.int64(largest >> _FRACTION) if largest > 0 else np.int64(-1)


@compiled
def largest_magnitude(bits):
    """Bits of the largest binary32 magnitude; above those of infinity where there is a NaN."""
    largest = np.uint32(0)
    for word in bits:
        largest = max(largest, word & _MAGNITUDE)
    return np.int64(largest)


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
