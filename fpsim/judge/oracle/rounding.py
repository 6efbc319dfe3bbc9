"""Codes, exact numbers, and the one rounding, written from the definitions.

With |x| = (m + w) q, 0 <= w < 1, on a grid that goes on above the largest finite value, a mode
decides between m q and (m + 1) q; the rest is what happens at the ends of the range.

Source    IEEE 754-2019 §4.3, §7.4, §7.5; docs/semantics.md §1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from fpsim.records.flags import Flags
from fpsim.records.formats import Format
from fpsim.records.rounding import RNE, SR, Rounding

__all__ = [
    "Datum", "OracleSettings", "canonical_nan", "decode", "encode", "infinity", "largest",
    "overflow_value", "round_exact", "round_integer", "round_real",
]

HALF = Fraction(1, 2)
#: NaN payloads are compared across formats as fractions of this many bits, top-aligned.
PAYLOAD_BITS = 52


class Datum(NamedTuple):
    """What a code means: a finite magnitude, an infinity, or a NaN with its payload."""

    kind: str  # "finite" | "infinite" | "nan"
    sign: int
    magnitude: Fraction = Fraction(0)
    payload: int = 0
    signalling: bool = False

    @property
    def value(self) -> Fraction:
        return -self.magnitude if self.sign else self.magnitude

    @property
    def is_zero(self) -> bool:
        return self.kind == "finite" and self.magnitude == 0


@dataclass(frozen=True)
class OracleSettings:
    """The choices of a Context that fix values and flags.

    `word` is 32 random bits: the R of a stochastic rounding with r bits is its top r bits.
    """

    rounding: Rounding = RNE
    overflow: str | None = None
    subnormals: str = "keep"
    tininess: str = "after"
    nan: str = "canonical"
    infinite_input: str | None = None
    divide_by_zero: str = "infinity"
    quiet_nan_raises: bool = False
    word: int = 0


# Codes ---------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def power(exponent: int) -> Fraction:
    return Fraction(2) ** exponent


def floor_log2(x: Fraction) -> int:
    """The integer e with 2**e <= x < 2**(e + 1), for x > 0."""
    e = x.numerator.bit_length() - x.denominator.bit_length()
    return e if power(e) <= x else e - 1


@lru_cache(maxsize=1 << 17, typed=True)  # integers of numpy are others
def decode(code: int, fmt: Format) -> Datum:
    """Meaning of a code.

    >>> from fpsim.records.formats import BINARY16
    >>> decode(0x3C00, BINARY16).value
    Fraction(1, 1)
    """
    p = fmt.precision
    sign, body = divmod(code, 1 << (fmt.bits - 1))
    field, fraction = divmod(body, 1 << (p - 1))
    top = (1 << fmt.exponent_bits) - 1
    if fmt.specials == "ieee" and field == top:
        if fraction == 0:
            return Datum("infinite", sign)
        quiet = bool(fraction >> (p - 2)) or not fmt.has_signalling_nan
        payload = fraction << (PAYLOAD_BITS - (p - 1))
        return Datum("nan", sign, payload=payload, signalling=not quiet)
    if fmt.specials == "fn" and body == (1 << (fmt.bits - 1)) - 1:
        return Datum("nan", sign)
    if fmt.specials in ("fnuz", "extended") and sign == 1 and body == 0:
        return Datum("nan", 0)
    if fmt.specials == "extended" and body == (1 << (fmt.bits - 1)) - 1:
        return Datum("infinite", sign)
    if field == 0:
        return Datum("finite", sign, fraction * power(fmt.emin - p + 1))
    significand = fraction + (1 << (p - 1))
    return Datum("finite", sign, significand * power(field - fmt.bias - p + 1))


def encode(sign: int, magnitude: Fraction, fmt: Format) -> int:
    """Code of a magnitude that the format holds."""
    if magnitude == 0:
        return signed(sign, 0, fmt) if fmt.has_negative_zero else 0
    e = max(floor_log2(magnitude), fmt.emin)
    m = magnitude / power(e - fmt.precision + 1)
    assert m.denominator == 1, f"{magnitude} is not a value of {fmt}"
    assert m < 1 << fmt.precision, f"{magnitude} has too many digits for {fmt}"
    hidden = 1 << (fmt.precision - 1)
    body = int(m) if m < hidden else (e + fmt.bias) * hidden + int(m) - hidden
    return signed(sign, body, fmt)


def signed(sign: int, body: int, fmt: Format) -> int:
    return (sign << (fmt.bits - 1)) + body


def infinity(sign: int, fmt: Format) -> int:
    """Code of an infinity of a format that has one."""
    if fmt.specials == "extended":
        return signed(sign, (1 << (fmt.bits - 1)) - 1, fmt)
    assert fmt.specials == "ieee"
    return signed(sign, ((1 << fmt.exponent_bits) - 1) << (fmt.precision - 1), fmt)


@lru_cache
def most(fmt: Format) -> Fraction:
    """The largest finite magnitude."""
    return Fraction(fmt.max)


def largest(sign: int, fmt: Format) -> int:
    return encode(sign, most(fmt), fmt)


def canonical_nan(fmt: Format, sign: int = 0) -> int:
    """The quiet NaN of the format with an empty payload (FNUZ has one NaN, without sign).

    >>> from fpsim.records.formats import BINARY16, E4M3FN, E5M2, F143
    >>> [hex(canonical_nan(f)) for f in (BINARY16, E5M2, E4M3FN, F143)]
    ['0x7e00', '0x7e', '0x7f', '0x80']
    """
    if fmt.specials in ("fnuz", "extended"):
        return 1 << (fmt.bits - 1)
    if fmt.specials == "fn":
        return signed(sign, (1 << (fmt.bits - 1)) - 1, fmt)
    return infinity(sign, fmt) + (1 << (fmt.precision - 2))


# Rounding ------------------------------------------------------------------------------------


def split(magnitude: Fraction, exponent: int, fmt: Format) -> tuple[int, Fraction, Fraction]:
    """(m, w, q) of magnitude = (m + w) q, the quantum being that of `exponent`."""
    q = power(exponent - fmt.precision + 1)
    scaled = magnitude / q
    m = math.floor(scaled)
    return m, scaled - m, q


def steps_up(m: int, w: Fraction, sign: int, rounding: Rounding, r: int, word: int) -> bool:
    """Whether the mode takes (m + 1) q for (m + w) q."""
    if w == 0:
        return False
    if isinstance(rounding, SR):
        return residual(w * power(r), rounding.residual) + (word >> (32 - r)) >= power(r)
    match rounding.name:
        case "RNE":
            return w > HALF or (w == HALF and m % 2 == 1)
        case "RNA":
            return w >= HALF
        case "RNZ":
            return w > HALF
        case "RTZ":
            return False
        case "RTP":
            return sign == 0
        case "RTN":
            return sign == 1
        case "RAZ":
            return True
        case "RTO":
            return m % 2 == 0
        case "SR_EQUAL":
            return word >> 31 == 1
    raise ValueError(f"rounding={rounding!r} has no definition here")


def residual(scaled: Fraction, how: str) -> int:
    """The residual 2**r w as an integer t."""
    if how == "truncate":
        return math.floor(scaled)
    if how == "half":
        return math.floor(scaled + HALF)
    return round(scaled)  # Python rounds a Fraction half to even


def random_bits(magnitude: Fraction, fmt: Format, rounding: Rounding) -> int:
    """r of the rounding of this magnitude: larger below the normals with `subnormal_bits`."""
    r = rounding.random_bits(fmt)
    if isinstance(rounding, SR) and rounding.subnormal_bits is not None:
        below = fmt.emin - floor_log2(magnitude)
        if below > 0:
            return min(r + below, rounding.subnormal_bits)
    return r


def is_tiny(magnitude: Fraction, sign: int, fmt: Format, s: OracleSettings) -> bool:
    """Below the normals: before rounding, or after rounding with unbounded exponent."""
    smallest = power(fmt.emin)
    # Rounding is monotone and keeps the smallest normal number: what is not below it stays so.
    if magnitude >= smallest or s.tininess == "before" or s.rounding.stochastic:
        return magnitude < smallest
    m, w, q = split(magnitude, floor_log2(magnitude), fmt)
    return (m + steps_up(m, w, sign, s.rounding, 0, 0)) * q < smallest


def overflow_value(sign: int, fmt: Format, policy: str | None) -> int:
    """What the overflow policy puts in the place of an infinity."""
    default = {
        "ieee": "infinity", "extended": "infinity", "fn": "nan", "fnuz": "nan",
        "finite": "saturate",
    }
    match policy or default[fmt.specials]:
        case "infinity":
            return infinity(sign, fmt)
        case "nan":
            return canonical_nan(fmt)
        case _:
            return largest(sign, fmt)


def keeps_largest(rounding: Rounding, sign: int) -> bool:
    """Whether the mode stops at the largest finite value instead of going to infinity."""
    return rounding.name in ("RTZ", "RTO") or rounding.name == ("RTP" if sign else "RTN")


def round_real(
    x: Fraction, fmt: Format, s: OracleSettings, zero_sign: int = 0
) -> tuple[int, Flags]:
    """The one rounding of an exact result; `zero_sign` is the sign of an exact zero."""
    if x == 0:
        return encode(zero_sign, x, fmt), Flags.NONE
    sign, magnitude = int(x < 0), abs(x)
    tiny = is_tiny(magnitude, sign, fmt, s)
    if tiny and s.subnormals != "keep":
        return encode(sign, Fraction(0), fmt), Flags.UNDERFLOW | Flags.INEXACT
    m, w, q = split(magnitude, max(floor_log2(magnitude), fmt.emin), fmt)
    up = steps_up(m, w, sign, s.rounding, random_bits(magnitude, fmt, s.rounding), s.word)
    rounded = (m + up) * q
    if rounded > most(fmt):
        stands = keeps_largest(s.rounding, sign)
        code = largest(sign, fmt) if stands else overflow_value(sign, fmt, s.overflow)
        return code, Flags.OVERFLOW | Flags.INEXACT
    flags = Flags.NONE if w == 0 else Flags.INEXACT
    if tiny and w != 0:
        flags |= Flags.UNDERFLOW
    return encode(sign, rounded, fmt), flags


def round_exact(
    x: Fraction | int | float,
    fmt: Format,
    rounding: Rounding = RNE,
    *,
    word: int = 0,
    sign_of_zero: int = 0,
    overflow: str | None = None,
    subnormals: str = "keep",
    tininess: str = "after",
) -> tuple[int, Flags]:
    """Code and flags of a real number rounded once.

    Rounding  R of a stochastic mode with r bits is the top r bits of the 32-bit `word`.

    >>> from fpsim.records.formats import BINARY16
    >>> code, flags = round_exact(Fraction(1, 10), BINARY16)
    >>> hex(code), flags
    ('0x2e66', <Flags.INEXACT: 1>)
    """
    settings = OracleSettings(
        rounding, overflow=overflow, subnormals=subnormals, tininess=tininess, word=word
    )
    return round_real(Fraction(x), fmt, settings, sign_of_zero)


def round_integer(x: Fraction, s: OracleSettings, fmt: Format) -> int:
    """The integer that the mode names for x; SR uses the r of a normal result."""
    sign, magnitude = int(x < 0), abs(x)
    m = math.floor(magnitude)
    m += steps_up(m, magnitude - m, sign, s.rounding, s.rounding.random_bits(fmt), s.word)
    return -m if sign else m
