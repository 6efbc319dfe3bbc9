"""Results counted in one pass: zeros, subnormal numbers, flags, exponents."""

from __future__ import annotations

import numpy as np
from numba import njit

from fpsim.kernels.compiling import INLINE, compiled

__all__ = [
    "PRODUCT", "QUOTIENT", "SUM", "TALLIED", "add_look", "add_tally", "tally_flags", "tally_moves",
    "tally_numbers", "tally_results", "tally_values",
]

#: What terms of sums are: numbers, products or quotients.
SUM, PRODUCT, QUOTIENT = range(3)

#: Elements that are counted in bytes.
_BYTES = 128
#: Elements whose moves are counted in the first-level cache.
_MOVES = 2048
#: Rows of counters.
_ROWS = 4
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
        joined = np.uint8(joined | mark)
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


@njit(**INLINE)
def _magnitude(word):
    """A number without its sign: numba makes 64 bits of the and, which are half as many lanes."""
    return np.uint32(word & _MAGNITUDE)


@njit(**INLINE)
def _extremes(bits):
    """The bits of the smallest and the largest magnitude."""
    least, most = _MAGNITUDE, np.uint32(0)
    for i in range(bits.shape[0]):
        magnitude = _magnitude(bits[i])
        least = magnitude if magnitude < least else least
        most = magnitude if magnitude > most else most
    return least, most


@njit(**INLINE)
def _largest_number(bits, most):
    """The bits of the largest magnitude that is no NaN, where those of the largest are known."""
    if most <= _INFINITY:
        return most
    number = np.uint32(0)
    for i in range(bits.shape[0]):
        magnitude = _magnitude(bits[i])
        number = magnitude if number < magnitude <= _INFINITY else number
    return number


@njit(**INLINE)
def _count_fields(bits, first, stride, fields):
    """fields[e] += 1 for each element i with exponent field e where first + i is a multiple of the
    stride.
    """
    for i in range((stride - first % stride) % stride, bits.shape[0], stride):
        fields[(bits[i] & _MAGNITUDE) >> _FRACTION] += 1


@compiled
def tally_values(bits, first, stride, fields):
    """Zeros, and the bits of the largest magnitude: of all, and of those that are no NaN.

    fields[e] += 1 for each element i with exponent field e of those where first + i is a multiple
    of the stride. The bits are of binary32 numbers.
    """
    least, most = _extremes(bits)
    zeros = np.uint32(0)
    if least == 0:
        for i in range(bits.shape[0]):
            zeros = np.uint32(zeros + np.uint32(_magnitude(bits[i]) == np.uint32(0)))
    _count_fields(bits, first, stride, fields)
    return np.int64(zeros), np.int64(most), np.int64(_largest_number(bits, most))


@njit(**INLINE)
def add_tally(values, marks, smallest, few, tally):
    """Add to a tally: zeros, other numbers below the smallest, and how many marks have each flag.

    The bits of the largest magnitude are returned.

    few    room for a number of each flag.
    """
    least, most = _extremes(values.view(np.uint32))
    if least < np.float32(smallest).view(np.uint32):
        zeros, subnormals = tally_numbers(values, smallest)
        tally[0] += zeros
        tally[1] += subnormals
    tally_flags(marks, few)
    for f in range(_FLAGS):
        tally[2 + f] += few[f]
    return most


@compiled
def tally_results(values, marks, smallest, numbers):
    """numbers = how many values are zero, how many others below the smallest, each flag's marks."""
    numbers[:] = 0
    add_tally(values, marks, smallest, np.empty(_FLAGS, np.int64), numbers)


@njit(**INLINE)
def add_look(bits, most, first, stride, fields, largest):
    """Add to exponents of samples, as `tally_values` does, and to the largest magnitudes."""
    _count_fields(bits, first, stride, fields)
    largest[0] = max(largest[0], np.int64(most))
    largest[1] = max(largest[1], np.int64(_largest_number(bits, most)))


@njit(**INLINE)
def _terms(verb, x, y, factor, out):
    """factor · x, or · x y, or · x / y."""
    for i in range(out.shape[0]):
        term = x[i]
        if verb == PRODUCT:
            term *= y[i]
        elif verb == QUOTIENT:
            term /= y[i]
        out[i] = term * factor


@njit(**INLINE)
def _sizes(before, terms, after, least, digits, reach, bins):
    """Terms that are numbers other than zero, and those that leave what they are added to.

    bins    of each term its size in units in the last place of what was before, with `reach` in the
            middle; behind the others where it is not finite and normal.
    """
    moves = swallowed = np.uint32(0)
    for i in range(bins.shape[0]):
        x, y, term = before[i], after[i], _magnitude(terms[i])
        # One below zero is the largest of all.
        is_move = np.uint32(np.uint32(term - np.uint32(1)) < _INFINITY)
        size_of_x = _magnitude(x)
        is_number = size_of_x <= _INFINITY
        is_zero = _magnitude(np.uint32(x | y)) == np.uint32(0)  # zeros of both signs are equal
        moves = np.uint32(moves + is_move)
        same = np.uint32(((x == y) & is_number) | is_zero)
        swallowed = np.uint32(swallowed + (is_move & same))
        field = np.int32(np.uint32(term >> _FRACTION))
        unit = np.int32(np.uint32(size_of_x >> _FRACTION))
        unit = unit if unit > least else least
        size = np.int32(np.int32(field - unit) + digits)
        size = size if size > -reach else np.int32(-reach)
        place = np.int32((size if size < reach else reach) + reach)
        is_normal = (field > 0) & (field < 255)
        bins[i] = np.uint8(place if is_normal else np.int32(2 * reach + 1))
    return np.int64(moves), np.int64(swallowed)


@njit(**INLINE)
def _add_bins(bins, room):
    """Each bin counts in a row of the room, neighbours in other ones: most bins are alike, and a
    counter that has just been written is read again late.
    """
    whole = bins.shape[0] // _ROWS * _ROWS
    for i in range(0, whole, _ROWS):
        for row in range(_ROWS):
            room[row, bins[i + row]] += 1
    for i in range(whole, bins.shape[0]):
        room[0, bins[i]] += 1


@compiled
def tally_moves(verb, before, x, y, factor, after, least, digits, stride, counted):
    """Terms that are added to numbers: moves, swallowed, and the bits of the largest magnitudes.

    A term is factor times what the verb makes of x and y. A move is a number other than zero; it is
    swallowed where it leaves what it is added to. Magnitudes are those before, and twice those of
    terms and those after, as `tally_values` has them.

    least     exponent field of the format's smallest normal number.
    digits    of the format after the first one.
    stride    of the samples whose exponents are counted.
    counted   sizes: += 1 at r + e for each finite normal term of 2**e units in the last place of
              what was before, with r in the middle; others count at the ends. Exponent fields of
              terms and those after.
    """
    sizes, of_terms, of_after = counted
    reach, least, digits = np.int32((sizes.shape[0] - 1) // 2), np.int32(least), np.int32(digits)
    all_terms, all_bins = np.empty(_MOVES, np.float32), np.empty(_MOVES, np.uint8)
    room = np.zeros((_ROWS, sizes.shape[0] + 1), np.int64)
    moves = swallowed = most_before = np.int64(0)
    most_term = number_term = most_after = number_after = np.int64(0)
    for b in range(0, before.shape[0], _MOVES):
        m = min(_MOVES, before.shape[0] - b)
        terms, bins = all_terms[:m], all_bins[:m]
        _terms(verb, x[b : b + m], y[b : b + m], factor, terms)
        old, new = before[b : b + m].view(np.uint32), after[b : b + m].view(np.uint32)
        n, same = _sizes(old, terms.view(np.uint32), new, least, digits, reach, bins)
        moves, swallowed = moves + n, swallowed + same
        _add_bins(bins, room)
        _, most, number = tally_values(terms.view(np.uint32), b, stride, of_terms)
        most_term, number_term = max(most_term, most), max(number_term, number)
        _, most, number = tally_values(new, b, stride, of_after)
        most_after, number_after = max(most_after, most), max(number_after, number)
        most_before = max(most_before, np.int64(_extremes(old)[1]))
    for row in room:
        for e in range(sizes.shape[0]):
            sizes[e] += row[e]
    return (
        moves, swallowed, most_before, (most_term, number_term), (most_after, number_after)
    )
