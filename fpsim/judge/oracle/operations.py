"""Every operation on codes: the special cases of the standard, then one exact rounding.

Source    IEEE 754-2019 §5, §6, §7; docs/semantics.md §3.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from fpsim.judge.oracle.rounding import (
    HALF,
    PAYLOAD_BITS,
    Datum,
    OracleSettings,
    canonical_nan,
    decode,
    encode,
    infinity,
    largest,
    overflow_value,
    power,
    round_integer,
    round_real,
    signed,
)
from fpsim.records.flags import Flags
from fpsim.records.formats import Format

__all__ = ["convert", "from_integer", "operate", "to_integer"]

#: Binary digits of a square root before its sticky digit; more than precision + random bits + 2.
ROOT_DIGITS = 200

INTEGERS = {
    "i32": (-(2**31), 2**31 - 1),
    "i64": (-(2**63), 2**63 - 1),
    "ui32": (0, 2**32 - 1),
    "ui64": (0, 2**64 - 1),
}


# NaN -----------------------------------------------------------------------------------------


def no_number(fmt: Format, flags: Flags) -> tuple[int, Flags] | None:
    """What a format without NaN gives in its place: the largest value, with INVALID."""
    return None if fmt.has_nan else (largest(0, fmt), flags | Flags.INVALID)


def created_nan(fmt: Format, s: OracleSettings, flags: Flags = Flags.INVALID) -> tuple[int, Flags]:
    """The NaN of an invalid operation on numbers."""
    return no_number(fmt, flags) or (canonical_nan(fmt, int(s.nan == "x86")), flags)


def nan_flags(operands: list[Datum], s: OracleSettings) -> Flags:
    """INVALID for a signalling NaN, and for every NaN with `quiet_nan_raises`."""
    nans = [d for d in operands if d.kind == "nan"]
    raises = any(d.signalling for d in nans) or (bool(nans) and s.quiet_nan_raises)
    return Flags.INVALID if raises else Flags.NONE


def nan_result(operands: list[Datum], fmt: Format, s: OracleSettings) -> tuple[int, Flags] | None:
    """The result where an operand is NaN, None where none is."""
    first = next((d for d in operands if d.kind == "nan"), None)
    if first is None:
        return None
    flags = nan_flags(operands, s)
    if not fmt.has_nan:
        return no_number(fmt, flags)
    if s.nan == "canonical" or fmt.specials != "ieee":
        sign = 0 if s.nan == "canonical" else first.sign
        return canonical_nan(fmt, sign), flags
    payload = first.payload >> (PAYLOAD_BITS - (fmt.precision - 1))
    quiet = 1 << (fmt.precision - 2)
    return infinity(first.sign, fmt) + (payload | quiet), flags


# Operations ----------------------------------------------------------------------------------


def read(code: int, fmt: Format, s: OracleSettings) -> Datum:
    """An operand; `flush_both` reads a subnormal as a zero, of its sign where zeros have one."""
    d = decode(code, fmt)
    if s.subnormals == "flush_both" and d.kind == "finite" and d.magnitude < power(fmt.emin):
        return Datum("finite", d.sign if fmt.has_negative_zero else 0)
    return d


def add(x: Datum, y: Datum, fmt: Format, s: OracleSettings) -> tuple[int, Flags]:
    if x.kind == y.kind == "infinite" and x.sign != y.sign:
        return created_nan(fmt, s)
    for d in (x, y):
        if d.kind == "infinite":
            return infinity(d.sign, fmt), Flags.NONE
    return round_real(x.value + y.value, fmt, s, zero_sum_sign(x.sign, y.sign, s))


def zero_sum_sign(x: int, y: int, s: OracleSettings) -> int:
    """Sign of an exactly zero sum: the common sign, else + except when rounding down."""
    return x if x == y else int(s.rounding.name == "RTN")


def subtract(x: Datum, y: Datum, fmt: Format, s: OracleSettings) -> tuple[int, Flags]:
    return add(x, y._replace(sign=1 - y.sign), fmt, s)


def multiply(x: Datum, y: Datum, fmt: Format, s: OracleSettings) -> tuple[int, Flags]:
    sign = x.sign ^ y.sign
    if "infinite" in (x.kind, y.kind):
        if x.is_zero or y.is_zero:
            return created_nan(fmt, s)
        return infinity(sign, fmt), Flags.NONE
    return round_real(x.value * y.value, fmt, s, sign)


def divide(x: Datum, y: Datum, fmt: Format, s: OracleSettings) -> tuple[int, Flags]:
    sign = x.sign ^ y.sign
    if (x.is_zero and y.is_zero) or x.kind == y.kind == "infinite":
        return created_nan(fmt, s)
    if x.kind == "infinite":
        return infinity(sign, fmt), Flags.NONE
    if y.kind == "infinite":
        return encode(sign, Fraction(0), fmt), Flags.NONE
    if y.is_zero:
        return divided_by_zero(sign, fmt, s)
    return round_real(x.value / y.value, fmt, s, sign)


def divided_by_zero(sign: int, fmt: Format, s: OracleSettings) -> tuple[int, Flags]:
    """x/0: an infinity; where the format has none, what its overflow policy gives."""
    if s.divide_by_zero == "nan":
        return created_nan(fmt, s, Flags.DIVBYZERO)
    policy = "infinity" if fmt.has_infinity else s.overflow
    return overflow_value(sign, fmt, policy), Flags.DIVBYZERO


def sqrt(x: Datum, fmt: Format, s: OracleSettings) -> tuple[int, Flags]:
    if x.is_zero:
        return encode(x.sign, Fraction(0), fmt), Flags.NONE
    if x.sign:
        return created_nan(fmt, s)
    if x.kind == "infinite":
        return infinity(0, fmt), Flags.NONE
    return round_real(root_to_odd(x.magnitude), fmt, s)


def root_to_odd(x: Fraction) -> Fraction:
    """sqrt(x), or where it is irrational a number between the same ROOT_DIGITS-digit neighbours."""
    scale = 1 << ROOT_DIGITS
    radicand = x.numerator * x.denominator * scale * scale
    root = math.isqrt(radicand)
    sticky = HALF if root * root != radicand else Fraction(0)
    return (root + sticky) / (x.denominator * scale)


def fma(x: Datum, y: Datum, z: Datum, fmt: Format, s: OracleSettings) -> tuple[int, Flags]:
    sign = x.sign ^ y.sign
    if "infinite" in (x.kind, y.kind):
        if x.is_zero or y.is_zero:
            return created_nan(fmt, s)
        return add(Datum("infinite", sign), z, fmt, s)
    return add(Datum("finite", sign, x.magnitude * y.magnitude), z, fmt, s)


def ieee_remainder(x: Datum, y: Datum, fmt: Format, s: OracleSettings) -> tuple[int, Flags]:
    return remainder(x, y, fmt, s, nearest=True)


def fmod(x: Datum, y: Datum, fmt: Format, s: OracleSettings) -> tuple[int, Flags]:
    return remainder(x, y, fmt, s, nearest=False)


def remainder(
    x: Datum, y: Datum, fmt: Format, s: OracleSettings, nearest: bool
) -> tuple[int, Flags]:
    """x - n y with n the nearest integer to x/y (ties even), or x/y truncated; always exact."""
    if x.kind == "infinite" or y.is_zero:
        return created_nan(fmt, s)
    if y.kind == "infinite":
        return round_real(x.value, fmt, s, x.sign)
    quotient = x.value / y.value
    n = round(quotient) if nearest else math.trunc(quotient)
    return round_real(x.value - n * y.value, fmt, s, x.sign)


def round_to_integral(x: Datum, fmt: Format, s: OracleSettings) -> tuple[int, Flags]:
    """The integer that the mode names; one that is subnormal is flushed as every result is."""
    if x.kind == "infinite":
        return infinity(x.sign, fmt), Flags.NONE
    n = Fraction(abs(round_integer(x.value, s, fmt)))
    if n > Fraction(fmt.max):
        return overflow_value(x.sign, fmt, s.overflow), Flags.OVERFLOW | Flags.INEXACT
    if 0 < n < power(fmt.emin) and s.subnormals != "keep":
        return encode(x.sign, Fraction(0), fmt), Flags.UNDERFLOW | Flags.INEXACT
    return encode(x.sign, n, fmt), Flags.NONE if n == x.magnitude else Flags.INEXACT


def maximum(x: Datum, y: Datum, fmt: Format, s: OracleSettings) -> tuple[int, Flags]:
    return recode(max(x, y, key=order), fmt), Flags.NONE


def minimum(x: Datum, y: Datum, fmt: Format, s: OracleSettings) -> tuple[int, Flags]:
    return recode(min(x, y, key=order), fmt), Flags.NONE


def order(d: Datum) -> tuple[int, Fraction, int]:
    """Sorts numbers by value, -0 before +0."""
    infinite = d.kind == "infinite"
    return (0 if not infinite else -1 if d.sign else 1, d.value, -d.sign)


def recode(d: Datum, fmt: Format) -> int:
    if d.kind == "infinite":
        return infinity(d.sign, fmt)
    return encode(d.sign, d.magnitude, fmt)


ARITHMETIC: dict[str, Callable[..., tuple[int, Flags]]] = {
    f.__name__: f
    for f in (
        add, subtract, multiply, divide, sqrt, fma, ieee_remainder, fmod, round_to_integral,
        maximum, minimum,
    )
}

COMPARISONS = {
    "equal": lambda x, y: x == y,
    "less": lambda x, y: x < y,
    "less_equal": lambda x, y: x <= y,
}


def compare(op: str, x: Datum, y: Datum, s: OracleSettings) -> tuple[int, Flags]:
    """0 or 1; the `_signalling` ones raise INVALID for every NaN."""
    name = op.removesuffix("_signalling")
    if "nan" in (x.kind, y.kind):
        return 0, Flags.INVALID if name != op else nan_flags([x, y], s)
    # Zeros are equal whatever their signs.
    return int(COMPARISONS[name](order(x)[:2], order(y)[:2])), Flags.NONE


def number_wins(op: str, x: Datum, y: Datum, fmt: Format, s: OracleSettings) -> tuple[int, Flags]:
    """fmax, fmin: a NaN counts only where both operands are."""
    numbers = [d for d in (x, y) if d.kind != "nan"] or [x, y]
    both = numbers * 2 if len(numbers) == 1 else numbers
    base = maximum if op == "fmax" else minimum
    code, flags = nan_result(both, fmt, s) or base(both[0], both[1], fmt, s)
    return code, flags | nan_flags([x, y], s)


def change_sign(op: str, code: int, fmt: Format) -> tuple[int, Flags]:
    """negative, absolute: the sign digit alone, also of a NaN (FNUZ zero and NaN have none)."""
    sign, body = divmod(code, 1 << (fmt.bits - 1))
    if not fmt.has_negative_zero and body == 0:
        return code, Flags.NONE
    return signed(1 - sign if op == "negative" else 0, body, fmt), Flags.NONE


def operate(
    op: str, codes: tuple[int, ...], fmt: Format, settings: OracleSettings | None = None
) -> tuple[int, Flags]:
    """Code (0 or 1 for comparisons) and flags of one operation inside a format.

    >>> from fpsim.records.formats import BINARY16
    >>> code, flags = operate("divide", (0x3C00, 0x8000), BINARY16)
    >>> hex(code), flags
    ('0xfc00', <Flags.DIVBYZERO: 8>)
    """
    s = settings or OracleSettings()
    if op in ("negative", "absolute"):
        return change_sign(op, codes[0], fmt)
    operands = [read(code, fmt, s) for code in codes]
    if op.removesuffix("_signalling") in COMPARISONS:
        return compare(op, operands[0], operands[1], s)
    if op in ("fmax", "fmin"):
        return number_wins(op, operands[0], operands[1], fmt, s)
    if op == "fma" and is_invalid_product(operands[0], operands[1]):
        return invalid_fma(operands, fmt, s)
    return nan_result(operands, fmt, s) or ARITHMETIC[op](*operands, fmt, s)


def is_invalid_product(x: Datum, y: Datum) -> bool:
    return {x.kind, y.kind} == {"infinite", "finite"} and (x.is_zero or y.is_zero)


def invalid_fma(operands: list[Datum], fmt: Format, s: OracleSettings) -> tuple[int, Flags]:
    """fma(inf, 0, z): INVALID under every policy, also for a quiet NaN z."""
    if s.nan == "x86":
        return created_nan(fmt, s)
    code, _ = nan_result(operands, fmt, s) or created_nan(fmt, s)
    return code, Flags.INVALID


def convert(
    code: int, source: Format, fmt: Format, settings: OracleSettings | None = None
) -> tuple[int, Flags]:
    """A code of `source` rounded into fmt.

    Flushing operands concerns those of fmt itself; another source's subnormals are numbers.

    >>> from fpsim.records.formats import BINARY16, E4M3FN
    >>> code, flags = convert(0x7C00, BINARY16, E4M3FN)
    >>> hex(code), flags
    ('0x7f', <Flags.INEXACT|OVERFLOW: 5>)
    """
    s = settings or OracleSettings()
    x = read(code, source, s) if source == fmt else decode(code, source)
    if x.kind == "infinite":
        return convert_infinity(x.sign, fmt, s)
    return nan_result([x], fmt, s) or round_real(x.value, fmt, s, x.sign)


def convert_infinity(sign: int, fmt: Format, s: OracleSettings) -> tuple[int, Flags]:
    if fmt.has_infinity and s.infinite_input in (None, "keep"):
        return infinity(sign, fmt), Flags.NONE
    policy = s.infinite_input or s.overflow
    return overflow_value(sign, fmt, policy), Flags.OVERFLOW | Flags.INEXACT


def from_integer(n: int, fmt: Format, settings: OracleSettings | None = None) -> tuple[int, Flags]:
    """An integer rounded into fmt, once."""
    return round_real(Fraction(n), fmt, settings or OracleSettings())


def to_integer(
    code: int, fmt: Format, kind: str, settings: OracleSettings | None = None
) -> tuple[int, Flags]:
    """A code as i32, i64, ui32 or ui64; what does not fit gives INVALID alone.

    >>> from fpsim.records.formats import BINARY16
    >>> to_integer(0xFC00, BINARY16, "i32")
    (-2147483648, <Flags.INVALID: 16>)
    """
    s = settings or OracleSettings()
    low, high = INTEGERS[kind]
    x = read(code, fmt, s)
    invalid = low if low else high
    if x.kind != "finite":
        return invalid, Flags.INVALID
    n = round_integer(x.value, s, fmt)
    if not low <= n <= high:
        return invalid, Flags.INVALID
    return n, Flags.NONE if n == x.value else Flags.INEXACT
