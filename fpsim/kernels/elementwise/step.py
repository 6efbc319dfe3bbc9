"""One vector of an elementwise operation: exact result, one rounding, flags.

Operands are taken for ordinary numbers; only a vector that holds a NaN, an infinity or a zero
divisor asks what the rules say, and one that overflows in other operations than conversions.
"""

from __future__ import annotations

from fpsim.kernels.elementwise.cut import cut_quotient, cut_root, cut_sum
from fpsim.kernels.elementwise.native import native_marks, native_step
from fpsim.kernels.elementwise.special import (
    ADD,
    CONVERT,
    DIVIDE,
    FMA,
    MULTIPLY,
    SQRT,
    SUBTRACT,
    resolve,
    signalling,
)
from fpsim.kernels.lanes.formula import formula, when
from fpsim.kernels.lanes.memory import load_float, load_word, store_low, stream_float
from fpsim.kernels.lanes.vectors import (
    any_lane,
    as_bits,
    as_float,
    infinity_like,
    or_lanes,
    select,
    sign_like,
    umax,
    width_of,
)
from fpsim.kernels.rounding.grids import round_normal, round_on_grids
from fpsim.kernels.rounding.modes import SR, has_minus_zero, is_signed, is_stochastic
from fpsim.kernels.rounding.quanta import round_in_quanta, smallest_normal
from fpsim.kernels.rounding.round import round_random, round_residual
from fpsim.kernels.rounding.to_odd import divide_to_odd, root_to_odd, sum_to_odd

__all__ = [
    "FLAGS_EACH", "FLAGS_NONE", "FLAGS_STICKY", "RESIDUAL_QUANTA", "no_events", "summary",
    "vector_step",
]

FLAGS_NONE, FLAGS_STICKY, FLAGS_EACH = range(3)
#: How SR cuts the tail; with quanta as truncated, subnormals the shorter way.
RESIDUAL_TRUNCATE, RESIDUAL_HALF, RESIDUAL_EVEN, RESIDUAL_QUANTA = range(4)

#: Operands of the operations that have not two.
N_OPERANDS = {CONVERT: 1, SQRT: 1, FMA: 3}


def _exact(op, mode, x, y, z, sign):
    """Bits of the exact result of finite operands, rounded to odd, and a mark of what is lost.

    Only what SR rounds in narrow lanes is cut and loses something (see `cut_sum`).
    """
    none = sign ^ sign
    is_cut = mode == SR and width_of(x) == 32
    if op == CONVERT:
        return as_bits(x), none
    if op == MULTIPLY:
        return as_bits(x * y), none
    if op == DIVIDE:
        return cut_quotient(x, y) if is_cut else (divide_to_odd(x, y), none)
    if op == SQRT:
        return cut_root(x) if is_cut else (root_to_odd(x), none)
    if op == FMA:
        a, b = x * y, z  # the product of two short significands is exact
    elif op == SUBTRACT:
        a, b = x, as_float(as_bits(y) ^ sign)
    else:
        a, b = x, y
    if is_cut and op != FMA:
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


def _operand(flush, one_zero, array, i, sign, rule):
    """An operand as the subnormal policy reads it."""
    x = load_float(array, i, rule.drop)
    if not flush:
        return x
    bits = as_bits(x)
    zero = bits ^ bits if one_zero else bits & sign
    return as_float(select((bits & ~sign) < rule.daz, zero, bits))


def _ruled(op, operands, stored, rule, bits, changed, over, raised):
    """The same where a rule decides: bits, what changed, where it is over, special flags."""
    none = rule.drop ^ rule.drop
    loud = signalling(*stored[0], none)
    for array, i in stored[1:]:
        loud = loud | signalling(array, i, none)
    says = resolve(op, *operands, loud, rule)
    return (
        select(says.where, says.bits, bits), select(says.where, none, changed),
        over & ~says.where, select(says.where, says.flags, raised),
    )


@formula
def vector_step(op, what, x, xi, y, yi, z, zi, out, oi, element_flags, mi, words, wi, rule, events):
    """One vector of results; returns the events so far: changed, tiny, over, special flags.

    Conversions often overflow, and a jump for it would be foreseen wrongly too often: they jump for
    the first one only. Their event is the magnitude from which on they do, infinity after it.
    """
    mode, flags, flush, one_zero, supplied, residual, by_processor, streaming = what
    stored = ((x, xi), (y, yi), (z, zi))[: N_OPERANDS.get(op, 2)]
    if by_processor:
        mark = None
        if flags == FLAGS_EACH:
            mark = native_marks(op, flush, stored, element_flags, mi, rule)
        return native_step(op, x, xi, y, yi, z, zi, out, oi, streaming, rule, events, mark)
    none = rule.drop ^ rule.drop
    sign = sign_like(none)
    operands = [_operand(flush, one_zero, array, i, sign, rule) for array, i in stored]
    u, v, w = operands = (operands + [operands[0]] * 2)[:3]
    t, lost = _exact(op, mode, u, v, w, sign)
    r = _rounded(op, mode, supplied, residual, t, words, wi, sign, rule)
    bits, changed, tiny = _finish(op, mode, flush, one_zero, t, r, sign, rule)
    changed = changed | lost

    def special(*outcome):
        return _ruled(op, operands, stored, rule, *outcome)

    def rare(bits, changed, over_seen, raised_seen, raised):
        over = _overflows(mode, t, r, sign, rule)
        bits = select(over, _overflown(mode, t, sign, rule), bits)
        bits, changed, over, raised = when(
            any_lane(_is_special(op, u, v, w, sign)), special, bits, changed, over, raised
        )
        over_seen = select(over, over_seen | t, over_seen)
        return bits, changed, over_seen, raised_seen | raised, raised | select(over, none + 5, none)

    def beyond(bits, changed, over, limit, raised_seen, raised):
        bits, changed, over, raised = special(bits, changed, over, raised)
        (limit,) = when(any_lane(over), lambda _: (infinity_like(sign),), limit)
        return bits, changed, over, limit, raised_seen | raised, raised

    if op == CONVERT:
        over = _overflows(mode, t, r, sign, rule)
        bits = select(over, _overflown(mode, t, sign, rule), bits)
        limit = infinity_like(sign) if flags == FLAGS_NONE else events[2]
        bits, changed, over, over_seen, raised_seen, raised = when(
            any_lane((t & ~sign) >= limit), beyond, bits, changed, over, limit, events[3], none
        )
        raised = raised | select(over, none + 5, none)
    else:
        bits, changed, over_seen, raised_seen, raised = when(
            any_lane(_is_rare(op, mode, u, v, w, t, r, sign, rule)),
            rare, bits, changed, events[2], events[3], none,
        )
    stream_float(out, oi, bits, streaming)
    if flags == FLAGS_EACH:
        mark = select(changed != 0, select(tiny, none + 3, none + 1), none)
        store_low(element_flags, mi, mark | raised)
    if flags == FLAGS_NONE:
        return events
    tiny_seen = events[1] | select(tiny, changed, none)
    return events[0] | changed, tiny_seen, over_seen, raised_seen


@formula
def no_events(op, rule):
    """What `vector_step` begins with: a conversion looks at what is larger than every number."""
    none = rule.drop ^ rule.drop
    return none, none, rule.last + 1 if op == CONVERT else none, none


@formula
def summary(events):
    """Flags of the whole call."""
    changed, tiny, over, raised = events
    none = changed ^ changed
    flags = raised | select(over != 0, none | 5, none)
    flags = flags | select(changed != 0, none | 1, none) | select(tiny != 0, none | 3, none)
    return or_lanes(flags)
