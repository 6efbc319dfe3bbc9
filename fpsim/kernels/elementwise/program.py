"""A traced step, run again and again: rounded operations on places of one memory.

A program is a table of operations. Operands are gathered by the places of their elements, so that
slices, shifts and copies of the traced step cost nothing of their own; a result has memory of its
own. After each step the places of the new state are copied to where the next step
reads it. A step that raises an armed flag is not copied: the kernel stops before it, and the caller
makes that step itself.

A row of the table: operation, elements, where the places of three operands begin, where the result
stands, where its constants begin, whether it has a number for random bits. memory and bits are one
memory, as floats and as unsigned integers; so are scratch and scratch_bits, with a row for each
operand. The state stands at state[0], state[1] elements long; `result` has the places of its
successor. After the steps `watched`, counted from the first of a run, the state goes to the next
row of `history`, which has one row more. outcome is why the run ended, and its flags.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from fpsim.kernels.compiling import INLINE, compiled
from fpsim.kernels.elementwise.loop import BLOCK, ROOM, WORDS_NONE, WORDS_WHOLE, fill_block
from fpsim.kernels.elementwise.special import ADD, OPERATIONS
from fpsim.kernels.elementwise.step import (
    FLAGS_STICKY,
    RESIDUAL_QUANTA,
    no_events,
    summary,
    vector_step,
)
from fpsim.kernels.lanes.arithmetic import is_index, plus
from fpsim.kernels.lanes.formula import formula, when
from fpsim.kernels.lanes.memory import pointer, room, splat_item
from fpsim.kernels.rounding.rule import FIELDS, RoundingRule, spread

__all__ = [
    "ABSOLUTE", "DONE", "FIXED", "NEGATIVE", "STOPPED", "ProgramVariant", "program_kernel",
]

#: What is no rounding: numbers after those of the rounded operations.
NEGATIVE, ABSOLUTE = 16, 17

_N_FIELDS = len(FIELDS)

#: Why a run ended.
DONE, FIXED, STOPPED = range(3)

#: Elements of two vectors of 64-bit lanes.
_GROUP = 16
_INEXACT = 1


class ProgramVariant(NamedTuple):
    """What is compiled in: mode and policies, and the rounded operations that there are.

    present, wide, quanta   one bit for each operation: it occurs; its lanes have 64 bits; SR rounds
                            it in quanta.
    """

    mode: int
    flush: bool
    one_zero: bool
    words: int
    residual: int
    present: int
    wide: int
    quanta: int


def _rule_at(rules: Any, row: Any) -> RoundingRule:
    return RoundingRule(*(splat_item(rules, plus(row, i)) for i in range(_N_FIELDS)))


@formula
def _group(what, code, x, y, z, i, out, oi, words, wi, narrow_rules, wide_rules, row, narrow, wide):
    """One group of results of the operation that `code` names; what was seen so far."""
    mode, flush, one_zero, residual, present, is_wide, quanta = what

    def rounded(op, rules, lanes):
        choices = (
            mode, FLAGS_STICKY, flush, one_zero, False,
            RESIDUAL_QUANTA if quanta >> op & 1 else residual, False, False,
        )

        def then(*events):
            rule = _rule_at(rules, row)
            for k in range(0, _GROUP, lanes):
                at = plus(i, k)
                events = vector_step(
                    op, choices, x, at, y, at, z, at, out, plus(oi, k), words, 0, words,
                    plus(wi, k), rule, events,
                )
            return events

        return then

    for op in range(len(OPERATIONS)):
        if not present >> op & 1:
            continue
        if is_wide >> op & 1:
            wide = when(is_index(code, op), rounded(op, wide_rules, 8), *wide)
        else:
            narrow = when(is_index(code, op), rounded(op, narrow_rules, 16), *narrow)
    return (tuple(narrow), tuple(wide))


@njit(**INLINE)
def _gather(scratch, memory, places, first, b, m, full):
    """scratch[:full] = the elements of a block of an operand; the last one is repeated."""
    for i in range(m):
        scratch[i] = memory[places[first + b + i]]
    for i in range(m, full):
        scratch[i] = scratch[m - 1]


@njit(**INLINE)
def _sign_block(code, x, values, bits, out, m, sign, one_zero):
    """A block of negative or absolute; the zero and the NaN of a format with one zero stay."""
    for i in range(m):
        a = x[i]
        if code == ABSOLUTE:
            bits[out + i] = a & ~sign
        elif one_zero and (values[i] == 0.0 or values[i] != values[i]):
            bits[out + i] = a
        else:
            bits[out + i] = a ^ sign


@njit(**INLINE)
def _fill(words, b, n, full, seed, operation, kind):
    return fill_block(words, 0, b, n, full, seed, operation, kind == WORDS_WHOLE)


@njit(**INLINE)
def _successor(bits, first, result, room):
    """The new state in room; whether it is the old one."""
    same = True
    for i in range(result.shape[0]):
        room[i] = bits[result[i]]
        same &= bits[first + i] == room[i]
    return same


@njit(**INLINE)
def _copy(target, source, n):
    for i in range(n):
        target[i] = source[i]


@cache
def program_kernel(variant: ProgramVariant) -> Any:
    """steps done = run(table, places, memory, …): the compiled loop over steps."""
    # Only numbers are captured, so that the disk cache recognises the loop in another process.
    MODE, FLUSH, ONE_ZERO, WORDS, RESIDUAL, PRESENT, WIDE, QUANTA = variant
    STOCHASTIC = WORDS != WORDS_NONE

    @compiled
    def run(
        table, places, memory, bits, scratch, scratch_bits, narrow_rules, wide_rules, words, state,
        result, seed, number, draws, steps, armed, watched, history, outcome, sign,
    ):
        what = MODE, FLUSH, ONE_ZERO, RESIDUAL, PRESENT, WIDE, QUANTA
        nothing_narrow = no_events(ADD, spread(narrow_rules))
        nothing_wide = no_events(ADD, spread(wide_rules))
        px, py, pz = pointer(scratch[0]), pointer(scratch[1]), pointer(scratch[2])
        all_memory, room_words = pointer(memory), room(words, ROOM)
        first, size, n_kept, next_kept, flags = state[0], state[1], watched.shape[0], 0, np.int64(0)
        for k in range(steps):
            narrow, wide = nothing_narrow, nothing_wide
            operation = number + np.uint64(k * draws)
            for o in range(table.shape[0]):
                code, n, out, rule = table[o, 0], table[o, 1], table[o, 5], table[o, 6]
                for b in range(0, n, BLOCK):
                    m = min(n - b, BLOCK)
                    full = (m + _GROUP - 1) // _GROUP * _GROUP
                    _gather(scratch_bits[0], bits, places, table[o, 2], b, m, full)
                    if code >= NEGATIVE:
                        _sign_block(
                            code, scratch_bits[0], scratch[0], bits, out + b, m, sign, ONE_ZERO
                        )
                        continue
                    _gather(scratch_bits[1], bits, places, table[o, 3], b, m, full)
                    _gather(scratch_bits[2], bits, places, table[o, 4], b, m, full)
                    wi = np.int64(0)
                    if STOCHASTIC:
                        wi = np.int64(_fill(room_words, b, n, full, seed, operation, WORDS))
                    for i in range(0, full, _GROUP):
                        narrow, wide = _group(
                            what, code, px, py, pz, i, all_memory, out + b + i, room_words, wi + i,
                            narrow_rules, wide_rules, rule, narrow, wide,
                        )
                operation += np.uint64(table[o, 7])
            raised = np.int64(summary(narrow)) | np.int64(summary(wide))
            if raised & armed:
                outcome[0], outcome[1] = STOPPED, flags
                return k
            flags |= raised
            same = _successor(bits, first, result, history[n_kept])
            if same and not (STOCHASTIC and raised & _INEXACT):
                outcome[0], outcome[1] = FIXED, flags
                return k
            _copy(bits[first:], history[n_kept], size)
            if next_kept < n_kept and watched[next_kept] == k + 1:
                _copy(history[next_kept], history[n_kept], size)
                next_kept += 1
        outcome[0], outcome[1] = DONE, flags
        return steps

    return run
