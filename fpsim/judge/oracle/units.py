"""One output of a matrix unit in exact fractions, call by call; used by tests only.

Written from the text of docs/semantics.md §5 and nothing else: slow and obvious.

Source    docs/semantics.md §5.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from fpsim.judge.oracle.rounding import Datum, decode, floor_log2, power, round_exact
from fpsim.records.flags import Flags
from fpsim.records.formats import BINARY32, Format
from fpsim.records.rounding import RNE, Rounding
from fpsim.records.settings import Settings
from fpsim.records.units import MatrixUnit

__all__ = ["Ask", "one_output"]

NAN = Datum("nan", 0)
#: The random word of a rounding place.
Draw = Callable[[int], int]


@dataclass(frozen=True)
class Ask:
    """What an output depends on besides its terms."""

    unit: MatrixUnit
    a: Format
    b: Format
    settings: Settings
    scale: int = 0
    subnormals: str = "keep"


def no_draw(place: int) -> int:
    return 0


def one_output(
    ask: Ask, a: Sequence[int], b: Sequence[int], c: int, draw: Draw = no_draw
) -> tuple[Datum, Flags]:
    """Value and flags of c + sum of a[k] * b[k]; all are codes (c of the partials' format)."""
    unit = ask.unit
    x, y = [operand(v, ask.a, ask) for v in a], [operand(v, ask.b, ask) for v in b]
    start = operand(c, unit.partials, ask)
    if not x:
        return last_rounding(ask, start, draw(0))
    zero = Datum("finite", 0)
    missing = -len(x) % unit.channels
    x, y = x + [zero] * missing, y + [zero] * missing
    partial, flags = start, nan_flags(ask, [start])
    of_pass = len(x) if unit.calls is None else unit.channels
    passes = len(x) // of_pass
    for p in range(passes):
        products = slice(p * of_pass, (p + 1) * of_pass)
        partial, raised = one_pass(ask, x[products], y[products], partial)
        flags |= raised
        if not holds(unit.partials, unit.emitted):
            partial, raised = stored(ask, partial, unit.partials, draw(p))
            flags |= raised
    result, raised = last_rounding(ask, partial, draw(passes))
    return result, flags | raised


def holds(wide: Format, fmt: Format) -> bool:
    """Whether the partials take a sum as it is: infinities, smallest and largest numbers too."""
    if not wide.has_infinity:
        return False
    least, most = power(fmt.emin - fmt.precision + 1), Fraction(fmt.max)
    least_there, most_there = power(wide.emin - wide.precision + 1), Fraction(wide.max)
    return wide.precision >= fmt.precision and least_there <= least and most <= most_there


def operand(code: int, fmt: Format, ask: Ask) -> Datum:
    datum = decode(code, fmt)
    flushed = fmt == BINARY32 and ask.subnormals == "flush_both"
    if flushed and datum.kind == "finite" and datum.magnitude < power(fmt.emin):
        return Datum("finite", datum.sign)
    return datum


def nan_flags(ask: Ask, data: Sequence[Datum]) -> Flags:
    nans = [d for d in data if d.kind == "nan"]
    loud = any(d.signalling for d in nans) or (bool(nans) and ask.settings.quiet_nan_raises)
    return Flags.INVALID if loud else Flags.NONE


def one_pass(ask: Ask, x: list[Datum], y: list[Datum], partial: Datum) -> tuple[Datum, Flags]:
    """The calls of a pass; with a join the partial is added after them."""
    unit = ask.unit
    order = list(range(len(x)))
    if unit.order == "pairs":
        order.sort(key=lambda k: k >> 1 & 1)
    value = Datum("finite", 0) if unit.join else partial
    flags = Flags.NONE
    for first in range(0, len(x), unit.terms):
        taken = order[first : first + unit.terms]
        value, raised = one_call(ask, [x[k] for k in taken], [y[k] for k in taken], value)
        flags |= raised
    if unit.join:
        value, raised = add(ask, [partial, value], unit.join, RNE)
        flags |= raised
    return value, flags


def one_call(ask: Ask, x: list[Datum], y: list[Datum], c: Datum) -> tuple[Datum, Flags]:
    unit = ask.unit
    flags = nan_flags(ask, [*x, *y])
    addends = [c]
    exponents = [] if c.kind != "finite" or c.is_zero else [exponent(c, unit.accumulator)]
    for u, v in zip(x, y, strict=True):
        product, raised = multiply(ask, u, v)
        flags |= raised
        if unit.product_rounded and product.kind == "finite":
            fmt = unit.accumulator if unit.window is None else unit.partials
            product, raised = rounded(ask, product.value, fmt, unit.rounding)
            flags |= raised
            if product.kind == "finite" and not product.is_zero:
                exponents.append(exponent(product, fmt))
        elif product.kind == "finite" and not product.is_zero:
            exponents.append(exponent(u, ask.a) + exponent(v, ask.b) + ask.scale)
        addends.append(product)
    if unit.window is not None and all(d.kind == "finite" for d in addends) and exponents:
        last = power(max(exponents) - unit.window)
        addends = [cut(d, last, unit.cut) for d in addends]
    total, raised = add(ask, addends, unit.accumulator, unit.rounding)
    return total, flags | raised


def exponent(d: Datum, fmt: Format) -> int:
    return max(floor_log2(d.magnitude), fmt.emin)


def multiply(ask: Ask, u: Datum, v: Datum) -> tuple[Datum, Flags]:
    sign = u.sign ^ v.sign
    if "nan" in (u.kind, v.kind):
        return NAN, Flags.NONE
    if "infinite" in (u.kind, v.kind):
        if u.is_zero or v.is_zero:
            return NAN, Flags.INVALID
        return Datum("infinite", sign), Flags.NONE
    return Datum("finite", sign, u.magnitude * v.magnitude * power(ask.scale)), Flags.NONE


def cut(d: Datum, last: Fraction, how: str) -> Datum:
    """The magnitude as a multiple of `last`, truncated or rounded to odd."""
    multiple = math.floor(d.magnitude / last)
    if how == "sticky" and multiple * last != d.magnitude:
        multiple |= 1
    return Datum("finite", d.sign, multiple * last)


def add(ask: Ask, addends: Sequence[Datum], fmt: Format, mode: Rounding) -> tuple[Datum, Flags]:
    """The exact sum, rounded once."""
    if any(d.kind == "nan" for d in addends):
        return NAN, nan_flags(ask, addends)
    signs = {d.sign for d in addends if d.kind == "infinite"}
    if len(signs) == 2:
        return NAN, Flags.INVALID
    if signs:
        return Datum("infinite", signs.pop()), Flags.NONE
    return rounded(ask, sum((d.value for d in addends), Fraction(0)), fmt, mode)


def rounded(ask: Ask, v: Fraction, fmt: Format, mode: Rounding) -> tuple[Datum, Flags]:
    flush = fmt.emin == BINARY32.emin and ask.subnormals != "keep"
    code, flags = round_exact(
        v, fmt, mode, subnormals="flush_results" if flush else "keep",
        tininess=ask.settings.tininess,
    )
    return decode(code, fmt), flags & Flags.OVERFLOW


def stored(ask: Ask, d: Datum, fmt: Format, word: int) -> tuple[Datum, Flags]:
    """A partial read out by the context; an infinite one goes the way of an overflow."""
    s = ask.settings
    overflow = s.overflow
    if d.kind == "nan":
        return NAN, nan_flags(ask, [d])
    if d.kind == "infinite":
        if overflow == "infinity":
            return d, Flags.NONE
        largest = Datum("finite", d.sign, Fraction(fmt.max))
        return (NAN if overflow == "nan" else largest), Flags.OVERFLOW
    code, flags = round_exact(
        d.value, fmt, s.rounding, word=word, sign_of_zero=d.sign, overflow=overflow,
        subnormals=s.subnormals if s.format == fmt else "keep", tininess=s.tininess,
    )
    return decode(code, fmt), flags & Flags.OVERFLOW


def last_rounding(ask: Ask, d: Datum, word: int) -> tuple[Datum, Flags]:
    if ask.settings.format == ask.unit.partials:
        return d, Flags.NONE
    return stored(ask, d, ask.settings.format, word)
