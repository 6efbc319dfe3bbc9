"""Elementary functions in binary64 as a sum of two numbers, in lanes, and that sum rounded to odd.

A value f(x) is enclosed by `high + low ± error`, where `low` holds what makes f(x) differ from a
simple number near it: 1 + x for exp of a small x, x - x**3/3 for tanh. So a small `error` decides
every rounding of such a value too. Where `error` is 0 the sum is the value itself, but for exp
beyond ±700 and sigmoid below -700, which no longer change: no narrower format reaches that far.

Only + - * / and exact scalings are used, each rounded alone: the numbers are the same on every
machine. Arguments are finite values of precision <= 26; of others the results mean nothing.

Source    Tang, ACM TOMS 15 (1989) and 16 (1990): table of 2**(j/32); atanh series; Taylor series.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir

from fpsim.kernels.compiling import compiled
from fpsim.kernels.lanes.formula import formula, instruction
from fpsim.kernels.lanes.memory import (
    copy_item,
    copy_items,
    load_float,
    pointer,
    room,
    store,
    store_float,
    store_low,
)
from fpsim.kernels.lanes.vectors import (
    U64,
    as_bits,
    as_float,
    infinity_like,
    or_lanes,
    select,
    sign_like,
    splat,
)

__all__ = [
    "ATANH", "COMPILED", "ERF_DEGREE", "ERF_LIMIT", "ERF_STEP", "EXP", "IN_DOUBT", "LN2_HIGH",
    "LN2_LOW", "NOT_ORDINARY", "enclosing_kernel", "rounding_kernel",
]

#: Functions that are compiled, by the numbers that kernels capture.
COMPILED = {name: number for number, name in enumerate(("exp", "log", "tanh", "sigmoid", "erf"))}

#: ln 2 to 160 bits, from its series sum 1/(k 2**k).
_LN2 = sum((Fraction(1, k << k) for k in range(1, 161)), Fraction(0))
_STEPS = float(32 / _LN2)
#: ln 2 / 32 in two parts: multiples of the first up to 2**16 are exact.
_STEP_HIGH = float(Fraction(int(_LN2 * (1 << 32)), 1 << 37))
_STEP_LOW = float(_LN2 / 32 - Fraction(_STEP_HIGH))
LN2_HIGH = _STEP_HIGH * 32
LN2_LOW = _STEP_LOW * 32
#: Coefficients of series, the highest first: of exp from r**2/2 on, and of atanh's in squares.
EXP = [1.0 / math.factorial(k) for k in range(7, 1, -1)]
ATANH = [2.0 / k for k in range(23, 2, -2)]

_EXP_LIMIT = 700.0
#: Beyond, tanh is 1 less something below every digit kept: `low` tells the side.
_TANH_LIMIT = 40.0
#: erf is a Taylor polynomial around the nearest of these: j / 16, up to 6.
ERF_STEP, ERF_LIMIT, ERF_DEGREE = 16, 6, 13
_ERF_POINTS = ERF_STEP * ERF_LIMIT + 1

#: Added to a number of up to 50 digits, it leaves the nearest integer in the last bits.
_ROUNDER = 1.5 * 2.0**52
#: Bits of a fraction; the exponent field of 1/2; 2**52, whose last bits count.
_FRACTION, _HALF, _COUNTER = 52, 0x3FE << 52, 0x433 << 52
_LANES = 8

#: What `rounding_kernel` sees: an x without such an enclosure; a result in doubt.
NOT_ORDINARY, IN_DOUBT = 1, 2


def _tanh_series() -> list[float]:
    """Coefficients of x**25 … x**3: tanh' = 1 - tanh**2 gives each from those before."""
    coefficients = [Fraction(1)]
    for k in range(1, 13):
        square = sum((coefficients[i] * coefficients[k - 1 - i] for i in range(k)), Fraction(0))
        coefficients.append(-square / (2 * k + 1))
    return [float(c) for c in coefficients[:0:-1]]


_TANH = _tanh_series()


@instruction
def _entries(typingctx: Any, table: Any, first: Any, index: Any) -> Any:
    """table[first + index] of each lane's index."""
    lanes = index.of("f", 64)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        start = builder.gep(args[0], [args[1]])
        result: Any = ir.Constant(lanes.vector, ir.Undefined)
        for k in range(lanes.n):
            lane = ir.Constant(ir.IntType(32), k)
            at = builder.gep(start, [builder.extract_element(args[2], lane)])
            result = builder.insert_element(result, builder.load(at), lane)
        return result

    return lanes(table, first, index), codegen


def _horner(coefficients: Sequence[Any], x: Any) -> Any:
    result = coefficients[0] * x
    for c in coefficients[1:-1]:
        result = (result + c) * x
    return result + coefficients[-1]


def _two_sum(x: Any, y: Any) -> tuple[Any, Any]:
    total = x + y
    back = total - x
    return total, (x - (total - back)) + (y - back)


def _size(x: Any) -> Any:
    bits = as_bits(x)
    return as_float(bits & ~sign_like(bits))


def _constant(value: float, like: Any) -> Any:
    """A number in all lanes."""
    bits = as_bits(like)
    return as_float((bits ^ bits) | int(np.float64(value).view(np.uint64)))


def _at_most(x: Any, limit: float) -> Any:
    return select(x < limit, x, _constant(limit, x))


def _exp(x: Any, table: Any) -> tuple[Any, Any, Any]:
    """2**k T (1 + r + r**2/2 + …) with |r| <= ln 2 / 64.

    The reduction errs by 2**-53 |r| + 2**-72, the series' last term by less than its rounding.
    """
    size, sign = _size(x), sign_like(as_bits(x))
    inside = size < _EXP_LIMIT
    x = as_float(as_bits(_at_most(size, _EXP_LIMIT)) | (as_bits(x) & sign))
    counted = x * _STEPS + _ROUNDER
    n, steps = counted - _ROUNDER, as_bits(counted)
    r = (x - n * _STEP_HIGH) - n * _STEP_LOW
    row = steps & 31
    power = as_float(((steps >> 5) << _FRACTION) + (1023 << _FRACTION))
    base = _entries(table, 0, row)
    rest = base * (r + r * r * _horner(EXP, r)) + _entries(table, 32, row)
    error = _size(r) * 2.0**-50 + select(n != 0.0, _constant(2.0**-69, r), _constant(0.0, r))
    error = error * (power + power)
    return base * power, rest * power, select(inside, error, _constant(0.0, r))


def _log(x: Any, table: Any) -> tuple[Any, Any, Any]:
    """e ln 2 + log m, log m = 2 f + 2/3 f**3 + …, f = (m - 1) / (m + 1) with its remainder."""
    bits = as_bits(x)
    m = as_float((bits & ((1 << _FRACTION) - 1)) | _HALF)
    e = as_float((bits >> _FRACTION) | _COUNTER) - (2.0**52 + 1022.0)
    low = m < 0.7071067811865476
    m, e = select(low, 2.0 * m, m), select(low, e - 1.0, e)
    above, below = m - 1.0, m + 1.0
    f = above / below
    # f in two halves of 26 digits: their products with m + 1, which has 27, are exact.
    split = f * 134217729.0
    coarse = split - (split - f)
    remainder = ((above - coarse * below) - (f - coarse) * below) / below
    square = f * f
    series = f * square * _horner(ATANH, square)
    high, rest = _two_sum(e * LN2_HIGH, 2.0 * f)
    rest = rest + (series + 2.0 * remainder + e * LN2_LOW)
    error = _size(series) * 2.0**-48 + _size(remainder) * 2.0**-50
    return high, rest, error + select(e != 0.0, _constant(2.0**-58, f), _constant(0.0, f))


def _odd(x: Any, high: Any, low: Any) -> tuple[Any, Any]:
    """f(x) from f(|x|), f odd."""
    sign = as_bits(x) & sign_like(as_bits(x))
    return as_float(as_bits(high) | sign), as_float(as_bits(low) ^ sign)


def _tanh(x: Any, table: Any) -> tuple[Any, Any, Any]:
    """1 - 2 / (exp(2 x) + 1) for x > 0; its Taylor series below 1/4. An odd function."""
    size = _size(x)
    grown, more, _ = _exp(2.0 * _at_most(size, _TANH_LIMIT), table)
    drop = 2.0 / (grown + (more + 1.0))
    near = size < 0.25
    small = select(near, size, _constant(0.0, x))
    square = small * small
    bend = small * square * _horner(_TANH, square)
    # What bends the smallest arguments is too small for binary64; only its sign matters.
    least = size < 2.0**-300
    low = select(near, select(least, size * -(2.0**-70), bend), drop * -1.0)
    unsure = _size(low)
    error = select(least | (size > _TANH_LIMIT), unsure, unsure * 2.0**-49)
    return *_odd(x, select(near, size, _constant(1.0, x)), low), error


def _sigmoid(x: Any, table: Any) -> tuple[Any, Any, Any]:
    """(1 + tanh(x/2)) / 2; for x < -1, where that cancels, e - e**2 / (1 + e) with e = exp(x)."""
    half, half_low, half_error = _tanh(x * 0.5, table)
    high, rest = _two_sum(0.5, half * 0.5)
    e, e_low, _ = _exp(_at_most(x, 0.0), table)
    value = e + e_low
    unsure = select(x > -_EXP_LIMIT, value * 2.0**-50, _constant(0.0, x))
    low = x < -1.0
    return (
        select(low, e, high),
        select(low, e_low - value * (value / (1.0 + value)), rest + half_low * 0.5),
        select(low, unsure, half_error * 0.5 + _size(rest) * 2.0**-52),
    )


def _erf(x: Any, table: Any) -> tuple[Any, Any, Any]:
    """erf(a + h) with |h| <= 1/32; beyond 6, 1 less something below every digit kept."""
    size = _at_most(_size(x), float(ERF_LIMIT))
    counted = size * float(ERF_STEP) + _ROUNDER
    nearest = counted - _ROUNDER
    j = as_bits(counted) & 127
    h = size - nearest * (1 / ERF_STEP)
    rows = [_entries(table, (2 + k) * _ERF_POINTS, j) for k in range(ERF_DEGREE)]
    change = h * _horner(rows, h)
    beyond = _size(x) > float(ERF_LIMIT)
    least = _constant(2.0**-56, x)
    high = select(beyond, _constant(1.0, x), _entries(table, 0, j))
    low = select(beyond, -1.0 * least, change + _entries(table, _ERF_POINTS, j))
    error = _size(change) * 2.0**-49 + select(
        nearest > 0.0, _constant(2.0**-80, x), _constant(0.0, x)
    )
    return *_odd(x, high, low), select(beyond, least, error)


_FORMULAS = (_exp, _log, _tanh, _sigmoid, _erf)


@formula
def _enclosed(function, x, table):
    """high, low and error of f(x)."""
    return _FORMULAS[function](x, table)


@formula
def _rounded(function, is_odd, x, xi, out, oi, doubts, di, like, half, mask, least, end, table):
    """f(x) rounded to odd; IN_DOUBT where it may not be, NOT_ORDINARY where x has no enclosure.

    In doubt is what lies as near as its error to a place where a rounding changes its mind.
    """
    none = like ^ like
    sign, bits = sign_like(none), as_bits(load_float(x, xi, like))
    bits = select(as_float(bits & ~sign) < least, bits & sign, bits)
    x = as_float(bits)
    ordinary = ((bits & ~sign) < infinity_like(none)) & (x > end)
    if is_odd:
        ordinary = ordinary & (x != 0.0)
    high, low, error = _enclosed(function, x, table)
    nearest = high + low
    rest = (high - nearest) + low
    bits = as_bits(nearest)
    place = as_float((bits + half) & mask)
    inexact = rest != 0.0
    beyond = inexact & (((as_bits(rest) ^ bits) & sign) != 0)
    odd = select(beyond, bits - 1, bits)
    store(out, oi, select(inexact, odd | 1, odd))
    doubt = ordinary & (_size((nearest - place) + rest) < error)
    store_low(doubts, di, select(doubt, none | 1, none))
    special = select(ordinary, none, none | NOT_ORDINARY)
    return select(doubt, none | IN_DOUBT, none) | special


@cache
def rounding_kernel(name: str) -> Any:
    """events = loop(x, out, doubts, half, mask, least, end, table) of a function in `COMPILED`."""
    FUNCTION, ODD, N = COMPILED[name], name in ("tanh", "erf"), _LANES

    @compiled
    def loop(x, out, doubts, half, mask, least, end, table):
        """out = f(x) rounded to odd at 53 digits; returns what it has seen.

        doubts     marks what is in doubt: another f(x) may round in another way.
        half, mask places where a rounding changes its mind are multiples of 2 half last digits, of
                   which the mask cuts off the rest.
        least      smaller magnitudes are read as zero.
        end        ordinary are finite x beyond it, of an odd function other than 0.

        All are flat and of one length; x is binary32 or binary64, out binary64.
        """
        n = out.shape[0]
        from_x, of_table = pointer(x), pointer(table)
        to_out, to_doubts = pointer(out), pointer(doubts)
        room_x, room_out, room_doubts = room(x, N), room(out, N), room(doubts, N)
        events = like = splat(np.uint64(0), U64)
        whole = n - n % N
        for i in range(0, whole, N):
            events = events | _rounded(
                FUNCTION, ODD, from_x, i, to_out, i, to_doubts, i, like, half, mask, least, end,
                of_table,
            )
        if whole < n:
            copy_items(room_x, from_x, whole, n - 1, N)
            events = events | _rounded(
                FUNCTION, ODD, room_x, 0, room_out, 0, room_doubts, 0, like, half, mask, least, end,
                of_table,
            )
            for k in range(n - whole):
                copy_item(to_out, whole + k, room_out, k)
                copy_item(to_doubts, whole + k, room_doubts, k)
        return np.int64(or_lanes(events))

    return loop


@cache
def enclosing_kernel(name: str) -> Any:
    """loop(x, high, low, error, table) of a function in `COMPILED`: the enclosures of f(x)."""
    FUNCTION, N = COMPILED[name], _LANES

    @compiled
    def loop(x, high, low, error, table):
        """All are flat, of binary64 and of one length."""
        n = x.shape[0]
        from_x, of_table, like = pointer(x), pointer(table), splat(np.uint64(0), U64)
        to_high, to_low, to_error = pointer(high), pointer(low), pointer(error)
        room_x, room_high = room(x, N), room(x, N)
        room_low, room_error = room(x, N), room(x, N)
        for i in range(0, n, N):
            copy_items(room_x, from_x, i, n - 1, N)
            h, w, e = _enclosed(FUNCTION, load_float(room_x, 0, like), of_table)
            store_float(room_high, 0, as_bits(h))
            store_float(room_low, 0, as_bits(w))
            store_float(room_error, 0, as_bits(e))
            for k in range(min(N, n - i)):
                copy_item(to_high, i + k, room_high, k)
                copy_item(to_low, i + k, room_low, k)
                copy_item(to_error, i + k, room_error, k)
        return np.int64(0)

    return loop
