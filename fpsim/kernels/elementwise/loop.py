"""The loop of every elementwise operation: exact result, one rounding, flags.

A kernel is made for an operation and a mode; formats and policies are numbers it
is given, and the type of the constants says how wide the lanes are in which exact results are held.
It works in blocks that stay in the first-level cache. Operands are taken for ordinary numbers; only
a vector that holds a NaN, an infinity or a zero divisor asks what the rules say, and one that
overflows in other operations than conversions.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from fpsim.kernels.compiling import INLINE, compiled
from fpsim.kernels.elementwise.cut import cut_sum
from fpsim.kernels.elementwise.special import (
    ADD,
    CONVERT,
    DIVIDE,
    FMA,
    MULTIPLY,
    SQRT,
    SUBTRACT,
    resolve,
)  # fmt: skip
from fpsim.kernels.lanes.formula import formula, when
from fpsim.kernels.lanes.memory import (
    copy_item,
    copy_items,
    load,
    load_float,
    load_raw,
    load_word,
    pointer,
    room,
    store,
    store_low,
    stream_float,
)
from fpsim.kernels.lanes.vectors import (
    VECTOR_WIDTH,
    any_lane,
    as_bits,
    as_float,
    infinity_like,
    or_lanes,
    quiet_like,
    select,
    sign_like,
    umax,
    width_of,
)
from fpsim.kernels.random.words import GROUP_HALF, fill_words
from fpsim.kernels.rounding.grids import round_normal, round_on_grids
from fpsim.kernels.rounding.modes import SR, has_minus_zero, is_signed, is_stochastic
from fpsim.kernels.rounding.quanta import round_in_quanta, smallest_normal
from fpsim.kernels.rounding.round import round_random, round_residual
from fpsim.kernels.rounding.rule import spread
from fpsim.kernels.rounding.to_odd import divide_to_odd, root_to_odd, sum_to_odd

__all__ = [
    "BLOCK", "FLAGS_EACH", "FLAGS_NONE", "FLAGS_STICKY", "RESIDUAL_QUANTA", "Variant", "kernel",
    "summary", "vector_step",
]  # fmt: skip

#: Elements per block: three operands, a result and the random words fit the first-level cache.
BLOCK = 1024

#: Random words of a block that may begin inside a group of counters.
ROOM = BLOCK + GROUP_HALF

FLAGS_NONE, FLAGS_STICKY, FLAGS_EACH = range(3)
WORDS_NONE, WORDS_HALF, WORDS_WHOLE, WORDS_GIVEN = range(4)
#: How SR cuts the tail; with quanta as truncated, subnormals the shorter way.
RESIDUAL_TRUNCATE, RESIDUAL_HALF, RESIDUAL_EVEN, RESIDUAL_QUANTA = range(4)


class Variant(NamedTuple):
    """What is compiled in: constants to the compiler, never tested in the loop."""

    operation: int
    mode: int
    flags: int
    flush: bool  # subnormals are flushed
    one_zero: bool  # the format has no -0
    words: int
    residual: int


def _exact(op, mode, x, y, z, sign):
    """Bits of the exact result of finite operands, rounded to odd, and a mark of what is lost.

    Only sums in narrow lanes that SR rounds are cut and lose something (see `cut_sum`).
    """
    none = sign ^ sign
    if op == CONVERT:
        return as_bits(x), none
    if op == MULTIPLY:
        return as_bits(x * y), none
    if op == DIVIDE:
        return divide_to_odd(x, y), none
    if op == SQRT:
        return root_to_odd(x), none
    if op == FMA:
        a, b = x * y, z  # the product of two short significands is exact
    elif op == SUBTRACT:
        a, b = x, as_float(as_bits(y) ^ sign)
    else:
        a, b = x, y
    if mode == SR and op != FMA and width_of(a) == 32:
        return cut_sum(a, b)
    s = sum_to_odd(a, b, width_of(a))
    if has_minus_zero(mode):
        # An exact zero sum of numbers of both signs is -0 toward -infinity (IEEE 754 §6.3).
        s = select((s & ~sign) == 0, (as_bits(a) | as_bits(b)) & sign, s)
    return s, none


def _rounded(op, mode, supplied, residual, t, words, i, sign, rule):
    """Magnitude of the rounded result, before overflow.

    Sums of the format's numbers are exact wherever they are subnormal: the grid of normal numbers,
    whose last digit is the same for all lanes, may go on below the smallest.
    """
    width = width_of(t)
    a = t & ~sign
    is_sum = op in (ADD, SUBTRACT) and residual == RESIDUAL_TRUNCATE
    if not is_stochastic(mode) and is_sum:
        return round_normal(mode, a, t >= sign, rule)
    if not is_stochastic(mode):
        return round_on_grids(mode, a, t >= sign, rule, width)
    grid = _normal_grid(rule) if is_sum or residual == RESIDUAL_QUANTA else rule
    if residual in (RESIDUAL_HALF, RESIDUAL_EVEN):
        a = round_residual(a, residual == RESIDUAL_EVEN, rule)
    word = load_word(words, i, t)
    r = round_random(mode, a, word, supplied, grid, width)
    if residual == RESIDUAL_QUANTA:
        r = select(a < smallest_normal(rule), round_in_quanta(a, word, rule), r)
    return r


def _normal_grid(rule):
    none = rule.emin ^ rule.emin
    return rule._replace(emin=none, quantum=none, quantum_sr=none)


def _finish(op, mode, flush, one_zero, t, r, sign, rule):
    """Tininess and sign: result bits, changed bits, and where it was tiny.

    Sums of the format's numbers are exact wherever they are tiny: it matters where that is flushed.
    """
    a = t & ~sign
    tiny = a < _by_sign(mode, t, sign, rule.tiny_pos, rule.tiny_neg)
    if flush:
        r = select(tiny, r & ~rule.flush, r)
    elif op in (ADD, SUBTRACT):
        tiny = r != r
    bits = r | (t & sign)
    if one_zero:
        bits = select(r == 0, r, bits)
    return bits, r ^ a, tiny


def _by_sign(mode, t, sign, positive, negative):
    """The one of two constants that goes with the sign of t, where the mode asks for it."""
    return select(t >= sign, negative, positive) if is_signed(mode) else positive


def _overflows(mode, t, r, sign, rule):
    """Where the result lies beyond the largest value: in stochastic modes by its draw."""
    if is_stochastic(mode):
        return r > rule.largest
    return (t & ~sign) >= _by_sign(mode, t, sign, rule.over_pos, rule.over_neg)


def _overflown(mode, t, sign, rule):
    """What overflows becomes: if the mode asks for no sign, one magnitude with it or one NaN."""
    positive, negative = rule.over_value_pos, rule.over_value_neg
    if is_signed(mode):
        return select(t >= sign, negative, positive)
    return positive ^ (t & (positive ^ negative))


def _is_special(op, x, y, z, sign):
    """Where an operand is not finite, a divisor zero or a radicand negative."""
    infinity = infinity_like(sign)
    if op == SQRT:
        return as_bits(x) >= infinity  # with its sign bit, every negative number is larger
    top = as_bits(x) & ~sign
    if op == CONVERT:
        return top >= infinity
    top = umax(top, as_bits(y) & ~sign)
    if op == FMA:
        top = umax(top, as_bits(z) & ~sign)
    if op == DIVIDE:
        return (top >= infinity) | (y == 0.0)
    return top >= infinity


def _is_rare(op, mode, x, y, z, t, r, sign, rule):
    """Where an operation may overflow, and where operands are special.

    Sums and products of what is not finite are not finite either: their magnitude tells it all, and
    what overflows lies above the largest value before it is rounded.
    """
    if op in (ADD, SUBTRACT, MULTIPLY):
        return (t & ~sign) > rule.largest
    return _overflows(mode, t, r, sign, rule) | _is_special(op, x, y, z, sign)


def _signalling(array, i, like):
    """Where an operand as stored is a signalling NaN (widening would have made it quiet)."""
    raw = load_raw(array, i, like)
    return ((raw & ~sign_like(raw)) > infinity_like(raw)) & ((raw & quiet_like(raw)) == 0)


def _operand(flush, one_zero, array, i, sign, rule):
    """An operand as the subnormal policy reads it."""
    x = load_float(array, i, rule.drop)
    if not flush:
        return x
    bits = as_bits(x)
    zero = bits ^ bits if one_zero else bits & sign
    return as_float(select((bits & ~sign) < rule.daz, zero, bits))


@formula
def vector_step(op, what, x, xi, y, yi, z, zi, out, oi, element_flags, mi, words, wi, rule, seen):
    """One vector of results; returns what was seen so far: changed, tiny, over, special flags."""
    mode, flags, flush, one_zero, supplied, residual, streaming = what
    none = rule.drop ^ rule.drop
    sign = sign_like(none)
    u = _operand(flush, one_zero, x, xi, sign, rule)
    v = _operand(flush, one_zero, y, yi, sign, rule) if op != CONVERT and op != SQRT else u
    w = _operand(flush, one_zero, z, zi, sign, rule) if op == FMA else u
    t, lost = _exact(op, mode, u, v, w, sign)
    r = _rounded(op, mode, supplied, residual, t, words, wi, sign, rule)
    bits, changed, tiny = _finish(op, mode, flush, one_zero, t, r, sign, rule)
    changed = changed | lost

    def special(bits, changed, over, raised):
        loud = _signalling(x, xi, none)
        if op != CONVERT and op != SQRT:
            loud = loud | _signalling(y, yi, none)
        if op == FMA:
            loud = loud | _signalling(z, zi, none)
        says = resolve(op, u, v, w, loud, rule)
        return (
            select(says.where, says.bits, bits), select(says.where, none, changed),
            over & ~says.where, select(says.where, says.flags, raised),
        )  # fmt: skip

    def beyond(bits, changed, over_seen, raised_seen, raised):
        over = _overflows(mode, t, r, sign, rule)
        bits = select(over, _overflown(mode, t, sign, rule), bits)
        bits, changed, over, raised = when(
            any_lane(_is_special(op, u, v, w, sign)), special, bits, changed, over, raised
        )
        over_seen = select(over, over_seen | t, over_seen)
        return bits, changed, over_seen, raised_seen | raised, raised | select(over, none + 5, none)

    ordinary = bits, changed, seen[2], seen[3], none
    # Numbers of another format often overflow: a jump would be foreseen wrongly too often.
    bits, changed, over_seen, raised_seen, raised = (
        beyond(*ordinary)
        if op == CONVERT
        else when(any_lane(_is_rare(op, mode, u, v, w, t, r, sign, rule)), beyond, *ordinary)
    )
    stream_float(out, oi, bits, streaming)
    if flags == FLAGS_EACH:
        mark = select(changed != 0, select(tiny, none + 3, none + 1), none)
        store_low(element_flags, mi, mark | raised)
    if flags == FLAGS_NONE:
        return seen
    tiny_seen = seen[1] | select(tiny, changed, none)
    return seen[0] | changed, tiny_seen, over_seen, raised_seen


@formula
def summary(seen):
    """Flags of the whole call."""
    changed, tiny, over, raised = seen
    none = changed ^ changed
    flags = raised | select(over != 0, none | 5, none)
    flags = flags | select(changed != 0, none | 1, none) | select(tiny != 0, none | 3, none)
    return or_lanes(flags)


@njit(**INLINE)
def _block_of(array, room, in_room, copied, b, rest, m):
    """Where m elements of a block that begins at b stand: in the array or in room for a block.

    in_room: its elements are there; copied: they are copied there, array[b + rest] being repeated.
    """
    if in_room:
        return room, 0
    if copied:
        copy_items(room, array, b, b + rest, m)
        return room, 0
    return array, b


@njit(**INLINE)
def _place(array, b, n):
    """Where the block at b of n elements begins in an operand, which may repeat itself."""
    size = array.shape[0]
    return b if size >= n else b % (size - BLOCK)


@njit(**INLINE)
def _fill_block(words, first, b, n, m, seed, operation, wide):
    """The words of m elements from b on, and where those of the first one stand.

    Groups are made whole: where a block ends inside of one, the next begins with it. Elements from
    the n-th on repeat the one before them, and its rounding: other words could raise other flags.
    """
    at = (first + b) % GROUP_HALF
    size = (at + m + GROUP_HALF - 1) // GROUP_HALF * GROUP_HALF
    ready = 0
    if at > 0 and b > 0:
        for i in range(0, GROUP_HALF, VECTOR_WIDTH):
            store(words, i, load(words, BLOCK + i))
        ready = GROUP_HALF
    fill_words(words, ready, first + b - at + ready, size - ready, seed, operation, wide)
    for i in range(n - b, m):
        copy_item(words, at + i, words, at + n - b - 1)
    return at


@cache
def kernel(variant: Variant) -> Any:
    """flags = loop(x, y, z, out, element_flags, words, constants, first, …): the compiled loop.

    x, y, z, out are contiguous and of one length; y and z may have length 1, unused ones repeat x.
    An operand that repeats itself may be shorter: one period and BLOCK elements more. `first` is
    the index of out[0] in the whole operation; streaming: out begins at a multiple of 64 bytes and
    is too large for the caches.
    """
    # Only numbers are captured, so that the disk cache recognises the loop in another process.
    OP, MODE, FLAGS, FLUSH, ONE_ZERO, WORDS, RESIDUAL = variant
    HAS_Y = OP not in (CONVERT, SQRT)
    GIVEN, MADE_HERE = WORDS == WORDS_GIVEN, WORDS in (WORDS_HALF, WORDS_WHOLE)

    @compiled
    def loop(x, y, z, out, element_flags, words, constants, first, seed, operation, streaming):
        n = out.shape[0]
        rule = spread(constants)
        lanes = 512 // width_of(rule.drop)
        none = rule.drop ^ rule.drop
        seen = (none, none, none, none)
        one_y = HAS_Y and y.shape[0] == 1 and n > 1
        one_z = OP == FMA and z.shape[0] == 1 and n > 1
        # Scalars are spread over a block; a last block that does not fill its lanes is worked on
        # in copies that do.
        all_x, all_y, all_z = pointer(x), pointer(y), pointer(z)
        all_out, all_flags, all_words = pointer(out), pointer(element_flags), pointer(words)
        room_x, room_y, room_z = room(x, BLOCK), room(y, BLOCK), room(z, BLOCK)
        room_out, block_flags = room(out, BLOCK), room(element_flags, BLOCK)
        room_words = room(words, ROOM)
        if one_y:
            copy_items(room_y, all_y, 0, 0, BLOCK)
        if one_z:
            copy_items(room_z, all_z, 0, 0, BLOCK)
        for b in range(0, n, BLOCK):
            m = n - b if n - b < BLOCK else BLOCK
            filled, rest = m % 16 != 0, n - 1 - b
            m = (m + 15) // 16 * 16
            px, xi = _block_of(all_x, room_x, False, filled, _place(x, b, n), rest, m)
            py, yi = _block_of(all_y, room_y, one_y, filled and HAS_Y, _place(y, b, n), rest, m)
            pz, zi = _block_of(all_z, room_z, one_z, filled and OP == FMA, _place(z, b, n), rest, m)
            pw, wi = _block_of(all_words, room_words, False, filled and GIVEN, b, rest, m)
            po, oi = _block_of(all_out, room_out, filled, False, b, rest, m)
            pf, fi = _block_of(all_flags, block_flags, filled, False, b, rest, m)
            if MADE_HERE:
                wide, pw = WORDS == WORDS_WHOLE, room_words
                wi = _fill_block(room_words, first, b, n, m, seed, operation, wide)
            choices = MODE, FLAGS, FLUSH, ONE_ZERO, GIVEN, RESIDUAL, streaming and not filled
            for i in range(0, m, lanes):
                seen = vector_step(
                    OP, choices, px, xi + i, py, yi + i, pz, zi + i, po, oi + i, pf, fi + i, pw,
                    wi + i, rule, seen,
                )  # fmt: skip
            if filled:
                for i in range(n - b):
                    copy_item(all_out, b + i, room_out, i)
                    if FLAGS == FLAGS_EACH:
                        copy_item(all_flags, b + i, block_flags, i)
        return np.int64(summary(seen))

    return loop
