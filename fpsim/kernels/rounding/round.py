"""The one rounding: magnitude bits in, rounded magnitude bits out, lane by lane, in integers.

Let a be the bits of a finite magnitude. Adding to them at digit d and clearing the digits below
rounds in units of that digit, and a carry into the exponent gives the next binade. d is the
number of dropped digits: `drop` for a normal result, one more for each binade below the smallest
normal. Under the quantum nothing is left to add to, so there the answer is the quantum or zero by
one comparison. No floating-point operation takes part: the processor's flush-to-zero switches,
its rounding mode and its handling of NaN cannot interfere.

These are the texts of formulas (see `fpsim.kernels.lanes.formula`): mode and width are
choices.

Source    docs/semantics.md §1.
"""

from __future__ import annotations

from fpsim.kernels.lanes.vectors import select, umax, umin
from fpsim.kernels.rounding.modes import (
    ALWAYS,
    FROM_HALF,
    NEVER,
    SR_EQUAL,
    is_signed,
    steps_of,
)

__all__ = ["round_fixed", "round_random", "round_random_normal", "round_residual"]


def _dropped(a, rule, width):
    """Number of dropped digits of each lane."""
    field = a >> (23 if width == 32 else 52)
    return rule.drop + (rule.emin - umin(rule.emin, field))


def _addend(step, below):
    """What takes the tails of this step over the digit above `below`."""
    if step == NEVER:
        return below ^ below
    if step == ALWAYS:
        return below
    half = below >> 1
    return half + 1 if step == FROM_HALF else half


def _addend_by_digit(steps, a, unit, rule):
    """The same where even and odd last digits may differ."""
    even, odd = (_addend(step, unit - 1) for step in steps)
    if steps[0] == steps[1]:
        return even
    is_odd = ((a & (rule.hidden - 1) | rule.hidden) & unit) != 0
    return select(is_odd, odd, even)


def _addend_by_sign(mode, a, negative, unit, rule):
    """What to add before the digits under the unit are cleared."""
    positive = _addend_by_digit(steps_of(mode, False), a, unit, rule)
    if not is_signed(mode):
        return positive
    return select(negative, _addend_by_digit(steps_of(mode, True), a, unit, rule), positive)


def round_fixed(mode, a, negative, rule, width):
    """Round finite magnitudes by a deterministic mode; the grid goes on above the largest value."""
    d = umin(_dropped(a, rule, width), (a ^ a) + (24 if width == 32 else 53))
    unit = ((a ^ a) + 1) << d
    main = (a + _addend_by_sign(mode, a, negative, unit, rule)) & ~(unit - 1)
    up = a > (select(negative, rule.up_neg, rule.up_pos) if is_signed(mode) else rule.up_pos)
    return select(a < rule.quantum, select(up, rule.quantum, a ^ a), main)


def _top_bits(word, low, s, rule, width):
    """The random digits, at the top of the lane: R * 2**(width - r)."""
    r = umin(rule.random_bits + s, rule.random_most)
    if low:
        return word << (width - r)
    aligned = word if width == 32 else word << 32
    return aligned & ((word ^ word) - (((word ^ word) + 1) << (width - r)))


def _carried(mode, a, word, low, more, tail, rule, width):
    """Magnitudes after the tails of `tail` digits and their random digits have carried."""
    zero = a ^ a
    below = (zero + 1 << tail) - 1
    if mode == SR_EQUAL:
        up = ((word if low else word >> 31) & 1) != 0
        return (a + select(up, below, zero)) & ~below
    return (a + (_top_bits(word, low, more, rule, width) >> (width - tail))) & ~below


def round_random_normal(mode, a, word, low, rule, width):
    """The same as `round_random` of zeros and of magnitudes that are normal in the format."""
    return _carried(mode, a, word, low, rule.drop ^ rule.drop, rule.drop, rule, width)


def round_random(mode, a, word, low, rule, width):
    """Round finite magnitudes stochastically; R is the low or the top r bits of the 32 in `word`.

    The magnitude goes up iff the first r digits of the tail, plus R, carry. Below the quantum the
    whole significand is tail, so there the carry is a comparison.
    """
    zero = a ^ a
    digits = 24 if width == 32 else 53
    d = _dropped(a, rule, width)
    more = d - rule.drop
    main = _carried(mode, a, word, low, more, umin(d, zero + digits), rule, width)
    small = a < rule.quantum_sr
    if mode == SR_EQUAL:
        up = ((word if low else word >> 31) & 1) != 0
        return select(small, select(up & (a != 0), rule.quantum, zero), main)
    random = _top_bits(word, low, more, rule, width)
    significand = (a & (rule.hidden - 1)) | rule.hidden
    shift = umax(d, zero + digits) - digits
    tail = (significand << (width - digits)) >> umin(shift, zero + (width - 1))
    tail = select(shift < width, tail, zero)  # 0 and what lies below every digit never go up
    return select(small, select(tail > ~random, rule.quantum, zero), main)


def round_residual(a, nearest_even, rule):
    """Round 64-bit magnitudes to the digits that SR looks at, to nearest (ties even or up).

    After it the truncated residual of the result is the rounded residual of the argument.
    """
    zero = a ^ a
    d = _dropped(a, rule, 64)
    r = umin(rule.random_bits + (d - rule.drop), rule.random_most)
    spare = umax(d, r) - r
    tail = umin(spare, zero + 53)
    unit = (zero + 1) << tail
    below = unit - 1
    half = unit >> 1
    if nearest_even:
        odd = ((a & (rule.hidden - 1) | rule.hidden) >> tail) & 1
        half = ((below >> 1) + odd) & below
    main = (a + half) & ~below
    # Here the grid is quantum * 2**-r; a power of two is one more or less in the exponent field.
    grid = rule.quantum - (r << 52)
    middle = grid - (zero + 1 << 52)
    up = (a > middle) if nearest_even else (a >= middle)
    return select(a < grid, select(up, grid, zero), main)
