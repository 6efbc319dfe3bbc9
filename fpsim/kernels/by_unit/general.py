"""Any matrix unit, one output after the other, in integers: right for every record and operand.

An operand is a signed significand and the exponent of its unit digit. The fast kernels of the
common units must give what this one gives; it also serves them for infinities, NaN and overflow.

One call sums the exact products and the accumulator, all cut to multiples of 2**(emax - window)
or not cut at all, and rounds the sum once. Uncut sums are collected in limbs of 32 bits, so that
no spread of exponents and no cancellation loses a digit.

Source    docs/semantics.md §5.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from llvmlite import ir
from numba import njit
from numba.core import types
from numba.extending import intrinsic

from fpsim.kernels.by_unit.limbs import LIMBS, put, take
from fpsim.kernels.compiling import INLINE, compiled
from fpsim.kernels.lanes.memory import pointer

__all__ = ["SPECIAL", "UnitParameters", "run_pass", "split_operand"]

#: Exponent of what is no number; its significand: ±1 infinity, 2 quiet NaN, 3 signalling NaN.
SPECIAL = 1 << 20
QUIET, SIGNALLING = 2, 3

#: Flags of a unit, as everywhere.
OVERFLOW, INVALID = 4, 16

NOTHING = -(1 << 30)
CANONICAL_NAN, INFINITY, SIGN = 0x7FC00000, 0x7F800000, 0x80000000


class UnitParameters(NamedTuple):
    """A unit as numbers."""

    terms: int  # products of one call
    calls: int  # calls of one pass
    window: int  # fraction digits of an aligned addend; -1: not cut
    sticky: int  # digits that are cut off leave an odd last digit
    fraction: int  # fraction digits of a product of two significands
    scale: int  # added to the exponent of every product
    precision: int  # of the accumulator, with its range …
    emin: int
    emax: int
    to_zero: int  # … and its rounding: RTZ, else RNE
    join: int  # digits of the addition of the partial after the calls (0: it enters the first) …
    join_emin: int  # … with the range of its format; to nearest even
    join_emax: int
    join_flush: int  # … whose tiny sums become zero
    product: int  # digits of products that are rounded first (0: they are exact) …
    product_emin: int  # … with the range of their format
    product_emax: int
    product_flush: int
    flush_in: int  # subnormal partials are read as zero
    flush_out: int  # tiny sums become zero
    tiny_before: int  # tiny before rounding, else after
    loud_nan: int  # every NaN raises INVALID


@intrinsic
def _digits(typingctx, m):
    """Length of a positive integer in binary digits."""

    def codegen(context, builder, sig, args):
        zeros = builder.ctlz(args[0], ir.Constant(ir.IntType(1), 0))
        return builder.sub(ir.Constant(ir.IntType(64), 64), zeros)

    return types.int64(types.int64), codegen


@compiled
def split_operand(bits, significands, exponents, precision, emin, flush):
    """binary32 codes (R, K) of a format as significands and exponents, padded with zeros."""
    rows, n = bits.shape
    for i in range(rows):
        for k in range(significands.shape[1]):
            significand, e = np.int64(0), np.int64(NOTHING)
            code = np.int64(bits[i, k]) if k < n else np.int64(0)
            magnitude = code & 0x7FFFFFFF
            if magnitude > INFINITY:
                significand, e = QUIET if code & 0x400000 else SIGNALLING, SPECIAL
            elif magnitude == INFINITY:
                significand, e = 1, SPECIAL
            elif magnitude:
                field = magnitude >> 23
                significand = magnitude & 0x7FFFFF
                if field:
                    significand |= 0x800000
                e = max(field, 1) - 127
                significand >>= max(emin - e, 0) + 24 - precision
                e = max(e, emin)
                if flush and significand < 1 << (precision - 1):
                    significand, e = 0, NOTHING
            negative = code & SIGN and magnitude <= INFINITY
            significands[i, k] = -significand if negative else significand
            exponents[i, k] = e


@njit(**INLINE)
def _nearest(m, d, to_zero):
    """m / 2**d as an integer, rounded to nearest even or toward zero."""
    if d <= 0:
        return m << -d
    if d > 62:
        return np.int64(0)
    n = m >> d
    rest, half = m & ((np.int64(1) << d) - 1), np.int64(1) << (d - 1)
    if to_zero == 0 and (rest > half or (rest == half and n & 1)):
        n += 1
    return n


@njit(**INLINE)
def _round(m, q, precision, emin, emax, to_zero, flush, before):
    """m * 2**q (m > 0, m < 2**62) rounded: significand, exponent of its last digit, overflow."""
    e = q + _digits(m) - 1
    unit = max(e, emin) - precision + 1
    n = _nearest(m, unit - q, to_zero)
    if flush and e < emin:
        unbounded = _nearest(m, e - precision + 1 - q, to_zero)
        if before or e < emin - 1 or unbounded < np.int64(1) << precision:
            n = np.int64(0)
    if n > 0 and unit + _digits(n) - 1 > emax:
        if to_zero:
            return (np.int64(1) << precision) - 1, emax - precision + 1, True
        return np.int64(0), np.int64(SPECIAL), True
    return n, unit, False


@njit(**INLINE)
def _cut(value, shift, sticky):
    """value * 2**shift toward zero, or to odd."""
    if shift >= 0:
        return value << shift
    magnitude = abs(value)
    d = min(-shift, 62)
    digits = magnitude >> d
    if sticky and digits << d != magnitude:
        digits |= 1
    return digits if value >= 0 else -digits


@njit(**INLINE)
def _code(negative, n, unit):
    """binary32 code of a value: n * 2**unit, or infinity."""
    sign = np.int64(SIGN) if negative else np.int64(0)
    if unit == SPECIAL:
        return sign | INFINITY
    if n == 0:
        return sign
    e = max(unit + _digits(n) - 1, -126)
    significand = _nearest(n, e - 23 - unit, 1)  # exact
    if significand < 0x800000:
        return sign | significand
    return sign | (e + 127) << 23 | (significand & 0x7FFFFF)


@njit(**INLINE)
def _read(code, flush):
    """Signed significand of 24 digits and exponent of a binary32 code; NaN 2 or 3, infinity ±1."""
    magnitude = code & 0x7FFFFFFF
    if magnitude > INFINITY:
        return np.int64(QUIET if code & 0x400000 else SIGNALLING), np.int64(SPECIAL)
    if magnitude == INFINITY:
        return np.int64(-1 if code & SIGN else 1), np.int64(SPECIAL)
    if magnitude == 0:
        return np.int64(0), np.int64(NOTHING)
    field = magnitude >> 23
    significand = magnitude & 0x7FFFFF
    if field:
        significand |= 0x800000
    e = max(field, 1) - 127
    if flush and field == 0:
        return np.int64(0), np.int64(NOTHING)
    return (-significand if code & SIGN else significand), np.int64(e)


class Specials(NamedTuple):
    """What the addends of a call that are no numbers say."""

    nan: bool
    up: bool  # +infinity
    down: bool  # -infinity
    flags: int


@njit(**INLINE)
def _see(specials, x, y, ex, ey, loud):
    """One product of which an operand is no number."""
    nan, up, down, flags = specials
    odd_x, odd_y = ex == SPECIAL and abs(x) > 1, ey == SPECIAL and abs(y) > 1
    if odd_x or odd_y:
        nan = True
        if loud or (odd_x and x == SIGNALLING) or (odd_y and y == SIGNALLING):
            flags |= INVALID
    elif x == 0 or y == 0:
        nan, flags = True, flags | INVALID
    elif (x > 0) == (y > 0):
        up = True
    else:
        down = True
    return Specials(nan, up, down, flags)


@njit(**INLINE)
def _settle(specials):
    """Code of a sum with an addend that is no number, and flags."""
    if specials.nan:
        return np.int64(CANONICAL_NAN), specials.flags
    if specials.up and specials.down:
        return np.int64(CANONICAL_NAN), specials.flags | INVALID
    return np.int64(INFINITY | (SIGN if specials.down else 0)), specials.flags


@njit(**INLINE)
def _product(x, y, e, call):
    """x * y with that sum of exponents: value, exponent of its last digit, its exponent, overflow.

    One that is rounded first has the exponent of the rounded number, NOTHING if it is zero, and
    SPECIAL if it is infinite; its value is the sign then.
    """
    p = x * y
    if call.product == 0:
        return p, e + call.scale - call.fraction, e + call.scale, False
    n, last, over = _round(
        abs(p), e + call.scale - call.fraction, call.product, call.product_emin,
        call.product_emax, call.to_zero, call.product_flush, call.tiny_before,
    )
    sign = np.int64(1 if p > 0 else -1)
    if last == SPECIAL:
        return sign, last, last, over
    exponent = np.int64(NOTHING)
    if n != 0:
        exponent = max(last + _digits(n) - 1, np.int64(call.product_emin))
    return n * sign, last, exponent, over


@njit(**INLINE)
def _scan(sa, ea, i, sb, eb, j, c, ec, call):
    """The largest exponent of a call, what its special addends say, and whether there is one."""
    specials = Specials(False, False, False, 0)
    emax, special = ec, ec == SPECIAL
    if special:
        specials = _see(specials, c, np.int64(1), ec, np.int64(0), call.loud_nan)
    elif c != 0:
        emax = max(ec, np.int64(call.emin))
    for t in range(call.terms):
        x, y = np.int64(sa[i + t]), np.int64(sb[j + t])
        ex, ey = np.int64(ea[i + t]), np.int64(eb[j + t])
        if ex == SPECIAL or ey == SPECIAL:
            specials = _see(specials, x, y, ex, ey, call.loud_nan)
            special = True
        elif x != 0 and y != 0:
            p, _, e, over = _product(x, y, ex + ey, call)
            if over:
                raised = specials.flags | OVERFLOW
                specials = Specials(specials.nan, specials.up, specials.down, raised)
            if e == SPECIAL:
                specials = _see(specials, p, np.int64(1), e, np.int64(0), call.loud_nan)
                special = True
            else:
                emax = max(emax, e)
    return emax, specials, special


@njit(**INLINE)
def _windowed_sum(sa, ea, i, sb, eb, j, c, ec, emax, call):
    """Addends cut to multiples of 2**q, q = emax - window, and added: sign, magnitude, q."""
    q = emax - call.window
    total = np.int64(0)
    if c != 0:
        total = _cut(c, ec - 23 - q, call.sticky)
    for t in range(call.terms):
        x, y = np.int64(sa[i + t]), np.int64(sb[j + t])
        if x != 0 and y != 0:
            p, lsb, _, _ = _product(x, y, np.int64(ea[i + t]) + np.int64(eb[j + t]), call)
            total += _cut(p, lsb - q, call.sticky)
    return total < 0, abs(total), q


@njit(**INLINE)
def _uncut_sum(sa, ea, i, sb, eb, j, c, ec, call, limbs):
    """All digits of the sum in limbs, which are emptied: sign, leading digits, their exponent."""
    reach = (LIMBS, 0)
    if c != 0:
        reach = put(limbs, reach, c, ec - 23)
    for t in range(call.terms):
        x, y = np.int64(sa[i + t]), np.int64(sb[j + t])
        if x == 0 or y == 0:
            continue
        p, lsb, _, _ = _product(x, y, np.int64(ea[i + t]) + np.int64(eb[j + t]), call)
        reach = put(limbs, reach, p, lsb)
    if reach[0] > reach[1]:
        return False, np.int64(0), np.int64(0)
    return take(limbs, reach)


@njit(**INLINE)
def _one_call(sa, ea, i, sb, eb, j, code, flush, call, limbs):
    """The accumulator after the products that begin at i of a row, at j of a column; and flags.

    flush   an accumulator that is a subnormal of binary32 is read as zero.
    """
    c, ec = _read(code, flush)
    emax, specials, special = _scan(sa, ea, i, sb, eb, j, c, ec, call)
    if special:
        return _settle(specials)
    if emax == NOTHING:
        return np.int64(0), specials.flags
    if call.window >= 0:
        negative, m, q = _windowed_sum(sa, ea, i, sb, eb, j, c, ec, emax, call)
    else:
        negative, m, q = _uncut_sum(sa, ea, i, sb, eb, j, c, ec, call, limbs)
    if m == 0:
        return np.int64(0), specials.flags
    n, unit, over = _round(
        m, q, call.precision, call.emin, call.emax, call.to_zero, call.flush_out, call.tiny_before
    )
    return _code(negative, n, unit), specials.flags | (OVERFLOW if over else 0)


@njit(**INLINE)
def _join(code, other, call, limbs):
    """Two numbers added with one rounding to nearest even in the format of the join, and flags."""
    x, ex = _read(code, call.flush_in)
    y, ey = _read(other, 0)
    if ex == SPECIAL or ey == SPECIAL:
        specials = Specials(False, False, False, 0)
        one, none = np.int64(1), np.int64(0)
        if ex == SPECIAL:
            specials = _see(specials, x, one, ex, none, call.loud_nan)
        if ey == SPECIAL:
            specials = _see(specials, y, one, ey, none, call.loud_nan)
        return _settle(specials)
    reach = (LIMBS, 0)
    if x != 0:
        reach = put(limbs, reach, x, ex - 23)
    if y != 0:
        reach = put(limbs, reach, y, ey - 23)
    if reach[0] > reach[1]:
        return np.int64(0), 0
    negative, m, q = take(limbs, reach)
    if m == 0:
        return np.int64(0), 0
    n, unit, over = _round(
        m, q, call.join, call.join_emin, call.join_emax, 0, call.join_flush, call.tiny_before
    )
    return _code(negative, n, unit), OVERFLOW if over else 0


@compiled
def run_pass(sa, ea, sb, eb, k, partials, element_flags, call):
    """One pass over products k … of every row and column; partials (rows, columns) are codes.

    sa, ea (rows, K) and sb, eb (columns, K) are the operands as `split_operand` leaves them;
    element_flags uint8 (rows, columns) collects the flags of each output. Returns the flags of all.
    """
    room = np.zeros(LIMBS, np.int64)
    limbs = pointer(room)
    psa, pea = pointer(sa.reshape(-1)), pointer(ea.reshape(-1))
    psb, peb = pointer(sb.reshape(-1)), pointer(eb.reshape(-1))
    depth = sa.shape[1]
    raised = 0
    for row in range(sa.shape[0]):
        for column in range(sb.shape[0]):
            partial = np.int64(partials[row, column])
            code = np.int64(0) if call.join else partial
            flags = 0
            for n in range(call.calls):
                q = k + n * call.terms
                code, more = _one_call(
                    psa, pea, row * depth + q, psb, peb, column * depth + q, code,
                    call.flush_in if n == 0 else 0, call, limbs,
                )
                flags |= more
            if call.join:
                code, more = _join(partial, code, call, limbs)
                flags |= more
            partials[row, column] = np.uint32(code)
            element_flags[row, column] |= np.uint8(flags)
            raised |= flags
    # The room is named once more so that it outlives its pointer.
    return raised | (room[0] & 0)
