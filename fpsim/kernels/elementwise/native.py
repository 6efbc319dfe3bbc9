"""Binary32 by the processor's own operations, flags by its status register.

The processor rounds +, -, *, /, the square root and fma as IEEE 754 says, and what it does with
tiny results is known (`fpsim.kernels.status_register`). A NaN is made canonical here, since
the processor passes one on. Where other choices are asked for, `vector_step` computes.

Flags of each element (to nearest, not of fma) follow from what the operation left over, which is a
binary32 number wherever nothing is small or overflows: s = x + y is exact if and only if s - x = y
and s - y = x; a product, quotient or root is if x·y - p, q·y - x or s·s - x is zero, by fma.
Vectors with another element are looked at in binary64, where products of two such numbers are
exact; NaNs, infinities and divisions by zero by the rules. No step of all this raises a flag of its
own.

Source    Intel SDM vol. 1 §4.8.3.5, §4.9.1 (NaNs, exceptions); Muller et al., Handbook of
          Floating-Point Arithmetic, 2nd ed., §4.3 (2Sum), §4.4, §5.2 (remainders that are numbers).
"""

from __future__ import annotations

from fpsim.kernels.elementwise.special import (
    ADD,
    DIVIDE,
    FMA,
    MULTIPLY,
    SQRT,
    SUBTRACT,
    processors_answer,
    resolve,
    signalling,
)
from fpsim.kernels.lanes.arithmetic import fused
from fpsim.kernels.lanes.formula import formula, when
from fpsim.kernels.lanes.memory import load_float, store_low, stream_float
from fpsim.kernels.lanes.vectors import (
    any_lane,
    as_bits,
    as_float,
    infinity_like,
    narrow,
    or_lanes,
    select,
    sign_like,
    umax,
    umin,
    widen,
)
from fpsim.kernels.status_register import TININESS

__all__ = ["native_marks", "native_step", "native_summary"]

#: From these magnitudes on what is left over is zero or a normal number: the last place of a sum is
#: that of its operands, of a product and of s·s - x twice as far below.
_OF_SUMS, _OF_PRODUCTS, _SMALLEST_NORMAL = (127 - 100) << 23, (127 - 76) << 23, 1 << 23
#: Exact results below this are tiny, in binary64; rounded first, those that do not reach 2**-126.
_TINY = 2.0**-126 * (1 - 2.0**-25) if TININESS == "after" else 2.0**-126
_NORMAL_IN_WIDE = (1023 - 126) << 52


def native_step(op, x, xi, y, yi, z, zi, out, oi, streaming, rule, events, mark=None):
    """One vector of results; the largest magnitude so far, which tells of NaNs.

    mark    called with the operands and the result, before that is stored.
    """
    sign = sign_like(rule.drop)
    u = load_float(x, xi, rule.drop)
    v = u if op == SQRT else load_float(y, yi, rule.drop)
    w = load_float(z, zi, rule.drop) if op == FMA else u
    result = fused(u, v, w) if op == FMA else processors_answer(op, u, v, w)
    if mark is not None:
        mark(u, v, result)
    bits = as_bits(result)
    magnitude = bits & ~sign
    bits = select(magnitude > infinity_like(sign), rule.nan_set, bits)
    stream_float(out, oi, bits, streaming)
    return umax(events[0], magnitude), events[1], events[2], events[3]


def native_marks(op, flush, stored, element_flags, mi, rule):
    """What stores the flags of each element.

    flush   operands and results that are subnormal count as zero.
    stored  where the operands stand.
    """
    def mark(x, y, result):
        none = rule.drop ^ rule.drop
        sign, infinity = sign_like(none), infinity_like(none)
        if op == SUBTRACT:
            y = as_float(as_bits(y) ^ sign)
        a, b, r = (as_bits(t) & ~sign for t in (x, y, result))
        other = ~_is_usual(op, a, b, r, infinity)

        def careful(marks):
            usual = widen(marks)
            return (narrow(_marks_in_wide(op, flush, widen(x), widen(y), widen(result), usual)),)

        def special(marks):
            loud = none != none
            for array, i in stored:
                loud = loud | signalling(array, i, none)
            second = as_float(as_bits(y) ^ sign) if op == SUBTRACT else y
            says = resolve(op, x, second, x, loud, rule)
            return (select(says.where, says.flags, marks),)

        usual = (as_float(select(other, none, as_bits(t))) for t in (x, y, result))
        marks = select(_is_inexact(op, *usual), none + 1, none)
        (marks,) = when(any_lane(other), careful, marks)
        (marks,) = when(any_lane(_is_ruled(op, flush, x, a, b, infinity)), special, marks)
        store_low(element_flags, mi, marks)

    return mark


def _is_usual(op, a, b, r, infinity):
    """Where what is left over is a number, of the magnitudes of operands and result."""
    if op in (ADD, SUBTRACT):  # zero is usual: one below it is the largest of all
        # In the last binade s - x is y and what was lost, which may overflow where s does not.
        return (umin(a - 1, b - 1) >= _OF_SUMS - 1) & (r < infinity - _SMALLEST_NORMAL)
    if op == MULTIPLY:
        is_zero = (umin(a, b) == 0) & (r == 0)
        return is_zero | ((r >= _OF_PRODUCTS) & (r < infinity))
    if op == SQRT:
        return (a - 1 >= _OF_PRODUCTS - 1) & (r < infinity)
    is_number = (b >= _SMALLEST_NORMAL) & (b < infinity) & (r < infinity)
    return is_number & ((a == 0) | ((a >= _OF_PRODUCTS) & (r >= 2 * _SMALLEST_NORMAL)))


def _is_inexact(op, x, y, r):
    """Where a result is not that of the usual operands."""
    if op in (ADD, SUBTRACT):
        return (r - x != y) | (r - y != x)
    factors = {MULTIPLY: (x, y, r), DIVIDE: (r, y, x), SQRT: (r, r, x)}
    a, b, c = factors[op]
    return fused(a, b, as_float(as_bits(c) ^ sign_like(as_bits(c)))) != 0.0


def _is_ruled(op, flush, x, a, b, infinity):
    """Where a rule may decide: something is not finite, a divisor zero, a radicand negative."""
    if op == SQRT:
        return as_bits(x) >= infinity
    if op == DIVIDE:
        return (umax(a, b) >= infinity) | (b < (_SMALLEST_NORMAL if flush else 1))
    return umax(a, b) >= infinity


def _marks_in_wide(op, flush, x, y, r, none):
    """Flags where all are finite and no divisor is zero, as lanes of 64 bits; else any.

    x, y, r in binary64; none gives the kind of lanes.
    """
    none = none ^ none
    sign, infinity = sign_like(none), infinity_like(none)
    one = as_bits(as_float(none) + 1.0)
    bits = [as_bits(t) for t in (x, y)]
    if flush:
        bits = [select((t & ~sign) < _NORMAL_IN_WIDE, t & sign, t) for t in bits]
    finite = umax(bits[0] & ~sign, bits[1] & ~sign) < infinity
    if op == DIVIDE:
        finite = finite & ((bits[1] & ~sign) != 0)
    if op == SQRT:
        finite = finite & (bits[0] <= sign)
    top = as_bits(r) & ~sign
    over = finite & (top == infinity)
    # Of what is masked nothing is raised.
    x, y = (as_float(select(finite, t, one)) for t in bits)
    r = as_float(select(top < infinity, as_bits(r), one))
    if op in (ADD, SUBTRACT):
        s = x + y
        z = s - x
        rest = (x - (s - z)) + (y - z)
        inexact, tiny = (s != r) | (rest != 0.0), (as_bits(s) & ~sign) < _NORMAL_IN_WIDE
    elif op == MULTIPLY:
        p = x * y
        inexact, tiny = p != r, as_float(as_bits(p) & ~sign) < _TINY
    elif op == DIVIDE:
        a, b = (as_float(as_bits(t) & ~sign) for t in (x, y))
        inexact, tiny = r * y != x, a < b * _TINY
    else:
        inexact, tiny = r * r != x, none != none
    marks = select(inexact, select(tiny, none + 3, none + 1), none)
    return select(over, none + 5, marks)


@formula
def native_summary(events, rule):
    """Flags that a NaN raises by the rule alone."""
    none = rule.drop ^ rule.drop
    return or_lanes(select(events[0] > infinity_like(sign_like(none)), rule.nan_flags, none))
