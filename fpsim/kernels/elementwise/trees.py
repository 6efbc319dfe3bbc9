"""Sums of many arrays by trees of additions, each part of the elements by a tree of its own.

All trees have one shape, and differ in which array stands at which leaf. Each addition runs in the
loop that was compiled for it alone, called by its address, with a number and a key of its own: what
comes out is what the additions give one after the other.

Source    docs/semantics.md §2 (bits of element i of operation n depend on seed, n and i alone).
"""

from __future__ import annotations

from numba import carray, njit

from fpsim.kernels.compiling import INLINE, compiled
from fpsim.kernels.elementwise.sequence import STEP, call_loop, numbers_at

__all__ = ["run_trees"]


@njit(**INLINE)
def _operand(place, leaves, b, m, inputs, rooms):
    """A block of an operand: of the array at a leaf, or of a sum in a room."""
    if place >= 0:
        return carray(numbers_at(inputs[leaves[place]] + 4 * b), (m,))
    return rooms[-1 - place, :m]


@compiled
def run_trees(
    loop, constants, inputs, leaves, additions, parts, seeds, numbers, total, rooms, element_flags,
    words, flags, begin, end,
):
    """total = the sums of parts begin … end - 1; flags[p] |= those of the additions of part p.

    loop, constants   the address of the addition's loop, and its constants.
    inputs     where each array begins.
    leaves     of each part the arrays at its leaves, from left to right.
    additions  of each one, in order, its operands and its result: leaf i as i, room r as -1 - r.
    parts      first element, end, and index of the first one in the whole operation.
    seeds, numbers   of each part: its key, and the number of its first addition.
    """
    last = additions.shape[0] - 1
    for p in range(begin, end):
        for b in range(parts[p, 0], parts[p, 1], STEP):
            m = min(STEP, parts[p, 1] - b)
            at = parts[p, 2] + b - parts[p, 0]
            for k in range(last + 1):
                x = _operand(additions[k, 0], leaves[p], b, m, inputs, rooms)
                y = _operand(additions[k, 1], leaves[p], b, m, inputs, rooms)
                out = total[b : b + m] if k == last else rooms[-1 - additions[k, 2], :m]
                flags[p] |= call_loop(
                    loop, x, y, x, out, element_flags, words, constants, at, seeds[p],
                    numbers[p] + k, False,
                )
