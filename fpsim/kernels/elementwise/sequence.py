"""A sequence of elementwise operations over many arrays in one call, block by block.

Each operation runs in the loop that was compiled for it alone (`loop.kernel`), called by its
address: what comes out is what the operations give one after the other, and a block of operands,
results and values between them stays in the caches.

Source    docs/semantics.md §2 (bits of element i of operation n depend on seed, n and i alone).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import carray, njit
from numba.core import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from fpsim.kernels.compiling import INLINE, compiled
from fpsim.kernels.elementwise.tally import add_look, add_tally

__all__ = [
    "COPY", "PART", "STEP", "SequenceCounts", "address_of", "call_loop", "numbers_at",
    "run_sequence",
]

#: What copies its operand, in the place of a loop's address.
COPY = 0

#: Elements of a block: the values between operations lie in the second-level cache.
STEP = 8192

#: Elements of a part, which one thread computes.
PART = 8 * STEP


class SequenceCounts(NamedTuple):
    """What `run_sequence` counts into.

    strides     of the samples of each tensor; none where operations are not counted.
    smallest    of each operation the format's smallest normal number.
    slots       of each operation its place among those whose results are looked at; -1 for none.
    room        for numbers of flags.
    tallies     by tensor and operation.
    fields      exponents, by tensor and place.
    largest     bits of the largest magnitudes, by tensor and place.
    """

    strides: NDArray[np.int64]
    smallest: NDArray[np.float32]
    slots: NDArray[np.int64]
    room: NDArray[np.int64]
    tallies: NDArray[np.int64]
    fields: NDArray[np.int64]
    largest: NDArray[np.int64]


@intrinsic
def numbers_at(typingctx: Any, address: Any) -> Any:
    """An address as that of binary32 numbers."""
    result = types.CPointer(types.float32)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], context.get_value_type(sig.return_type))

    return result(types.int64), codegen


@intrinsic
def call_loop(
    typingctx: Any, address: Any, x: Any, y: Any, z: Any, out: Any, element_flags: Any, words: Any,
    constants: Any, first: Any, seed: Any, operation: Any, streaming: Any,
) -> Any:
    """flags = loop(…) of the loop at an address, which `address_of` tells."""
    loop = (
        x, y, z, out, element_flags, words, constants, first, seed, operation, streaming
    )

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        arguments = sig.args[1:]
        kind = context.call_conv.get_function_type(types.int64, arguments)
        callee = builder.inttoptr(args[0], kind.as_pointer())
        _, flags = context.call_conv.call_function(
            builder, callee, types.int64, arguments, args[1:]
        )
        return flags

    return types.int64(types.int64, *loop), codegen


def _signature(constants: Any, operands: Any) -> tuple[Any, ...]:
    """Types of a loop's arguments, where the result is binary32."""
    x, values = types.Array(operands, 1, "C"), types.Array(types.float32, 1, "C")
    return (
        x, x, x, values, types.Array(types.uint8, 1, "C"),
        types.Array(types.uint32, 1, "C"), types.Array(constants, 1, "C"), types.int64,
        types.uint64, types.uint64, types.boolean,
    )


def address_of(loop: Any, *, is_wide: bool, is_from_wide: bool = False) -> int:
    """Where a compiled loop begins; is_wide: its constants have 64 bits; is_from_wide: its operands
    are binary64.

    The loop must be kept alive by the caller.
    """
    operands = types.float64 if is_from_wide else types.float32
    signature = _signature(types.uint64 if is_wide else types.uint32, operands)
    loop.compile(signature)
    address: int = loop._cache.addresses[signature]
    assert address != COPY
    return address


@njit(**INLINE)
def _operand(slot, t, b, m, table, n_singles, rooms, constants):
    """A block of an operand: of an array, of a value between operations, or one number."""
    n_arrays, n_rooms = table.shape[1], rooms.shape[0]
    if n_arrays - n_singles <= slot < n_arrays:
        return carray(numbers_at(table[t, slot]), (1,))
    if slot < n_arrays:
        return carray(numbers_at(table[t, slot] + 4 * b), (m,))
    if slot < n_arrays + n_rooms:
        return rooms[slot - n_arrays, :m]
    return constants[slot - n_arrays - n_rooms, :1]


@njit(**INLINE)
def _tally(o, out, marks, t, b, counting):
    """A block of results is counted, if operations are; its exponents, where they are asked for."""
    strides, smallest, slots, few, tallies, fields, largest = counting
    if strides.shape[0] == 0:
        return
    most = add_tally(out, marks, smallest[o], few, tallies[t, o])
    w = slots[o]
    if w >= 0:
        add_look(out.view(np.uint32), most, b, strides[t], fields[t, w], largest[t, w])


@compiled
def run_sequence(
    rows, narrow, wide, constants, table, n_singles, parts, firsts, numbers, seed, rooms,
    element_flags, words, flags, counting, begin, end,
):
    """The operations of parts begin … end - 1; flags[o] |= those of operation o.

    rows       of an operation: address of its loop, or COPY, whether its constants are wide, its
               operands' slots and its result's.
    narrow, wide   constants of each loop.
    constants  a row of STEP equal numbers for each constant.
    table      where the arrays of each tensor begin, the last n_singles of which have one element;
               slots go on with rooms, then constants. Such a number is no first operand: it is
               copied into a room before.
    parts      tensor, first element and end of each part.
    firsts     index of each tensor's first element in the whole operation.
    numbers    of each tensor's operations, for random bits.
    counting   see `SequenceCounts`.
    """
    for p in range(begin, end):
        t, first = parts[p, 0], firsts[parts[p, 0]]
        for b in range(parts[p, 1], parts[p, 2], STEP):
            m = min(STEP, parts[p, 2] - b)
            for o in range(rows.shape[0]):
                out = _operand(rows[o, 5], t, b, m, table, n_singles, rooms, constants)
                x = _operand(rows[o, 2], t, b, m, table, n_singles, rooms, constants)
                if rows[o, 0] == COPY:
                    if x.shape[0] < m:
                        out[:] = x[0]
                    else:
                        for i in range(m):
                            out[i] = x[i]
                    continue
                if x.shape[0] < m:
                    x = constants[rows[o, 2] - table.shape[1] - rooms.shape[0], :m]
                y = _operand(rows[o, 3], t, b, m, table, n_singles, rooms, constants)
                z = _operand(rows[o, 4], t, b, m, table, n_singles, rooms, constants)
                at = np.int64(first + b)
                if rows[o, 1]:
                    flags[o] |= call_loop(
                        rows[o, 0], x, y, z, out, element_flags, words, wide[o], at, seed,
                        numbers[t, o], False,
                    )
                else:
                    flags[o] |= call_loop(
                        rows[o, 0], x, y, z, out, element_flags, words, narrow[o], at, seed,
                        numbers[t, o], False,
                    )
                _tally(o, out, element_flags[:m], t, b, counting)
